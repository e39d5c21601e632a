package rehearse_test

import (
	"strings"
	"testing"

	"skerry/chaos/rehearse"
)

func TestParseFleet(t *testing.T) {
	f, err := rehearse.ParseFleet("fleet.txt", []byte(`# two shops
edges 2 site=north dc=store cpu=1000
edges 1 dc=depot memory=512
meta 1 rack=a tier=gold
meta north rack=b # both
meta edge-3 rack=c
attribute all cpu.arch=arm64
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Hubs) != rehearse.DefaultHubs || len(f.Edges) != 3 || f.Edges[2].Datacenter != "depot" || f.Edges[0].CPU != 1000 {
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
		"":                       "edges",
		"edges 2\njob a service": `fleet.txt:2: unknown line "job"`,
		"edges 2\nlength 5m":     `unknown line "length"`,
		"edges 2 cpu=lots":       "fleet.txt:1:",
		"edges 2\nmeta 3 a=b":    `fleet.txt:2: there is no edge "3": edges are 1 to 2`,
		"edges 2\nmeta 1":        "needs an edge and a KEY=VALUE",
		"edges 2\nmeta 1 rack":   `"rack" is not KEY=VALUE`,
		"edges 2000\nmeta all a=1 b=2 c=3 d=4 e=5 f=6":   "more than 10000 entries",
		"edges 2\nmeta 1 k=" + strings.Repeat("x", 2000): "is not KEY=VALUE of at most",
		strings.Repeat("#", 2<<20):                       "bytes: at most",
	} {
		_, err := rehearse.ParseFleet("fleet.txt", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q in it", text, err, want)
		}
	}
}

func FuzzParseFleet(f *testing.F) {
	f.Add("edges 2 site=a\nmeta a k=v\nattribute all x=y\n")
	f.Add("hubs 1\nedges 1\npool p ttl=5s\nmeta 1 =")
	f.Add("# c\nmeta")
	f.Fuzz(func(t *testing.T, text string) {
		fleet, err := rehearse.ParseFleet("fleet.txt", []byte(text))
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
