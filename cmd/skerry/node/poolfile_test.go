package node

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/admission"
)

func TestParsePool(t *testing.T) {
	yes := true
	want := fleet.Pool{
		Name: "ships", Description: "at sea", DefaultDisconnect: fleet.DisconnectNomad, HeartbeatTTL: 90 * time.Second,
		Meta:                   map[string]string{"owner": "fleet", "decks": "3"},
		SchedulerConfiguration: &fleet.PoolScheduling{SchedulerAlgorithm: "spread", MemoryOversubscriptionEnabled: &yes},
	}
	got, err := parsePool("p.hcl", []byte(`
node_pool "ships" {
  description        = "at sea"
  default_disconnect = "nomad"
  heartbeat_ttl      = "90s"
  meta {
    owner = "fleet"
    decks = 3
  }
  scheduler_config {
    scheduler_algorithm             = "spread"
    memory_oversubscription_enabled = true
  }
}
`))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	text, err := json.MarshalIndent(want, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parsePool("p.json", text); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v of %s", got, err, text)
	}
	if got, err := parsePool("p.hcl", []byte(`node_pool "x" { meta = { "a" = "b" } }`)); err != nil || got.Meta["a"] != "b" || got.SchedulerConfiguration != nil {
		t.Errorf("meta as an attribute: %+v, %v", got, err)
	}
}

// The files that init writes are accepted.
func TestExamplesOfAPool(t *testing.T) {
	hcl, err := parsePool("pool.hcl", []byte(examplePoolHCL))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parsePool("pool.json", []byte(examplePoolJSON)); err != nil || !reflect.DeepEqual(got, hcl) {
		t.Errorf("%+v in HCL and %+v in JSON, %v", hcl, got, err)
	}
	all := strings.NewReplacer("# heartbeat", "heartbeat", "# scheduler_config", "scheduler_config", "#   ", "  ", "# }", "}").Replace(examplePoolHCL)
	if got, err := parsePool("pool.hcl", []byte(all)); err != nil || got.HeartbeatTTL == 0 || got.SchedulerConfiguration == nil {
		t.Errorf("with what is commented out: %+v, %v", got, err)
	}
}

func TestPoolFilesThatAreRefused(t *testing.T) {
	deep := strings.Repeat("[", 1000)
	for src, want := range map[string]string{
		"":                                       `read f: it has no block node_pool "NAME" { … }`,
		`name = "x"`:                             `f:1:1: "name" is not known`,
		`pool "x" {}`:                            `f:1:1: block "pool" is not known, or not supported`,
		`node_pool {}`:                           "f:1:1: a block node_pool has one label",
		`node_pool "a" "b" {}`:                   "f:1:1: a block node_pool has one label",
		"node_pool \"a\" {}\nnode_pool \"b\" {}": "f:2:1: there is a node_pool already",
		`node_pool "a b" {}`:                     `f:1:1: node pool "a b": a name has`,
		`node_pool "all" {}`:                     "it contains all nodes",
		"node_pool \"a\" {\n  descripton = 1\n}": `f:2:3: "descripton" is not known`,
		"node_pool \"a\" {\n  description = [1]\n}":                                                          "f:2:3: description is not string",
		"node_pool \"a\" {\n  node_identity_ttl = \"1h\"\n}":                                                 "f:2:3: node_identity_ttl is not supported",
		"node_pool \"a\" {\n  default_disconnect = \"x\"\n}":                                                 `DefaultDisconnect is "keep" or "nomad", not "x"`,
		"node_pool \"a\" {\n  heartbeat_ttl = \"soon\"\n}":                                                   "f:2:19: heartbeat_ttl is not a duration",
		"node_pool \"a\" {\n  heartbeat_ttl = \"1ms\"\n}":                                                    "HeartbeatTTL is 0 or from",
		"node_pool \"a\" {\n  limits {}\n}":                                                                  `f:2:3: block "limits"`,
		"node_pool \"a\" {\n  meta {}\n  meta {}\n}":                                                         "f:3:3: meta is defined twice",
		"node_pool \"a\" {\n  meta = {}\n  meta {}\n}":                                                       "f:3:3: meta is defined twice",
		"node_pool \"a\" {\n  meta \"x\" {}\n}":                                                              "a block meta has no labels",
		"node_pool \"a\" {\n  meta {\n    x {}\n  }\n}":                                                      `f:3:5: block "x"`,
		"node_pool \"a\" {\n  scheduler_config {\n    x = 1\n  }\n}":                                         `f:3:5: "x" is not known`,
		"node_pool \"a\" {\n  scheduler_config {\n    memory_oversubscription_enabled = \"perhaps\"\n  }\n}": "memory_oversubscription_enabled is not bool",
		"node_pool \"a\" {\n  scheduler_config {\n    scheduler_algorithm = \"magic\"\n  }\n}":               "the scheduler algorithm is",
		`node_pool "a" { description = 1e999999999 }`:                                                        "f:1:31: the number is out of range",
		`node_pool "a" { description = upper("x") }`:                                                         "f:1:31: the value of description is computed",
		`node_pool "a" { description = "${[for a in [1] : a][0]}" }`:                                         "f:1:31: the value of description is computed",
		`node_pool "a" { description = x }`:                                                                  "the value of description is computed",
		`node_pool "a" { description = ` + deep:                                                              "nested more than 100 deep",
		`{"Name": "a",` + "\n" + ` "Descripton": "x"}`:                                                       `f:2:2: "Descripton" is not known, or not supported`,
		`{"Name": "a",` + "\n" + ` "Description": 7}`:                                                        "f:2:17: Description is not string, but number",
		`{"Name": "a",` + "\n" + ` }`:                                                                        "f:2:2: invalid character '}'",
		`{"Name": "a"} {}`:                                                                                   "f:1:15: there is more than one object",
		`{"Name": "a", "Meta": ` + strings.ReplaceAll(deep, "[", `{"a":`):                                    "nested more than 100 deep",
		`{"Name": "a", "DefaultDisconnect": "x"}`:                                                            "DefaultDisconnect is",
		`{"Name": "`:                       "f:1:11: ",
		`{"Name": "a", "Meta": {"": "x"}}`: "a key at least one",
		`{"Name": "a", "Description": "` + strings.Repeat("x", 300) + `"}`: "the description has 300 bytes",
	} {
		if _, err := parsePool("f", []byte(src)); err == nil || !strings.Contains(err.Error(), want) || fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%.80q: %v, want %q", src, err, want)
		}
	}
}

// FuzzParsePool parses any file. An accepted pool is valid, and is the same after it went out and came in as JSON.
func FuzzParsePool(f *testing.F) {
	f.Add(examplePoolHCL)
	f.Add(examplePoolJSON)
	f.Add(`node_pool "a" { meta = { a = "b" } }`)
	f.Add("node_pool \"a\" {\n  scheduler_config {\n    memory_oversubscription_enabled = \"true\"\n  }\n}")
	f.Add(`{"Name": "a", "HeartbeatTTL": 30000000000, "SchedulerConfiguration": {"SchedulerAlgorithm": "spread"}}`)
	f.Fuzz(func(t *testing.T, src string) {
		p, err := parsePool("f", []byte(src))
		if err != nil {
			if fleet.CodeOf(err) != fleet.CodeInvalid {
				t.Fatalf("%v", err)
			}
			return
		}
		if err := admission.CheckPool(&p); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parsePool("f", text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(text) {
			t.Fatalf("%s came back as %s, %v", text, twice, err)
		}
	})
}
