package history_test

import (
	"slices"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/fleet"
)

// observed has the observations of a run in which two entries bring three rows of an edge. The second entry says that
// its first row has the number again: 3 is sound.
func observed(again fleet.Seq) []check.Observation {
	batch := func(index fleet.Index, first, applied fleet.Seq, rows ...fleet.Transition) check.Observation {
		return check.Observation{Applied: &check.Applied{
			Hub: "hub-1", Index: index, Term: 2, Kind: "alloc_updates", Command: "c", Result: "r",
			Effects: &check.Effects{Batches: []check.Batch{{Node: "n1", Epoch: 1, First: first, Rows: rows, Applied: applied, Status: fleet.NodeReady}}},
		}}
	}
	row := func(seq fleet.Seq) fleet.Transition {
		return fleet.Transition{Seq: seq, BootID: "b1", Kind: fleet.TransitionTask, Mono: time.Duration(seq) * time.Second}
	}
	return []check.Observation{
		{Process: &check.Process{Name: "hub-1", What: check.ProcessStart}},
		{Process: &check.Process{Name: "edge-1", Edge: true, What: check.ProcessStart, Boot: "b1"}},
		{Applied: &check.Applied{Hub: "hub-1", Index: 5, Term: 2, Kind: "session_open", Command: "c", Result: "r", Effects: &check.Effects{
			Opened: &check.Opened{Node: "n1", Session: 1, Boot: "b1", Hub: "hub-1", Epoch: 1, Status: fleet.NodeReady},
		}}},
		batch(6, 1, 2, row(1), row(2)),
		batch(7, again, 3, row(3)),
	}
}

// TestJudgingAgainComesToTheSame has a Monitor judge a run while it is written, and
// then its history.
func TestJudgingAgainComesToTheSame(t *testing.T) {
	for name, c := range map[string]struct {
		again  fleet.Seq
		broken bool
	}{"a sound run": {3, false}, "a gap that is glued over": {4, true}} {
		m := check.NewMonitor(check.Limits{})
		var records []history.Record
		for i, o := range observed(c.again) {
			o.At = time.Duration(i) * time.Second
			records = append(records, history.Record{Observation: o})
			for _, v := range m.Observe(o) {
				records = append(records, at(o.At, history.Record{Violation: &v}))
			}
		}
		for _, v := range m.Verdicts() {
			records = append(records, at(time.Minute, history.Record{Verdict: &v}))
		}
		outcome := history.Pass
		if len(m.Violations()) > 0 {
			outcome = history.Violated
		}
		if (outcome == history.Violated) != c.broken {
			t.Fatalf("%s: the run's monitor found %v", name, m.Violations())
		}
		records = append(records, at(time.Minute, history.Record{End: &history.End{Outcome: outcome}}))
		j, err := history.Judge(mustOpen(t, mustWrite(t, header, records)))
		if err != nil {
			t.Fatal(err)
		}
		if d := j.Differs(); len(d) > 0 || len(j.Found) != len(m.Violations()) || !slices.Equal(j.Verdicts, m.Verdicts()) {
			t.Errorf("%s: judged again it differs: %v, %v instead of %v", name, d, j.Found, m.Violations())
		}
		if len(j.Before) != len(j.Found) || j.CutShort || j.Recorded.Outcome != outcome {
			t.Errorf("%s: what was recorded: %+v", name, j)
		}
	}
}

// TestJudgesByTheLimitsOfTheRun: a node is given up 5 s after its last answered heartbeat. A run judges that by the TTL of its
// edges, and so does who judges its history: real processes send a heartbeat each second, also in histories that do not say it.
func TestJudgesByTheLimitsOfTheRun(t *testing.T) {
	second := check.Limits{TTL: time.Second}
	for name, c := range map[string]struct {
		clock  history.Clock
		limits check.Limits
		broken int
	}{
		"real":                 {history.Real, second, 0},
		"real, of old":         {history.Real, check.Limits{}, 0},
		"real, another TTL":    {history.Real, check.Limits{TTL: 30 * time.Second}, 1},
		"virtual":              {history.Virtual, second, 0},
		"virtual, the default": {history.Virtual, check.Limits{}, 1},
	} {
		h := header
		h.Clock, h.Limits = c.clock, c.limits
		moved := check.Effects{Moved: []check.Moved{{Node: "n1", Epoch: 1, Newest: 1, Status: fleet.NodeDisconnected}}}
		j, err := history.Judge(mustOpen(t, mustWrite(t, h, []history.Record{
			seen(time.Second, check.Observation{Process: &check.Process{Name: "edge-1", Edge: true, What: check.ProcessStart, Boot: "b1"}}),
			seen(10*time.Second, check.Observation{Edge: &check.Edge{Name: "edge-1", NodeID: "n1", Link: &check.Link{Connected: true, Session: 1, Away: time.Millisecond}}}),
			seen(15*time.Second, check.Observation{Applied: &check.Applied{Hub: "hub-1", Index: 5, Term: 2, Kind: "node_status", Command: "c", Result: "r", Effects: &moved}}),
			at(16*time.Second, end),
		})))
		if err != nil || len(j.Found) != c.broken || c.broken > 0 && j.Found[0].Invariant != check.TrustedTime {
			t.Errorf("%s: found %v, %v", name, j.Found, err)
		}
	}
}

func TestADifferentJudgementIsTold(t *testing.T) {
	records := []history.Record{
		at(1, history.Record{Verdict: &check.Verdict{Invariant: check.Sequence, Judged: 3, Broken: 1}}),
		at(1, end),
	}
	j, err := history.Judge(mustOpen(t, mustWrite(t, header, records)))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"sequence: broken 0 times now, once then"}
	if got := j.Differs(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestJudgingWhatWasCutShort(t *testing.T) {
	j, err := history.Judge(mustOpen(t, mustWrite(t, header, everything()[:6])))
	if err != nil || !j.CutShort || j.Recorded.Outcome != history.Broken {
		t.Errorf("got %v, %+v", err, j)
	}
	if _, err := history.Judge(mustOpen(t, append(mustWrite(t, header, nil), "{}\n"...))); err == nil {
		t.Error("a damaged history was judged")
	}
}
