package main

import (
	"strings"
	"testing"
	"time"

	"skerry/chaos/report"
)

// answer is one place that is replaced; the arguments are what a real run may differ in.
func answer(replacement string, lost time.Duration) *report.Rehearsal {
	window := func(from, to time.Duration) report.Window { return report.Window{From: from, To: to} }
	return &report.Rehearsal{Lasted: time.Hour, Places: []report.RehearsedPlace{{
		Name: "prices.api[2]", Job: "prices", Allocs: []report.RehearsedAlloc{
			{
				ID: "a", Edge: "edge-3", Ran: []report.Window{window(time.Second, 40*time.Minute)},
				Showed: []report.ShownStatus{{Status: "unknown", Window: window(10*time.Minute, lost)}},
				End:    "stopped", Ended: 40 * time.Minute,
			},
			{ID: "b", Edge: replacement, Replaces: "a", Placed: 11 * time.Minute, Ran: []report.Window{window(11*time.Minute, time.Hour)}},
		},
	}}}
}

func TestCompare(t *testing.T) {
	rehearsed := answer("edge-4", 15*time.Minute)
	if c := compareRehearsals(rehearsed, answer("edge-4", 15*time.Minute+8*time.Second), 10*time.Second); len(c.differingLines()) > 0 || len(c.Lines) != 8 {
		t.Errorf("within the tolerance: %v of %d", c.differingLines(), len(c.Lines))
	}
	for name, r := range map[string]struct {
		real  *report.Rehearsal
		apart string
	}{
		"another edge": {answer("edge-5", 15*time.Minute), "prices.api on edge-4, in place of edge-3's is placed: rehearsed 11m0s, really –"},
		"too late":     {answer("edge-4", 16*time.Minute), "prices.api on edge-3 is shown as unknown: rehearsed until 15m0s, really until 16m0s"},
		"nothing":      {&report.Rehearsal{Lasted: time.Hour}, "prices.api on edge-3 becomes: rehearsed replaced, really –"},
	} {
		apart := compareRehearsals(rehearsed, r.real, 10*time.Second).differingLines()
		if len(apart) == 0 || apart[0].String() != r.apart {
			t.Errorf("%s: %v, want %s", name, apart, r.apart)
		}
	}
	kept := answer("edge-4", 15*time.Minute)
	kept.Places[0].Allocs = kept.Places[0].Allocs[:1]
	if apart := compareRehearsals(kept, rehearsed, time.Hour).differingLines(); len(apart) != 3 {
		t.Errorf("a replacement that was not rehearsed: %v", apart) // the fate, and two facts of the other one
	}
	var b strings.Builder
	if err := compareRehearsals(rehearsed, rehearsed, 0).writeTable(&b); err != nil || strings.Contains(b.String(), "NO") {
		t.Errorf("print: %v\n%s", err, b.String())
	}
}
