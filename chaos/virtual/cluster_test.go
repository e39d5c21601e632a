package virtual_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/fabric"
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
			if link, _ := e.Agent().SyncStatus(); link.Status != string(fleet.NodeReady) {
				t.Errorf("%s: %+v", e.Name, link)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestAnotherRoundTripIsMeasuredAfresh takes edges from a cable to a satellite and back:
// a connection that was measured on the one would probe for ever on the other, 60 packets
// a second each way.
func TestAnotherRoundTripIsMeasuredAfresh(t *testing.T) {
	const path, beats, perBeat = 10 * time.Minute, 60, 10
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 1, "edge-1", "edge-2")
		defer mustClose(t, c)
		sent := func() int { return c.Net.Bytes("edge-1").SentPackets + c.Net.Bytes("edge-2").SentPackets }
		var satellite *fabric.Fault
		for _, away := range []bool{false, true, false, true} {
			if away {
				satellite = c.Net.Shape(fabric.Hosts("edge-1", "edge-2"), fabric.Everyone, fabric.Satellite)
			} else if satellite != nil {
				satellite.Heal()
			}
			before := sent()
			time.Sleep(path)
			if n := sent() - before; n > perBeat*beats*len(c.Edges) {
				t.Errorf("away: %t: %d packets in %s, want at most %d a beat", away, n, path, perBeat)
			}
			for _, e := range c.Edges {
				mustBecome(t, e, "ready", time.Minute, ready)
			}
		}
	})
}
