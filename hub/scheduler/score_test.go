package scheduler

import (
	"fmt"
	"math"
	"testing"

	"skerry/fleet"
)

func near(a, b float64) bool { return math.Abs(a-b) < 0.0015 }

func TestFit(t *testing.T) {
	t.Run("B83", func(t *testing.T) {
		free := fleet.Resources{CPU: 4096, MemoryMB: 8192}
		for _, c := range []struct {
			used fleet.Resources
			want float64
		}{{free, 18}, {fleet.Resources{}, 0}, {fleet.Resources{CPU: 2048, MemoryMB: 4096}, 13.675}} {
			binpack := binpackScore(c.used, free) * fitScale
			if !near(binpack, c.want) || !near(fitScale-binpack, 18-c.want) {
				t.Errorf("%+v: %v, want %v", c.used, binpack, c.want)
			}
		}
	})
	t.Run("B62", func(t *testing.T) {
		if got := antiAffinityScore(2, 4); !near(got, -0.75) {
			t.Errorf("%v", got)
		}
	})
}

func TestSpreadBoost(t *testing.T) {
	spread := func(percent map[string]int, count int) *spreadScorer {
		s := fleet.Spread{Attribute: "${node.datacenter}", Weight: 100}
		for v, p := range percent {
			s.SpreadTarget = append(s.SpreadTarget, fleet.SpreadTarget{Value: v, Percent: p})
		}
		return newSpreadScorers(&fleet.Job{Spreads: []fleet.Spread{s}}, &fleet.TaskGroup{Count: count})[0]
	}
	t.Run("B58", func(t *testing.T) {
		s := spread(map[string]int{"dc1": 80}, 10)
		s.counts["dc1"] = 2 // and the third is the one to be placed
		if a, b := s.boostForValue("dc1", true), s.boostForValue("dc2", true); !near(a, 0.625) || !near(b, 0.5) {
			t.Errorf("dc1 %v, dc2 %v", a, b)
		}
		s.counts["dc1"] = 7
		if a, b := s.boostForValue("dc1", true), s.boostForValue("dc2", true); !near(a, 0) || !near(b, 0.5) {
			t.Errorf("dc1 %v, dc2 %v", a, b)
		}
		if got := s.boostForValue("", false); got != -1 {
			t.Errorf("without the attribute: %v", got)
		}
	})
	t.Run("B59", func(t *testing.T) {
		for _, c := range []struct{ counts, want []float64 }{
			{[]float64{0, 0}, []float64{0, 0}}, {[]float64{2, 0}, []float64{-1, 1}},
			{[]float64{2, 3}, []float64{0.5, -0.5}}, {[]float64{3, 3, 0}, []float64{-1, -1, 1}},
		} {
			s := spread(nil, 10)
			for i, n := range c.counts {
				s.counts[fmt.Sprintf("dc%d", i)] = int(n)
			}
			for i := range c.counts {
				if got := s.boostForValue(fmt.Sprintf("dc%d", i), true); !near(got, c.want[i]) {
					t.Errorf("%v: dc%d %v, want %v", c.counts, i, got, c.want[i])
				}
			}
		}
	})
	t.Run("no room in the targets", func(t *testing.T) {
		if got := spread(map[string]int{"dc1": 100}, 10).boostForValue("dc2", true); got != -1 {
			t.Errorf("%v", got)
		}
	})
}

func TestAffinityScore(t *testing.T) {
	t.Run("B61", func(t *testing.T) {
		wish := func(attr string, weight int) fleet.Affinity {
			return fleet.Affinity{LTarget: "${meta." + attr + "}", Operand: "=", RTarget: "1", Weight: weight}
		}
		l, err := newAffinityScorer(&fleet.Job{Affinities: []fleet.Affinity{wish("a", 100), wish("b", -100)}},
			&fleet.TaskGroup{Affinities: []fleet.Affinity{wish("c", 50)}, Tasks: []fleet.Task{{Affinities: []fleet.Affinity{wish("d", 50)}}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			has  []string
			want float64
		}{{[]string{"a", "c"}, 0.5}, {[]string{"b"}, -1.0 / 3}, {[]string{"b", "c"}, -1.0 / 6}, {[]string{"a"}, 1.0 / 3}, {nil, 0}} {
			n := &fleet.Node{Meta: map[string]string{}}
			for _, attr := range c.has {
				n.Meta[attr] = "1"
			}
			if got := l.affinityScore(n); !near(got, c.want) {
				t.Errorf("%v: %v, want %v", c.has, got, c.want)
			}
		}
	})
}
