package check

import (
	"fmt"
	"slices"
	"strings"
)

// usages compares what is in use in quiet moments: late in a run it must not be
// more than early in it.
type usages struct{ by map[string]*usageFact }

// usageFact is what was in use first, and last.
type usageFact struct {
	first, last []Usage
	told        map[string]bool
}

// samples is how many quiet samples make a beginning, and an end. The least of
// each count: a moment may be less quiet than it seemed.
const samples = 3

func newUsages() checker {
	t := &usages{by: map[string]*usageFact{}}
	return checker{state: t, usage: t.judgeUsage}
}

func (t *usages) judgeUsage(s *runContext, sample *Usage) {
	if !sample.Quiet {
		return
	}
	u := t.by[sample.Who]
	if u == nil {
		u = &usageFact{told: map[string]bool{}}
		t.by[sample.Who] = u
	}
	if len(u.first) < samples {
		u.first = append(u.first, *sample)
		return
	}
	u.last = append(u.last, *sample)
	if len(u.last) > samples {
		u.last = u.last[1:]
	}
	if len(u.last) == samples {
		u.judgeUsageGrowth(s, sample.Who)
	}
}

func (u *usageFact) judgeUsageGrowth(s *runContext, who string) {
	for _, m := range []struct {
		what  string
		of    func(Usage) int64
		slack int64
	}{
		{"goroutines", func(u Usage) int64 { return int64(u.Goroutines) }, int64(s.limits.Goroutines)},
		{"bytes of heap", func(u Usage) int64 { return u.HeapBytes }, s.limits.HeapBytes},
		{"files", func(u Usage) int64 { return int64(u.Files) }, int64(s.limits.Files)},
	} {
		first, last := least(u.first, m.of), least(u.last, m.of)
		if first == 0 || last == 0 {
			continue // not known
		}
		s.countJudgement(NoLeak)
		bound := int64(float64(first)*s.limits.Growth) + m.slack
		if last <= bound || u.told[m.what] {
			continue
		}
		u.told[m.what] = true
		s.reportWithEvidence(NoLeak, who, []string{"at first: " + list(u.first, m.of), "of late: " + list(u.last, m.of)},
			"%d %s are in use in quiet moments, at first it was %d", last, m.what, first)
	}
}

func least(us []Usage, of func(Usage) int64) int64 {
	values := make([]int64, len(us))
	for i, u := range us {
		values[i] = of(u)
	}
	return slices.Min(values)
}

func list(us []Usage, of func(Usage) int64) string {
	var parts []string
	for _, u := range us {
		parts = append(parts, fmt.Sprint(of(u)))
	}
	return strings.Join(parts, ", ")
}
