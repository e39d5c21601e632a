package aclpolicy_test

import (
	"os"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/fleet/aclpolicy"
)

func TestBadPolicies(t *testing.T) {
	for rules, message := range map[string]string{
		"":                         "it has no rule",
		"# nothing":                "it has no rule",
		`namespace "a" {`:          "policy:1:",
		"\n  nonsense \"a\" {}":    "policy:2:3: Unsupported block type",
		`namespace {}`:             "policy:1:11: Missing name for namespace",
		`node "a" {}`:              "Extraneous label for node",
		`policy = "read"`:          "policy:1:1: Unsupported argument",
		`namespace "a b" {}`:       `"a b" is no namespace`,
		`namespace "" {}`:          "empty name",
		`node {}`:                  "the block node says nothing",
		`node { policy = "list" }`: `policy "list" of a block node is not known (it may be deny, read, write)`,
		"namespace \"a\" {\n  capabilities = [\"read-job\", \"fly\"]\n}":                                `policy:2:31: capability "fly" of a block namespace is not known`,
		`namespace "a" { capabilities = "read-job" }`:                                                   "not a list",
		`namespace "a" { capabilities = [1] }`:                                                          "not a plain text",
		`namespace "a" { policy = upper("read") }`:                                                      "not a plain text",
		`namespace "a" { policy = "${[for x in [1] : x][0]}" }`:                                         "not a plain text",
		`namespace "a" { policy = null }`:                                                               "not a plain text",
		`{"namespace": {"a": {"policy": null}}}`:                                                        "not a plain text",
		`{"namespace": {"a": {"policy": 7}}}`:                                                           "not a plain text",
		`namespace "a" { variables { path "x" {} } }`:                                                   "Missing required argument",
		`namespace "a" { variables { path "x" { policy = "read" } } }`:                                  "policy:1:",
		`namespace "a" { variables { read = true } }`:                                                   "a block variables has blocks such as",
		"namespace \"a\" { policy = \"read\" }\nnode { policy = \"read\" }  agent { policy = \"fly\" }": `policy:2:44: policy "fly"`,
		`site "x" { capabilities = ["read"] }`:                                                          "a block site has policy",
		"node_pool \"" + strings.Repeat("x", 256) + "\" {}":                                             "256 bytes: at most 255",
		"host_volume \"a\\u0000b\" {}":                                                                  "control character",
		strings.Repeat("#", aclpolicy.MaxRulesSize+1):                                                   "at most 262144",
		"a = " + strings.Repeat("[", 1000):                                                              "nested more than",
		`{"a":` + strings.Repeat("[", 1000):                                                             "nested more than",
		`{"namespace": [`:                                                                               "policy:1:",
	} {
		_, err := aclpolicy.Parse(rules)
		if err == nil || !strings.Contains(err.Error(), message) || fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%.60q: %v, not %q", rules, err, message)
		}
	}
}

// The policy that docs/acl.md shows is one.
func TestDocumentedPolicy(t *testing.T) {
	docs, err := os.ReadFile("../../docs/acl.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(docs), "\n## Policies\n\n")
	rules, _, found := strings.Cut(section, "\n\n- ")
	p, err := aclpolicy.Parse(rules)
	if err != nil || !found || len(p.Rules) < 9 {
		t.Errorf("%d rules, %v, in:\n%s", len(p.Rules), err, rules)
	}
}

// The policy of each rule that was read says the same again: what is read has no other meaning than its rules.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{`namespace "default" { policy = "read" }`, `{"node": {"policy": "read"}}`,
		"namespace \"a-*\" {\n capabilities = [\"deny\"]\n variables {\n  path \"x/*\" { capabilities = [\"read\"] }\n }\n}",
		`operator { capabilities = ["snapshot-save"] }`, `site "*" { policy = "write" }`, `plugin { policy = "list" }`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, rules string) {
		p, err := aclpolicy.Parse(rules)
		if err != nil {
			if fleet.CodeOf(err) != fleet.CodeInvalid {
				t.Fatalf("%q: %v", rules, err)
			}
			return
		}
		a := acl.New(p)
		for _, r := range p.Rules {
			for _, c := range r.Capabilities {
				needs := acl.Requirement{Kind: r.Kind, Name: r.Name, Path: r.Path, Capability: c}
				if a.Explain(needs).Allowed != a.Allows(needs) {
					t.Fatalf("%q: %s: explained otherwise than decided", rules, needs)
				}
				if c == acl.Deny && a.Allows(needs) {
					t.Fatalf("%q: %s: denied, and allowed", rules, needs)
				}
			}
		}
	})
}
