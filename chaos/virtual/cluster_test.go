package virtual_test

import (
	"testing"
	"time"

	"skerry/chaos/virtual"
)

func TestAnHour(t *testing.T) {
	dir := t.TempDir()
	real := time.Now()
	virtual.Bubble(t, func() {
		edges := make([]virtual.EdgeConfig, 10)
		for i := range edges {
			edges[i] = virtual.EdgeConfig{Name: "edge" + string(rune('a'+i)), Datacenter: "dc1"}
		}
		c, err := virtual.Start(t.Context(), virtual.Config{Dir: dir, Hubs: []string{"hub-1", "hub-2", "hub-3"}, Edges: edges, Seed: 1})
		if err != nil {
			t.Error(err)
			return
		}
		time.Sleep(time.Hour)
		for _, e := range c.Edges {
			link, journal := e.Agent().Standing()
			t.Logf("%s %+v %+v", e.Name, link, journal)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	_ = real
}
