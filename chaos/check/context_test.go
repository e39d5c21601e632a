package check_test

import (
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// Hubs that were put back begin at their own snapshots, and one is ahead of the others: what it shows behind a gap is not
// judged before the others have shown what is between.
func TestHubsBeginAtTheirOwnSnapshots(t *testing.T) {
	for name, missing := range map[string]bool{"the others fill the gap": false, "an entry is missing": true} {
		m := check.NewMonitor(check.Limits{})
		at := time.Minute
		observe := func(o check.Observation) {
			at += time.Millisecond
			o.At = at
			m.Observe(o)
		}
		applied := func(hub string, index fleet.Index, e check.Effects) {
			if !m.Wants(index) {
				return
			}
			observe(check.Observation{Applied: &check.Applied{Hub: hub, Index: index, Term: 1, Kind: "k", Command: "c", Result: "r", Effects: &e}})
		}
		session := func(epoch fleet.Epoch, row fleet.Seq) check.Effects {
			return check.Effects{Opened: &check.Opened{Node: "n", Session: uint64(epoch), Boot: "b", Hub: "hub-1", Epoch: epoch, Status: fleet.NodeReady, Head: row, Applied: row}}
		}
		rows := func(epoch fleet.Epoch, row fleet.Seq) check.Effects {
			return check.Effects{Batches: []check.Batch{{
				Node: "n", Epoch: epoch, First: row, Applied: row, Status: fleet.NodeReady, Rows: []fleet.Transition{{Seq: row, BootID: "b", Kind: fleet.TransitionAgent}},
			}}}
		}
		restore := check.Fault{ID: 1, Kind: "restore", Effects: []check.Effect{check.Rewinds}}
		observe(check.Observation{Fault: &restore})
		ended := restore
		ended.End = true
		observe(check.Observation{Fault: &ended})
		applied("hub-1", 10, session(1, 5))
		applied("hub-2", 30, rows(2, 7)) // it begins behind what hub-1 has shown
		applied("hub-2", 31, check.Effects{Batches: rows(2, 8).Batches, Jobs: []check.JobChange{{Job: "key", Tag: "1"}}})
		observe(check.Observation{Operation: &check.Operation{Client: "c", Does: check.OpRegister, Job: "key", Tag: "1", Outcome: check.OutcomeOK, Call: at}})
		observe(check.Observation{Edge: &check.Edge{Name: "edge-1", NodeID: "n", Journal: &check.Journal{Last: 8, Acknowledged: 7}}})
		observe(check.Observation{Edge: &check.Edge{Name: "edge-1", NodeID: "n", Journal: &check.Journal{Last: 8, Acknowledged: 8}}})
		at += time.Minute // the others are slow
		applied("hub-1", 11, rows(1, 6))
		if !missing {
			applied("hub-1", 20, session(2, 6))
		}
		applied("hub-1", 30, rows(2, 7))
		applied("hub-2", 32, rows(2, 9))
		applied("hub-1", 31, rows(2, 8))
		applied("hub-1", 32, rows(2, 9))
		applied("hub-2", 33, rows(2, 10))
		if found := len(m.Violations()) > 0; found != missing {
			t.Errorf("%s: %v", name, m.Violations())
		}
	}
}
