//go:build planted

package syncproto_test

import (
	"testing"

	"skerry/fleet"
	"skerry/planted"
	"skerry/syncproto"
)

// What a hub's half makes of rows that come too early, or after a gap.
func TestPlantedDoors(t *testing.T) {
	for _, c := range []struct {
		bug   planted.Bug
		beats bool
		first fleet.Seq
	}{
		{planted.AcceptBeforeHeartbeat, false, 1},
		{planted.GlueOverGap, true, 3},
	} {
		t.Run(string(c.bug), func(t *testing.T) {
			if taken(c.beats, c.first) {
				t.Fatal("without the bug the rows were taken")
			}
			defer planted.Plant(c.bug)()
			if !taken(c.beats, c.first) {
				t.Fatal("with the bug the rows were not taken")
			}
		})
	}
}

// taken reports whether a session hands rows from first on to the cluster.
func taken(beats bool, first fleet.Seq) bool {
	s := syncproto.NewHubSession(0, "node-1")
	s.Frame(0, syncproto.StreamControl, syncproto.Hello{
		Versions: []uint16{syncproto.Version}, Node: "node-1", Boot: "b", Instance: "i", Session: 1, First: 1, Last: 9,
	})
	s.Accept(0, syncproto.Welcome{Epoch: 1})
	if beats {
		s.Frame(0, syncproto.StreamControl, syncproto.Heartbeat{Number: 1})
		s.Acknowledge(syncproto.HeartbeatAck{Epoch: 1})
	}
	for _, o := range s.Frame(0, syncproto.StreamUpdates, syncproto.Updates{First: first, Rows: [][]byte{{1}}}) {
		if _, ok := o.Event.(syncproto.EventUpdates); ok {
			return true
		}
	}
	return false
}
