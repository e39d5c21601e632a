package check

import (
	"fmt"
	"slices"
	"strings"
)

// usages compares the resource usage of processes in quiet moments: late in a run it must not exceed the usage at the
// beginning by more than Limits.Growth.
type usages struct{ by map[string]*usageFact }

// usageFact has the first and the last quiet samples of one process.
type usageFact struct {
	first, last []Usage
	told        map[string]bool // resources that were reported
}

// samples is the number of quiet samples that are compared at the beginning and at the end. The smallest of each
// counts, because a moment may only seem quiet.
const samples = 3

// newUsages returns the checker of the resources that processes use.
func newUsages() checker {
	t := &usages{by: map[string]*usageFact{}}
	return checker{state: t, usage: t.judgeUsage}
}

// judgeUsage adds a quiet sample to the first or last samples of its process, and compares the two once both
// are complete.
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

// judgeUsageGrowth reports, once each, goroutines, bytes of heap and files that grew beyond their limit.
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
		first, last := leastValue(u.first, m.of), leastValue(u.last, m.of)
		if first == 0 || last == 0 {
			continue // not known
		}
		s.countJudgement(NoLeak)
		bound := int64(float64(first)*s.limits.Growth) + m.slack
		if last <= bound || u.told[m.what] {
			continue
		}
		u.told[m.what] = true
		s.reportWithEvidence(NoLeak, who, []string{"at first: " + formatValues(u.first, m.of), "at last: " + formatValues(u.last, m.of)},
			"%d %s are in use in quiet moments, at first it was %d", last, m.what, first)
	}
}

// leastValue returns the smallest value of a resource in the samples.
func leastValue(us []Usage, of func(Usage) int64) int64 {
	values := make([]int64, len(us))
	for i, u := range us {
		values[i] = of(u)
	}
	return slices.Min(values)
}

// formatValues shows the values of a resource in the samples, separated by commas.
func formatValues(us []Usage, of func(Usage) int64) string {
	var parts []string
	for _, u := range us {
		parts = append(parts, fmt.Sprint(of(u)))
	}
	return strings.Join(parts, ", ")
}
