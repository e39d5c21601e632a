package virtual_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/events"
	"skerry/hub/state"
)

// listener reads a hub's event stream.
type listener struct {
	mu     sync.Mutex
	lines  [][]byte
	cancel context.CancelFunc
	ended  chan error
}

func (l *listener) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !bytes.Equal(b, []byte("{}\n")) {
		l.lines = append(l.lines, bytes.Clone(b))
	}
	return len(b), nil
}

// mustListen streams what a state has from an index on.
func mustListen(t *testing.T, s *state.Store, from fleet.Index) *listener {
	t.Helper()
	req, err := events.NewRequest(nil, "*", from)
	if err != nil {
		t.Fatal(err)
	}
	streams := events.New(s)
	after, err := streams.Position(req)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &listener{cancel: cancel, ended: make(chan error, 1)}
	go func() { l.ended <- streams.Stream(ctx, req, after, l) }()
	return l
}

// stopStream ends the stream, and returns its lines and the last index.
func (l *listener) stopStream(t *testing.T) ([][]byte, fleet.Index) {
	t.Helper()
	synctest.Wait()
	l.cancel()
	if err := <-l.ended; err != nil {
		t.Fatal(err)
	}
	if len(l.lines) == 0 {
		t.Fatal("a stream without events")
	}
	var last api.EventBatch
	if err := json.Unmarshal(l.lines[len(l.lines)-1], &last); err != nil {
		t.Fatal(err)
	}
	return l.lines, last.Index
}

// mustRan counts the allocations of each job that a stream's lines say to run. How
// many lines that takes depends on how many updates shared an entry.
func mustRan(t *testing.T, lines [][]byte) map[fleet.JobID]int {
	t.Helper()
	running := map[fleet.AllocID]fleet.JobID{}
	for _, line := range lines {
		var batch api.EventBatch
		if err := json.Unmarshal(line, &batch); err != nil {
			t.Fatal(err)
		}
		for _, e := range batch.Events {
			if a := e.Payload.Allocation; a != nil && a.ClientStatus == fleet.ClientRunning {
				running[a.ID] = a.JobID
			}
		}
	}
	ran := map[fleet.JobID]int{}
	for _, job := range running {
		ran[job]++
	}
	return ran
}

// TestEventsGoOnAtAnotherHub has a client that follows one hub, loses it with the
// leader, and goes on at another: what it has is what a third hub tells from the
// beginning, and what the first one tells once it has started again from its disk.
func TestEventsGoOnAtAnotherHub(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 3, "edge-a", "edge-b")
		defer mustClose(t, c)
		leader := lead(t, c)
		first := mustListen(t, leader.State(), 1)
		mustRun(t, c, service("web", 6))
		had, last := first.stopStream(t)
		mustFailOver(t, c)
		mustCome(t, c, time.Minute, "the new leader has what the client saw", func(v *state.View) bool { return v.Index() >= last })
		second := mustListen(t, lead(t, c).State(), last+1)
		mustRun(t, c, service("shop", 4))
		mustCome(t, c, 5*time.Minute, "both are rolled out", func(v *state.View) bool {
			for d := range v.Deployments(fleet.DefaultNamespace, "") {
				if d.Active() {
					return false
				}
			}
			return true
		})
		time.Sleep(time.Minute) // every hub has what there is
		more, end := second.stopStream(t)
		had = append(had, more...)
		if ran := mustRan(t, had); end <= last || ran["web"] != 6 || ran["shop"] != 4 {
			t.Fatalf("up to %d and then up to %d, the client saw run: %v", last, end, ran)
		}
		for _, h := range c.Hubs {
			whole, _ := mustListen(t, h.State(), 1).stopStream(t)
			if len(whole) > len(had) {
				whole = whole[:len(had)] // something went on meanwhile
			}
			if !slices.EqualFunc(whole, had, bytes.Equal) {
				t.Errorf("hub %s tells another story: %d lines, the client has %d", h.Name, len(whole), len(had))
			}
		}
	})
}
