package real_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry/chaos/faultnet"
	"skerry/chaos/real"
	"skerry/fleet"
)

// TestPlacement places a large job, and checks the printed summary, the table, and that a limit that is exceeded fails the
// run after everything is printed.
func TestPlacement(t *testing.T) {
	t.Parallel()
	g, _ := mustGround(t)
	var said bytes.Buffer
	g.Net, g.Out = faultnet.NewPlain(), &said
	table := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := os.WriteFile(table, []byte("<!-- placement-10-2000 -->\n<!-- /placement-10-2000 -->\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := real.Placement{Ground: g, Hubs: 1, Edges: 10, CPU: 2000, Count: 150, ReadyWithin: time.Hour, PlacedWithin: time.Nanosecond, Table: table}
	err := p.Run(t.Context())
	if !errors.Is(err, real.ErrViolated) || !strings.Contains(err.Error(), "150 allocations placed: ") || strings.Contains(err.Error(), "ready") {
		t.Errorf("one limit of two is exceeded: %v", err)
	}
	for _, want := range []string{"edges joined together, all ready", "(at most 3600.00 s)", "150 allocations placed", "all seen running by the hubs", "the fullest has 20"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, said.String())
		}
	}
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(string(text), " s | "); rows != 5 || !strings.Contains(string(text), "| allocations on the fullest edge | 20 | - |") {
		t.Errorf("the table has %d durations, want 5, and the fullest edge:\n%s", rows, text)
	}
	p.Count = 201
	if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "have room for 200") {
		t.Errorf("more than fits: %v", err)
	}
}

// TestPlacementRefuses: sizes and limits that make no sense are refused before anything starts.
func TestPlacementRefuses(t *testing.T) {
	for want, change := range map[string]func(*real.Placement){
		"at least one hub": func(p *real.Placement) { p.Hubs = 0 },
		"do not fit":       func(p *real.Placement) { p.Count = 21 },
		"not negative":     func(p *real.Placement) { p.ReadyWithin = -time.Second },
		"0 is none":        func(p *real.Placement) { p.PlacedWithin = -time.Second },
	} {
		p := real.Placement{Hubs: 1, Edges: 1, CPU: 2000, Count: 20}
		p.Out = new(bytes.Buffer)
		change(&p)
		if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestEndOfPlacement: a job is placed when the first of its evaluations has ended that leaves nothing queued.
func TestEndOfPlacement(t *testing.T) {
	eval := func(status string, second int64, queued int, blocked fleet.EvalID) fleet.Evaluation {
		return fleet.Evaluation{
			ID: "e", Status: status, BlockedEval: blocked, ModifyTime: time.Unix(second, 0).UnixNano(), QueuedAllocations: map[string]int{"main": queued},
		}
	}
	all, later := eval(fleet.EvalComplete, 10, 0, ""), eval(fleet.EvalComplete, 20, 0, "")
	for name, tt := range map[string]struct {
		evals []fleet.Evaluation
		end   int64 // 0: none
	}{
		"none":                    {nil, 0},
		"one":                     {[]fleet.Evaluation{all}, 10},
		"one of the health later": {[]fleet.Evaluation{later, all}, 10},
		"in another order":        {[]fleet.Evaluation{all, later}, 10},
		"pending":                 {[]fleet.Evaluation{eval(fleet.EvalPending, 10, 0, "")}, 0},
		"failed":                  {[]fleet.Evaluation{eval(fleet.EvalFailed, 9, 0, ""), later}, 20},
		"canceled":                {[]fleet.Evaluation{eval(fleet.EvalCanceled, 9, 0, ""), all}, 10},
		"some are left":           {[]fleet.Evaluation{eval(fleet.EvalComplete, 9, 3, ""), later}, 20},
		"another one is blocked":  {[]fleet.Evaluation{eval(fleet.EvalComplete, 9, 0, "b"), eval(fleet.EvalBlocked, 9, 3, "")}, 0},
	} {
		if end := real.EndOfPlacement(tt.evals); end.IsZero() != (tt.end == 0) || tt.end > 0 && end.Unix() != tt.end {
			t.Errorf("%s: %s, want second %d", name, end, tt.end)
		}
	}
}
