package schedule_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"skerry/chaos/schedule"
)

// requirements is a dumb cause of failures: some kinds of fault, and a count of jobs.
type requirements struct {
	kinds []schedule.Kind
	jobs  int
}

func (n requirements) isPresentIn(s schedule.Schedule) bool {
	for _, kind := range n.kinds {
		if !slices.ContainsFunc(s.Faults, func(f schedule.Fault) bool { return f.Kind == kind }) {
			return false
		}
	}
	return len(s.Jobs) >= n.jobs
}

// TestShrinkKeepsWhatFails draws a cause, and checks that what is left is nothing but
// it, is valid, and fails.
func TestShrinkKeepsWhatFails(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedule.Draw(rapid.Uint64().Draw(t, "seed"), schedule.Shape{Length: 30 * time.Minute, Jobs: 3})
		var present []schedule.Kind
		for _, f := range s.Faults {
			if !slices.Contains(present, f.Kind) {
				present = append(present, f.Kind)
			}
		}
		cause := requirements{
			kinds: rapid.SliceOfNDistinct(rapid.SampledFrom(present), 0, 3, rapid.ID[schedule.Kind]).Draw(t, "kinds"),
			jobs:  rapid.IntRange(0, 2).Draw(t, "jobs"),
		}
		if !cause.isPresentIn(s) {
			t.Fatalf("the first one does not fail: %+v\n%s", cause, s)
		}
		left := schedule.Shrink(context.Background(), s, schedule.Shrinking{
			Fails: func(_ context.Context, s schedule.Schedule) bool {
				if err := s.Validate().Err(); err != nil {
					t.Fatalf("asked to run what is not valid: %v\n%s", err, s)
				}
				return cause.isPresentIn(s)
			},
			Runs: 2000, Tries: 1,
		})
		if !cause.isPresentIn(left) || left.Validate().Err() != nil {
			t.Fatalf("what is left does not fail or is not valid:\n%s", left)
		}
		if len(left.Faults) != len(cause.kinds) || len(left.Jobs) != cause.jobs || len(left.Steps) != 0 || len(left.Expect) != 0 {
			t.Fatalf("cause %+v, and this is left:\n%s", cause, left)
		}
		if n := len(left.Topology.Edges); n > max(1, len(cause.kinds)) {
			t.Fatalf("%d edges are left for %v:\n%s", n, cause.kinds, left)
		}
		if left.Length > 10*time.Minute {
			t.Fatalf("%s are left:\n%s", left.Length, left)
		}
		for _, f := range left.Faults {
			if len(f.Targets) > 1 {
				t.Fatalf("%s has more than one target", f)
			}
		}
	})
}

// TestShrinkOfFlakyFailures has failures that come in half of the runs alone.
func TestShrinkOfFlakyFailures(t *testing.T) {
	s := schedule.Draw(7, schedule.Shape{})
	rng := rand.New(rand.NewPCG(1, 1))
	cause := requirements{kinds: []schedule.Kind{s.Faults[3].Kind}, jobs: 1}
	left := schedule.Shrink(context.Background(), s, schedule.Shrinking{
		Fails: func(_ context.Context, s schedule.Schedule) bool { return cause.isPresentIn(s) && rng.IntN(2) == 0 },
		Runs:  1000,
		Tries: 6,
	})
	if !cause.isPresentIn(left) || len(left.Faults) != 1 || len(left.Jobs) != 1 {
		t.Errorf("this is left:\n%s", left)
	}
}

func TestShrinkEndsInTime(t *testing.T) {
	s := schedule.Draw(7, schedule.Shape{})
	runs := 0
	always := func(context.Context, schedule.Schedule) bool { runs++; return true }
	schedule.Shrink(context.Background(), s, schedule.Shrinking{Fails: always, Runs: 5})
	if runs != 5 {
		t.Errorf("%d runs instead of 5", runs)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	left := schedule.Shrink(ctx, s, schedule.Shrinking{Fails: always})
	if runs != 5 || left.String() != s.String() {
		t.Errorf("%d runs after the end, and this is left:\n%s", runs-5, left)
	}
	runs = 0
	left = schedule.Shrink(context.Background(), s, schedule.Shrinking{Fails: always})
	if len(left.Faults)+len(left.Jobs)+len(left.Steps) > 0 || len(left.Topology.Hubs) != 1 || left.Length > time.Minute {
		t.Errorf("of what always fails is left:\n%s", left)
	}
	never := func(context.Context, schedule.Schedule) bool { return false }
	if left = schedule.Shrink(context.Background(), s, schedule.Shrinking{Fails: never, Runs: 5000}); left.String() != s.String() {
		t.Errorf("of what never fails again is left:\n%s", left)
	}
}

// TestShrinkRenamesEdges checks that edges keep their part when those before them are
// left out.
func TestShrinkRenamesEdges(t *testing.T) {
	s := mustParse(t, `length: 20m
hubs: 3
edges:
  - {count: 2}
  - {count: 1, cpu: 777}
  - {count: 3, site: ship}
jobs:
  - {id: shop, type: service, count: 1, site: ship}
faults:
  - {at: 5m, kind: cut, targets: [edge-1, edge-3], for: 5m}
  - {at: 12m, kind: edge-kill, targets: [ship]}
expect:
  - {about: node, name: edge-3, state: disconnected, when: by, time: 7m}
  - {about: node, name: edge-2, state: ready}
`)
	left := schedule.Shrink(context.Background(), s, schedule.Shrinking{Tries: 1, Fails: func(_ context.Context, s schedule.Schedule) bool {
		return slices.ContainsFunc(s.Expect, func(e schedule.Expectation) bool {
			edge, known := s.Topology.Edge(e.Name)
			return known && edge.CPU == 777 && e.State == "disconnected" &&
				slices.ContainsFunc(s.Faults, func(f schedule.Fault) bool { return slices.Contains(s.Topology.EdgesOf(f), e.Name) })
		})
	}})
	const want = `  - {count: 1, cpu: 777}
faults:
  - {at: 30s, kind: cut, targets: [edge-1], for: 1s, way: both}
expect:
  - {about: node, name: edge-1, state: disconnected, when: by, time: 2m30s}
`
	if text := left.String(); !strings.HasSuffix(text, want) {
		t.Errorf("this is left:\n%s\nwant at its end:\n%s", text, want)
	}
}
