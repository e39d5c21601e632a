package real

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/engine"
	"skerry/chaos/observe"
	"skerry/fleet"
)

// ParseRefusal is for the fuzz test of what is read of logs.
var ParseRefusal = parseRefusal

// Shorter is for the test of what a storm makes of drawn faults.
var Shorter = shorter

// Stalls is for the test of what a storm says of its machine.
type Stalls = stalls

func (s *stalls) Watch(ctx context.Context) { s.watchForStalls(ctx) }
func (s *stalls) Saw(late time.Duration)    { s.recordStall(late) }
func (s *stalls) Take() time.Duration       { return s.takeLongestStall() }

// Stalled is for the same test.
var Stalled = stalled

// CampaignJobs are all jobs of a storm, as they are registered first.
func CampaignJobs(hubs, edges int) (jobs []*fleet.Job) {
	s := &campaignRun{fleetRun: &fleetRun{starts: "starts"}, CampaignConfig: CampaignConfig{Hubs: hubs, Edges: edges}}
	s.work = newUserWorkload(s)
	for _, u := range s.work.jobs {
		jobs = append(jobs, s.work.buildJobSpec(u))
	}
	return jobs
}

// SingleHubWatcher is a storm's watch that hears one hub.
type SingleHubWatcher struct {
	tb   testing.TB
	path string
	w    *fleetWatcher
}

// NewSingleHubWatcher makes one of a hub that has told of nothing yet.
func NewSingleHubWatcher(tb testing.TB) *SingleHubWatcher {
	h := &SingleHubWatcher{tb: tb, path: filepath.Join(tb.TempDir(), "told"), w: &fleetWatcher{s: &campaignRun{fleetRun: &fleetRun{}}, Recorder: &engine.Recorder{Monitor: check.NewMonitor(campaignLimits), Clock: func() time.Duration { return 0 }}}}
	h.w.hubExports = []*observe.EntryReader{observe.NewEntryReader("hub-1", h.path)}
	return h
}

// ExportEntry has the hub tell of an entry, and the watch listen.
func (h *SingleHubWatcher) ExportEntry(index fleet.Index) {
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
	h.w.judgeAppliedEntries()
}

// MustHaveJudged fails unless the newest entry that is judged is this one.
func (h *SingleHubWatcher) MustHaveJudged(newest fleet.Index) {
	h.tb.Helper()
	if err := h.w.exportReadError(); err != nil || h.w.Monitor.Wants(newest) || !h.w.Monitor.Wants(newest+1) {
		h.tb.Errorf("entry %d is not the newest that is judged (%v)", newest, err)
	}
}

func (h *SingleHubWatcher) Hold()    { h.w.pauseAppliedEntries() }
func (h *SingleHubWatcher) Release() { h.w.resumeAppliedEntries() }
