package template_test

import (
	"errors"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/template"
)

// readConsul is a Consul with some keys.
func readConsul(q template.KeyQuery) ([]template.Pair, error) {
	switch {
	case q.Below && q.Key == "shop":
		return []template.Pair{{Path: "shop/", Key: ""}, {Path: "shop/a", Key: "a", Value: "1"}, {Path: "shop/b/", Key: "b/"}, {Path: "shop/b/c", Key: "b/c", Value: "2"}}, nil
	case q.Below:
		return nil, nil
	case q.Key == "shop/a", q.Key == "shop/empty":
		return []template.Pair{{Path: q.Key, Key: q.Key, Value: map[string]string{"shop/a": "1"}[q.Key]}}, nil
	case q.Key == "away":
		return nil, errors.New("connection refused")
	case q.Needed:
		return nil, errors.New("there is no key " + q.Key)
	}
	return nil, nil
}

// TestKeysOfTemplates: keys are read as consul-template reads them, and are no secrets. A Consul that is away, and a missing key
// that is needed, are sources that have no answer.
func TestKeysOfTemplates(t *testing.T) {
	for text, want := range map[string]string{
		`{{ key "shop/a" }}`: "1", `{{ key "shop/empty" }}`: "", `{{ keyExists "shop/a" }} {{ keyExists "none" }}`: "true false",
		`{{ keyOrDefault "shop/a" "d" }} {{ keyOrDefault "none" "d" }} {{ keyOrDefault "shop/empty" "d" }}`: "1 d d",
		`{{ range ls "shop" }}{{ .Key }}={{ .Value }} {{ end }}{{ len (ls "none") }}`:                       "a=1 0",
		`{{ range tree "shop" }}{{ .Path }} {{ .Key }}={{ .Value }};{{ end }}`:                              "shop/a a=1;shop/b/c b/c=2;",
	} {
		r, err := template.Render(t.Context(), template.Text{Name: "t", Text: text}, sources())
		if err != nil || r.Text != want || r.Secret || !r.Reads {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
	for text, want := range map[string]string{`{{ key "none" }}`: "there is no key none", `{{ keyOrDefault "away" "d" }}`: "connection refused", `{{ ls "away" }}{{ keyExists "away" }}`: "connection refused"} {
		if _, err := render(text, sources()); !errors.Is(err, template.ErrSource) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	none := sources()
	none.Pairs = nil
	if _, err := render(`{{ key "shop/a" }}`, none); fleet.CodeOf(err) != fleet.CodeInvalid || !strings.Contains(err.Error(), "no consul block") {
		t.Errorf("without a Consul: %v", err)
	}
}

// TestReadsConsul: calls are found wherever they are.
func TestReadsConsul(t *testing.T) {
	for text, want := range map[string]bool{
		`{{ key "a" }}`: true, `{{ if keyExists "a" }}{{ end }}`: true, `{{ with $x := keyOrDefault "a" "b" }}{{ end }}`: true,
		`{{ range ls "a" }}{{ end }}`: true, `{{ define "x" }}{{ len (tree "a") }}{{ end }}`: true, `key "a" {{ env "key" }}`: false, `{{ .key }}`: false, `{{ key`: false,
		`{{ secret "a" }}`: false,
	} {
		if got := template.ReadsConsul(template.Text{Text: text}); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
