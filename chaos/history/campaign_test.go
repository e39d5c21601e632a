package history_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
)

func mustSummarize(tb testing.TB, records []history.Record) history.Run {
	tb.Helper()
	j, err := history.Judge(mustOpen(tb, mustWrite(tb, header, records)))
	if err != nil {
		tb.Fatal(err)
	}
	return j.Recorded
}

func TestSummarize(t *testing.T) {
	got := mustSummarize(t, everything())
	want := history.Run{
		Name: "one cut", Seed: 7, Clock: history.Virtual, Repeat: header.Repeat, Hubs: 1, Edges: 1,
		Outcome: history.Violated, Reasons: []string{"sequence"},
		Lasted: 92 * time.Second, Wall: time.Second,
		Records: uint64(len(everything())), Operations: 1, Refused: 1,
		Faults:     []history.FaultCount{{Fault: "cut", Times: 1, Hits: 41}},
		Violations: []history.ViolationCount{{Invariant: check.Sequence, Count: 2}},
		Sometimes:  []history.Sometimes{{Name: "session refused", Count: 1, Least: 1}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestARunThatNeverEndedIsBroken(t *testing.T) {
	got := mustSummarize(t, everything()[:10])
	if got.Outcome != history.Broken || !strings.Contains(strings.Join(got.Reasons, " "), "cut short") {
		t.Errorf("got %s, %q", got.Outcome, got.Reasons)
	}
}

func TestAFaultWithoutHitsIsCounted(t *testing.T) {
	got := mustSummarize(t, []history.Record{
		seen(1, check.Observation{Fault: &check.Fault{ID: 1, Kind: "cut"}}),
		seen(2, check.Observation{Fault: &check.Fault{ID: 2, Kind: "cut"}}),
		seen(3, check.Observation{Fault: &check.Fault{ID: 2, End: true}}),
		seen(4, check.Observation{Fault: &check.Fault{ID: 1, End: true, Hits: 3}}),
		seen(4, check.Observation{Fault: &check.Fault{ID: 77, End: true, Hits: 3}}), // never began
	})
	want := []history.FaultCount{{Fault: "cut", Times: 2, Hits: 3, Missed: 1}}
	if !slices.Equal(got.Faults, want) {
		t.Errorf("got %+v, want %+v", got.Faults, want)
	}
}

func campaign(runs ...history.Run) history.Campaign {
	return history.Campaign{Format: history.Format, Name: "sim", Cores: 2, Wall: time.Minute, Runs: runs}
}

func TestTotals(t *testing.T) {
	hour := history.Run{
		Clock: history.Virtual, Outcome: history.Pass, Lasted: time.Hour, Wall: 2 * time.Second, Records: 10, Operations: 3, Refused: 1,
		Faults:    []history.FaultCount{{Fault: "cut", Times: 2, Hits: 9}, {Fault: "clone", Times: 1, Missed: 1}},
		Sometimes: []history.Sometimes{{Name: "replaced", Count: 2}, {Name: "orphan"}},
	}
	void := hour
	void.Outcome, void.Clock, void.Sometimes = history.Void, history.Real, nil
	c := campaign(hour, void)
	c.Expected, c.Branches = []string{"cut", "clone", "restore"}, []string{"replaced", "settled"}
	got := c.Totals()
	want := history.Totals{
		Histories: 2, Outcomes: map[history.Outcome]int{history.Pass: 1, history.Void: 1},
		Virtual: time.Hour, Real: time.Hour, Work: 4 * time.Second, Records: 20, Operations: 6, Refused: 2, Times: 6,
		Faults: []history.FaultTotal{
			{FaultCount: history.FaultCount{Fault: "clone", Times: 2, Missed: 2}},
			{FaultCount: history.FaultCount{Fault: "cut", Times: 4, Hits: 18}, Runs: 2},
			{FaultCount: history.FaultCount{Fault: "restore"}},
		},
		Sometimes: []history.SometimesTotal{{Name: "orphan"}, {Name: "replaced", Count: 2, Runs: 1}, {Name: "settled"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	short := []string{"fault clone never hit", "fault restore never hit", "never reached: settled"}
	if got := c.Shortcomings(); !slices.Equal(got, short) {
		t.Errorf("got %q, want %q", got, short)
	}
}

func TestACampaignThatIsNoPass(t *testing.T) {
	pass, bad, void := history.Run{Outcome: history.Pass}, history.Run{Outcome: history.Violated}, history.Run{Outcome: history.Void}
	for name, c := range map[string]struct {
		runs []history.Run
		is   history.Outcome
		want []string
	}{
		"nothing ran":     {nil, history.Void, []string{"no run passed"}},
		"all passed":      {[]history.Run{pass}, history.Pass, nil},
		"one was void":    {[]history.Run{pass, void}, history.Pass, nil},
		"all were void":   {[]history.Run{void}, history.Void, []string{"no run passed"}},
		"one was bad":     {[]history.Run{pass, bad}, history.Violated, []string{"violation: 1 run"}},
		"one never ended": {[]history.Run{pass, {Outcome: history.Broken}, {Outcome: history.Broken}}, history.Broken, []string{"broken: 2 runs"}},
	} {
		if got := campaign(c.runs...).Outcome(); got != c.is {
			t.Errorf("%s: got %s, want %s", name, got, c.is)
		}
		if got := campaign(c.runs...).Shortcomings(); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestCampaignFile(t *testing.T) {
	c := campaign(mustSummarize(t, everything()))
	c.Versions, c.Expected = map[string]string{"go": "go1.26"}, []string{"cut"}
	var b bytes.Buffer
	if err := c.Write(&b); err != nil {
		t.Fatal(err)
	}
	var got history.Campaign
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("got %v, %+v, want %+v", err, got, c)
	}
}
