package engine_test

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/engine"
	"skerry/chaos/history"
	"skerry/fleet"
)

// TestHistoryIsJudgedAsTheRunWas: what many goroutines observe is in the history in the order and with the times in which it
// was judged, with the end of the run. The clock goes on with each look at it.
func TestHistoryIsJudgedAsTheRunWas(t *testing.T) {
	var text bytes.Buffer
	w, err := history.NewWriter(&text, history.Header{Name: "run", Clock: history.Virtual})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	now := time.Duration(0)
	r := &engine.Recorder{Monitor: check.NewMonitor(check.Limits{}), History: w, Clock: func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		now += time.Second
		return now
	}}
	var observers sync.WaitGroup
	var index atomic.Uint64
	for _, edge := range []string{"edge-1", "edge-2", "edge-3"} {
		node := fleet.NodeID(edge)
		r.Observe(check.Observation{Process: &check.Process{Name: edge, Edge: true, What: check.ProcessStart, Boot: "b"}})
		observers.Go(func() {
			for range 50 { // a node is given up some seconds after an answer: too early where it is less than 7
				r.Observe(check.Observation{Edge: &check.Edge{Name: edge, NodeID: node, Link: &check.Link{Connected: true, Session: 1, Away: time.Millisecond}}})
				r.Note(edge, "another record")
				r.Observe(check.Observation{Applied: &check.Applied{
					Hub: "hub-1", Index: fleet.Index(index.Add(1)), Term: 1, Kind: "node_status", Command: "c", Result: "r",
					Effects: &check.Effects{Moved: []check.Moved{{Node: node, Status: fleet.NodeDisconnected}}},
				}})
			}
		})
	}
	observers.Wait()
	r.JudgeQuiet(check.FleetSnapshot{})
	r.JudgeEnd(check.FleetSnapshot{})
	r.WriteVerdicts()
	r.Write(history.Record{End: &history.End{Outcome: history.Pass}})
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	read, err := history.NewReader(&text)
	if err != nil {
		t.Fatal(err)
	}
	j, err := history.Judge(read)
	if err != nil || j.CutShort {
		t.Fatal(j.CutShort, err)
	}
	same := func(a, b check.Violation) bool {
		return a.Invariant == b.Invariant && a.At == b.At && a.Where == b.Where && a.Message == b.Message
	}
	if len(j.Before) == 0 || !slices.EqualFunc(j.Found, j.Before, same) || !slices.Equal(j.Verdicts, r.Monitor.Verdicts()) {
		t.Errorf("the run found\n%v, judged again\n%v", j.Before, j.Found)
	}
}
