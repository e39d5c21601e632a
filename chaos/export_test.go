package chaos

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/observe"
	"skerry/fleet"
)

// ParseRefusal is for the fuzz test of what is read of logs.
var ParseRefusal = parseRefusal

// Shorter is for the test of what a storm makes of drawn faults.
var Shorter = shorter

// Stalls is for the test of what a storm says of its machine.
type Stalls = stalls

func (s *stalls) Watch(ctx context.Context) { s.watch(ctx) }
func (s *stalls) Saw(late time.Duration)    { s.saw(late) }
func (s *stalls) Take() time.Duration       { return s.take() }

// Stalled is for the same test.
var Stalled = stalled

// StormJobs are all jobs of a storm, as they are registered first.
func StormJobs(hubs, edges int) (jobs []*fleet.Job) {
	s := &storm{stage: &stage{starts: "starts"}, Forecast: Forecast{Hubs: hubs, Edges: edges}}
	s.work = newWork(s)
	for _, u := range s.work.jobs {
		jobs = append(jobs, s.work.spec(u))
	}
	return jobs
}

// Hearing is a storm's watch that hears one hub.
type Hearing struct {
	tb   testing.TB
	path string
	w    *watch
}

// NewHearing makes one of a hub that has told of nothing yet.
func NewHearing(tb testing.TB) *Hearing {
	h := &Hearing{tb: tb, path: filepath.Join(tb.TempDir(), "told"), w: &watch{s: &storm{stage: &stage{}}, monitor: check.NewMonitor(stormLimits)}}
	h.w.told = []*observe.Told{observe.NewTold("hub-1", h.path)}
	return h
}

// Tell has the hub tell of an entry, and the watch listen.
func (h *Hearing) Tell(index fleet.Index) {
	h.tb.Helper()
	line, err := json.Marshal(check.Applied{Hub: "hub-1", Index: index, Effects: &check.Effects{}})
	if err != nil {
		h.tb.Fatal(err)
	}
	f, err := os.OpenFile(h.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		h.tb.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil {
		h.tb.Fatal(err)
	}
	h.w.entries()
}

// Want fails unless the newest entry that is judged is this one.
func (h *Hearing) Want(newest fleet.Index) {
	h.tb.Helper()
	if err := h.w.unheard(); err != nil || h.w.monitor.Wants(newest) || !h.w.monitor.Wants(newest+1) {
		h.tb.Errorf("entry %d is not the newest that is judged (%v)", newest, err)
	}
}

func (h *Hearing) Hold()    { h.w.hold() }
func (h *Hearing) Release() { h.w.release() }
