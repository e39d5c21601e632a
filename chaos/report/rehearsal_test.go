package report_test

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/chaos/report"
	"skerry/fleet"
)

const minute = time.Minute

func windowsInMinutes(minutes ...time.Duration) []report.Window {
	var ws []report.Window
	for i := 0; i < len(minutes); i += 2 {
		ws = append(ws, report.Window{From: minutes[i] * minute, To: minutes[i+1] * minute})
	}
	return ws
}

func TestFate(t *testing.T) {
	type alloc = report.RehearsedAlloc
	for name, c := range map[string]struct {
		allocs      []alloc
		fate        report.Fate
		down, twice time.Duration // in minutes
		story       string
	}{
		"never started":     {[]alloc{{}}, report.NeverStarted, 0, 0, ""},
		"ran through":       {[]alloc{{ID: "a", Ran: windowsInMinutes(1, 60)}}, report.KeptRunning, 0, 0, ""},
		"ran unseen":        {[]alloc{{ID: "a", Ran: windowsInMinutes(1, 60), Unseen: windowsInMinutes(10, 20)}}, report.KeptRunning, 0, 0, ""},
		"unseen at the end": {[]alloc{{ID: "a", Ran: windowsInMinutes(1, 60), Unseen: windowsInMinutes(10, 60)}}, report.StillOut, 0, 0, ""},
		"rebooted":          {[]alloc{{ID: "a", Ran: windowsInMinutes(1, 20, 22, 60)}}, report.Interrupted, 2, 0, ""},
		"down at the end":   {[]alloc{{ID: "a", Ran: windowsInMinutes(1, 20)}}, report.DownAtEnd, 40, 0, ""},
		"complete":          {[]alloc{{ID: "a", Ran: windowsInMinutes(1, 20), End: "complete", Ended: 21 * minute}}, report.Completed, 0, 0, ""},
		"stopped":           {[]alloc{{ID: "a", Ran: windowsInMinutes(1, 20), End: "stopped", Ended: 21 * minute}}, report.Stopped, 0, 0, "stopped at 21m"},
		"failed":            {[]alloc{{ID: "a", Ran: windowsInMinutes(1, 20), End: "failed", Ended: 21 * minute}}, report.Failed, 40, 0, "failed at 21m"},
		"lost, and running": {[]alloc{{ID: "a", Ran: windowsInMinutes(1, 60), End: "lost", Ended: 21 * minute}}, report.Lost, 0, 0, "lost at 21m"},
		"replaced": {[]alloc{
			{ID: "a", Edge: "e1", Ran: windowsInMinutes(1, 20), End: "lost", Ended: 25 * minute},
			{ID: "b", Edge: "e2", Replaces: "a", Placed: 25 * minute, Ran: windowsInMinutes(26, 60)},
		}, report.WasReplaced, 6, 0, "lost at 25m; on e2 from 25m"},
		"replaced while it ran, and back": {[]alloc{
			{ID: "a", Edge: "e1", Ran: windowsInMinutes(1, 60)},
			{ID: "b", Edge: "e2", Replaces: "a", Placed: 25 * minute, Ran: windowsInMinutes(26, 40), End: "stopped", Ended: 41 * minute},
		}, report.CameBack, 0, 14, "on e2 25m to 41m"},
		"stopped and registered again": {[]alloc{
			{ID: "a", Edge: "e1", Ran: windowsInMinutes(1, 20), End: "stopped", Ended: 21 * minute},
			{ID: "b", Edge: "e2", Placed: 40 * minute, Ran: windowsInMinutes(41, 60)},
		}, report.WasReplaced, 0, 0, "stopped at 21m; on e2 from 40m"},
		"three at once": {[]alloc{
			{ID: "a", Ran: windowsInMinutes(0, 30), End: "lost", Ended: 30 * minute},
			{ID: "b", Replaces: "a", Ran: windowsInMinutes(10, 40), End: "lost", Ended: 40 * minute},
			{ID: "c", Replaces: "b", Ran: windowsInMinutes(20, 60)},
		}, report.WasReplaced, 0, 30, ""},
	} {
		p := report.RehearsedPlace{Name: "web.main[0]", Allocs: c.allocs}
		if got := p.Fate(60 * minute); got != c.fate {
			t.Errorf("%s: fate %q, want %q", name, got, c.fate)
		}
		if got := p.Down(60 * minute); got != c.down*minute {
			t.Errorf("%s: down for %s, want %d min", name, got, c.down)
		}
		if got := p.Twice(); got != c.twice*minute {
			t.Errorf("%s: twice for %s, want %d min", name, got, c.twice)
		}
		if got := p.Story(); got != c.story && c.story != "" {
			t.Errorf("%s: story %q, want %q", name, got, c.story)
		}
	}
}

// rehearsalHistory is the history of a job of three on five edges, of which one loses its
// link for long enough to be replaced, and another one reboots.
func rehearsalHistory(tb testing.TB) []byte {
	s := newSample(1, 3, 5, 3*time.Hour)
	s.generateHistory(0, 0)
	var ids []fleet.AllocID
	for i := range 3 {
		ids = append(ids, s.placeSampleAlloc(10*time.Second, s.edges[i], "shop", ""))
	}
	s.faults = 10
	s.addObservation(2*time.Hour, check.Observation{Fault: &check.Fault{ID: 11, Kind: "cut", Targets: []string{"edge-3"}, Effects: []check.Effect{check.Severs}}})
	s.setNodeStatus(2*time.Hour+20*time.Second, "edge-3", fleet.NodeDisconnected)
	s.setClientStatus(2*time.Hour+20*time.Second, ids[2], fleet.ClientUnknown)
	replacement := s.placeSampleAlloc(2*time.Hour+10*minute, "edge-5", "shop", ids[2])
	s.addObservation(2*time.Hour+45*minute, check.Observation{Fault: &check.Fault{ID: 11, End: true, Hits: 300}})
	s.setClientStatus(2*time.Hour+45*minute+9*time.Second, ids[2], fleet.ClientRunning)
	s.stopAlloc(2*time.Hour+45*minute+10*time.Second, "edge-5", replacement)
	s.addObservation(minute, check.Observation{Process: &check.Process{Name: "edge-2", Edge: true, What: check.ProcessReboot}})
	s.addObservation(minute, check.Observation{Task: &check.Task{Edge: "edge-2", Alloc: ids[1], Task: "main", What: check.TaskVanished}})
	s.addObservation(minute+3*time.Second, check.Observation{Process: &check.Process{Name: "edge-2", Edge: true, What: check.ProcessStart}})
	s.addObservation(minute+3200*time.Millisecond, check.Observation{Task: &check.Task{Edge: "edge-2", Alloc: ids[1], Task: "main", What: check.TaskStarted}})
	return s.concludeRun(history.Pass).encodeHistory(tb)
}

func TestRehearse(t *testing.T) {
	r, err := report.Rehearse(mustOpen(t, rehearsalHistory(t)))
	if err != nil {
		t.Fatal(err)
	}
	var text, page bytes.Buffer
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	golden(t, "rehearsal.txt", text.String())
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	goldenPage(t, "rehearsal.html", page.String())
	mustFit(t, text.String())
}

// mustFit checks that a text fits on a terminal.
func mustFit(tb testing.TB, text string) {
	tb.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			tb.Errorf("a line of %d characters: %s", n, line)
		}
	}
}

func TestALongRehearsalFits(t *testing.T) {
	r := report.Rehearsal{Name: strings.Repeat("long ", 40), Lasted: time.Hour, Edges: []string{"e"}, Outcome: history.Void, Reasons: []string{strings.Repeat("x", 300)}}
	for i := range 100 {
		r.Places = append(r.Places, report.RehearsedPlace{Name: strings.Repeat("n", i), Allocs: []report.RehearsedAlloc{
			{ID: "a", Edge: strings.Repeat("e", i), Ran: windowsInMinutes(0, 20), End: "lost", Ended: 20 * minute},
			{ID: "b", Edge: strings.Repeat("f", i), Replaces: "a", Placed: 21 * minute, Ran: windowsInMinutes(30, 60)},
		}})
		r.Faults = append(r.Faults, report.RehearsedFault{What: strings.Repeat("w", i), On: []string{strings.Repeat("e", i)}, To: minute})
	}
	var b bytes.Buffer
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	mustFit(t, b.String())
}

func TestAnEmptyRehearsal(t *testing.T) {
	var b bytes.Buffer
	r := report.Rehearsal{Outcome: history.Broken}
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
}
