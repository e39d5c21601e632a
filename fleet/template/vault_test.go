package template_test

import (
	"errors"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/template"
)

// readVault is a Vault with one secret, and a list.
func readVault(path string, list bool) (template.Secret, error) {
	switch {
	case list:
		return template.Secret{Data: map[string]any{"keys": []any{"web", "db", 3}}}, nil
	case path == "kv/data/db":
		return template.Secret{LeaseID: "l", LeaseDuration: 60, Data: map[string]any{"data": map[string]any{"password": "geheim"}}}, nil
	}
	return template.Secret{}, errors.New("connection refused for " + path)
}

// TestSecretsOfTemplates: secret and secrets read from Vault, and the rendering is a secret then. A Vault that is away is a
// source that has no answer, also after something secret was read, and no error has a value.
func TestSecretsOfTemplates(t *testing.T) {
	for text, want := range map[string]string{
		`{{ with secret "kv/data/db" }}{{ .Data.data.password }} {{ .LeaseID }} {{ .LeaseDuration }} {{ .Renewable }}{{ end }}`: "geheim l 60 false",
		`{{ range secrets "kv/metadata" }}{{ . }} {{ end }}`:                                                                    "db web ",
	} {
		r, err := template.Render(t.Context(), template.Text{Name: "t", Text: text}, sources())
		if err != nil || r.Text != want || !r.Secret || !r.Reads {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
	if _, err := render(`{{ secret "kv/data/x" }}`, sources()); !errors.Is(err, template.ErrSource) || !strings.Contains(err.Error(), "connection refused for kv/data/x") {
		t.Errorf("away: %v", err)
	}
	_, err := render(`{{ $p := secret "kv/data/db" }}{{ secret $p.Data.data.password }}`, sources())
	if !errors.Is(err, template.ErrSource) || fleet.CodeOf(err) != fleet.CodeUnavailable || strings.Contains(err.Error(), "geheim") || !strings.Contains(err.Error(), "t:1:") {
		t.Errorf("away after something was read: %v", err)
	}
	for text, want := range map[string]fleet.Code{
		`{{ secret "pki/issue/a" "common_name=x" }}`:                                fleet.CodeUnsupported,
		`{{ with secret "kv/data/db" }}{{ secret "pki/a" "x=y" }}{{ end }}`:         fleet.CodeInvalid,
		`{{ with secret "kv/data/db" }}{{ parseInt .Data.data.password }}{{ end }}`: fleet.CodeInvalid,
	} {
		if _, err := render(text, sources()); fleet.CodeOf(err) != want || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", text, err)
		}
	}
	none := sources()
	none.Secret = nil
	if _, err := render(`{{ secret "kv/data/db" }}`, none); fleet.CodeOf(err) != fleet.CodeInvalid || !strings.Contains(err.Error(), "no vault block") {
		t.Errorf("without a Vault: %v", err)
	}
}

// TestReadsVault: calls are found wherever they are.
func TestReadsVault(t *testing.T) {
	for text, want := range map[string]bool{
		`{{ secret "a" }}`: true, `{{ if true }}{{ else }}{{ range secrets "a" }}{{ end }}{{ end }}`: true, `{{ (secret "a").Data }}`: true,
		`{{ define "x" }}{{ len (secrets "a") }}{{ end }}`: true, `secret "a" {{ env "secret" }}`: false, `{{ .secret }}`: false, `{{ secret`: false,
	} {
		if got := template.ReadsVault(template.Text{Text: text}); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
