package virtual_test

import (
	"context"
	"testing"
	"time"

	"skerry/chaos/virtual"
	"skerry/fleet"
)

// TestAnIdleFleet runs a fleet to which nothing happens, and leaves nothing behind.
func TestAnIdleFleet(t *testing.T) {
	dir := t.TempDir()
	virtual.Bubble(t, func() {
		edges := make([]virtual.EdgeConfig, 10)
		for i := range edges {
			edges[i] = virtual.EdgeConfig{Name: "edge-" + string(rune('a'+i)), Datacenter: "dc1"}
		}
		c, err := virtual.Start(context.Background(), virtual.Config{Dir: dir, Hubs: []string{"hub-1", "hub-2", "hub-3"}, Edges: edges, Seed: 1,
			Tuning: virtual.Stretched})
		if err != nil {
			t.Error(err)
			return
		}
		time.Sleep(20 * time.Minute)
		for _, e := range c.Edges {
			if link, _ := e.Agent().Standing(); link.Status != string(fleet.NodeReady) {
				t.Errorf("%s: %+v", e.Name, link)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
