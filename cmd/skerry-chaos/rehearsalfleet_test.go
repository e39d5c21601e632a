package main

import (
	"strings"
	"testing"
)

func TestParseFleet(t *testing.T) {
	f, err := parseFleet("fleet.yaml", []byte(`# two shops
edges:
  - {count: 2, site: north, datacenter: store, cpu: 1000}
  - {count: 1, datacenter: depot, memory: 512}
meta:
  - {edges: 1, set: {rack: a, tier: gold}}
  - {edges: north, set: {rack: b}} # both
  - {edges: edge-3, set: {rack: c}}
attributes:
  - {edges: all, set: {cpu.arch: arm64}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Hubs) != defaultHubs || len(f.Edges) != 3 || f.Edges[2].Datacenter != "depot" || f.Edges[0].CPU != 1000 {
		t.Errorf("topology: %+v", f.Topology)
	}
	if f.Meta["edge-1"]["rack"] != "b" || f.Meta["edge-1"]["tier"] != "gold" || f.Meta["edge-2"]["rack"] != "b" || f.Meta["edge-3"]["rack"] != "c" {
		t.Errorf("meta: %v", f.Meta)
	}
	if len(f.Attributes) != 3 || f.Attributes["edge-2"]["cpu.arch"] != "arm64" {
		t.Errorf("attributes: %v", f.Attributes)
	}
}

func TestParseFleetRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "edges",
		"edges: [{count: 2}]\njobs: [{id: a}]": `fleet.yaml:2:1: unknown key "jobs"`,
		"edges: [{count: 2}]\nlength: 5m":      `unknown key "length"`,
		"edges: [{count: 2, cpu: lots}]":       "fleet.yaml:1:",
		"edges: [{count: 2}]\nmeta: [{edges: 3, set: {a: b}}]":                                    `meta: there is no edge "3": edges are 1 to 2`,
		"edges: [{count: 2}]\nmeta: [{edges: 1}]":                                                 "nothing is set, such as: {edges: 1, set: {rack: a}}",
		"edges: [{count: 2}]\nmeta: [{edges: 1, set: [rack]}]":                                    "fleet.yaml:2:",
		"edges: [{count: 2000}]\nmeta: [{edges: all, set: {a: 1, b: 2, c: 3, d: 4, e: 5, f: 6}}]": "more than 10000 entries",
		"edges: [{count: 2}]\nmeta: [{edges: 1, set: {k: " + strings.Repeat("x", 2000) + "}}]":    "a key and its value have 1 to",
		strings.Repeat("#", 2<<20):                                                                "bytes: at most",
	} {
		_, err := parseFleet("fleet.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q in it", text, err, want)
		}
	}
}

func FuzzParseFleet(f *testing.F) {
	f.Add("edges: [{count: 2, site: a}]\nmeta: [{edges: a, set: {k: v}}]\nattributes: [{edges: all, set: {x: y}}]\n")
	f.Add("hubs: 1\nedges: [{}]\npools: [{name: p, ttl: 5s}]\nmeta: [{edges: 1, set: {}}]")
	f.Add("# c\nmeta")
	f.Fuzz(func(t *testing.T, text string) {
		fleet, err := parseFleet("fleet.yaml", []byte(text))
		if err != nil {
			return
		}
		for _, of := range []map[string]map[string]string{fleet.Meta, fleet.Attributes} {
			for name := range of {
				if _, ok := fleet.Edge(name); !ok {
					t.Errorf("%q says something of %q, which is no edge", text, name)
				}
			}
		}
	})
}
