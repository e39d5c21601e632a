package namespace

import (
	"reflect"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/admission"
)

func TestParseNamespace(t *testing.T) {
	got, err := parseNamespace("ns.hcl", []byte(`
name        = "ships"
description = "at sea"
capabilities {
  enabled_task_drivers   = ["raw_exec", "sim"]
  disabled_network_modes = ["bridge"]
}
meta {
  owner = "fleet"
  decks = 3
}
`))
	want := fleet.Namespace{
		Name: "ships", Description: "at sea", Meta: map[string]string{"owner": "fleet", "decks": "3"},
		Capabilities: &fleet.NamespaceCapabilities{EnabledTaskDrivers: []string{"raw_exec", "sim"}, DisabledNetworkModes: []string{"bridge"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := parseNamespace("ns.hcl", []byte(`meta = { a = "b" }`)); err != nil || got.Meta["a"] != "b" {
		t.Errorf("meta as an attribute: %+v, %v", got, err)
	}
	for src, want := range map[string]string{
		"name = \n":                              "ns.hcl:1:8: ",
		`nam = "x"`:                              `ns.hcl:1:1: "nam" is not known`,
		`name = ["x"]`:                           "name is not string",
		`name = null`:                            "name is not string",
		`name = x`:                               "ns.hcl:1:8: ",
		`meta = { a = null }`:                    "meta has a null in it",
		`vault { default = "x" }`:                `block "vault" is not known, or not supported`,
		`capabilities "x" {}`:                    "has no labels",
		"meta {}\nmeta {}":                       "ns.hcl:2:1: meta is defined twice",
		"capabilities {\n  drivers = [\"x\"]\n}": `ns.hcl:2:3: "drivers"`,
		"capabilities {\n  enabled_task_drivers = [null]\n}": "has a null",
	} {
		if _, err := parseNamespace("ns.hcl", []byte(src)); err == nil || !strings.Contains(err.Error(), want) || fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%q: %v, want %q", src, err, want)
		}
	}
}

// FuzzParseNamespace feeds files.
func FuzzParseNamespace(f *testing.F) {
	f.Add(`name = "a"`)
	f.Add("meta { a = 1 }\ncapabilities { enabled_task_drivers = [\"x\"] }")
	f.Fuzz(func(t *testing.T, src string) {
		n, err := parseNamespace("f", []byte(src))
		if err == nil {
			_ = admission.CheckNamespace(&n) // must not panic
		}
	})
}
