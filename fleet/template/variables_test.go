package template_test

import (
	"errors"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/template"
)

// TestVariablesOfTemplates: a rendering says whether it read a variable, one that is missing has no answer, and one that
// the task may not read is an error. No error has a value.
func TestVariablesOfTemplates(t *testing.T) {
	for text, secret := range map[string]bool{
		`{{ with nomadVar "nomad/jobs/shop" }}{{ .user }}{{ end }}`: true,
		`{{ nomadVarExists "nomad/jobs/shop" }}`:                    false,
		`{{ nomadVarList }}`:                                        false,
	} {
		r, err := template.Render(t.Context(), template.Text{Name: "t", Text: text}, sources())
		if err != nil || r.Secret != secret || !r.Reads {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
	if _, err := render(`{{ nomadVar "nomad/jobs" }}`, sources()); !errors.Is(err, template.ErrSource) || !strings.Contains(err.Error(), "no variable nomad/jobs") {
		t.Errorf("a missing one: %v", err)
	}
	for _, text := range []string{`{{ nomadVar "app/db" }}`, `{{ nomadVarExists "nomad/jobs/other" }}`, `{{ nomadVar "nomad/jobs/shop@other" }}`} {
		if _, err := render(text, sources()); fleet.CodeOf(err) != fleet.CodeInvalid || !strings.Contains(err.Error(), "may not read") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		`{{ with nomadVar "nomad/jobs/shop" }}{{ .password | parseInt }}{{ end }}`,
		`{{ with nomadVar "nomad/jobs/shop" }}{{ .password | parseJSON }}{{ end }}`,
		`{{ with nomadVar "nomad/jobs/shop" }}{{ env .password | mustEnv }}{{ mustEnv .password }}{{ end }}`,
	} {
		_, err := render(text, sources())
		if err == nil || strings.Contains(err.Error(), "geheim") || !strings.Contains(err.Error(), "t:1:") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestSecretTexts: a file can be a secret, and so can the text of the template. The rendering is one then, and no error has a value.
func TestSecretTexts(t *testing.T) {
	for text, secret := range map[string]bool{`{{ file "secrets/pin" }}`: true, `{{ file "local/conf" }}`: false, `{{ file "local/conf" }}{{ file "secrets/pin" }}`: true} {
		for _, ofText := range []bool{false, true} {
			r, err := template.Render(t.Context(), template.Text{Name: "t", Text: text, Secret: ofText}, sources())
			if err != nil || r.Secret != (secret || ofText) || !r.Reads {
				t.Errorf("%s: %+v, %v", text, r, err)
			}
		}
	}
	for text, ofText := range map[string]bool{
		`{{ file "secrets/pin" | parseInt }}`: false, `{{ mustEnv (file "secrets/pin") }}`: false, `{{ parseInt "geheim" }}`: true, `{{ geheim }}`: true, `{{ if "geheim }}`: true,
	} {
		_, err := template.Render(t.Context(), template.Text{Name: "t", Text: text, Secret: ofText}, sources())
		if fleet.CodeOf(err) != fleet.CodeInvalid || strings.Contains(err.Error(), "geheim") || !strings.Contains(err.Error(), "t:1:") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
