package schedule

import (
	"context"
	"reflect"
	"slices"
	"time"
)

// shortenRun tries to cut off the end of the run: half of it as often as that still fails, then a
// quarter, and so on.
func (k *shrinker) shortenRun(ctx context.Context) {
	for part := time.Duration(2); part <= 16 && k.hasRunsLeft(ctx); part *= 2 {
		for k.hasRunsLeft(ctx) {
			s := k.best
			length := round(s.Length - s.Length/part)
			if length < time.Second || length == s.Length || !k.tryCandidate(ctx, s.truncatedAt(length)) {
				break
			}
		}
	}
}

// truncatedAt returns the schedule cut off at the time length. Later jobs, steps and faults are
// dropped; faults that last longer end then, or are dropped if that is too short for their kind.
func (s Schedule) truncatedAt(length time.Duration) Schedule {
	old := s.Length
	s.Length = length
	s.Jobs = slices.DeleteFunc(slices.Clone(s.Jobs), func(j Job) bool { return j.Start > length })
	s.Steps = slices.DeleteFunc(slices.Clone(s.Steps), func(step Step) bool { return step.At > length })
	s.Faults = slices.Clone(s.Faults)
	for i, f := range s.Faults {
		if f.For > 0 && f.End(old) > length {
			s.Faults[i].For = max(0, length-f.At)
		}
	}
	s.Faults = slices.DeleteFunc(s.Faults, func(f Fault) bool {
		info, _ := f.Kind.Info()
		return f.At > length || f.For < info.Shortest
	})
	return s
}

// keptIdleTime is the time without an event that closeIdleGaps leaves between two events.
const keptIdleTime = 30 * time.Second

// closeIdleGaps tries to remove the times in which nothing begins or ends: all of them at once,
// and if that no longer fails, one after the other.
func (k *shrinker) closeIdleGaps(ctx context.Context) {
	gaps := k.best.idleGaps()
	if len(gaps) == 0 {
		return
	}
	all := k.best
	for _, g := range slices.Backward(gaps) {
		all = all.withoutSpan(g)
	}
	if k.tryCandidate(ctx, all) {
		return
	}
	for _, g := range slices.Backward(gaps) {
		for size := g.Longest - g.Shortest; size > keptIdleTime && k.hasRunsLeft(ctx); size /= 2 {
			if k.tryCandidate(ctx, k.best.withoutSpan(Span{g.Longest - size, g.Longest})) {
				break
			}
		}
	}
}

// idleGaps returns the times between two events that closeIdleGaps may remove, in order: from
// keptIdleTime after an event to the next, if that is more than keptIdleTime.
func (s Schedule) idleGaps() []Span {
	events := []time.Duration{0, s.Length}
	for _, j := range s.Jobs {
		events = append(events, j.Start)
	}
	for _, step := range s.Steps {
		events = append(events, step.At)
	}
	for _, f := range s.Faults {
		events = append(events, f.At-f.Params.Age, f.At, f.End(s.Length))
	}
	for _, e := range s.Expect {
		events = append(events, min(e.Time, s.Length), min(e.Until, s.Length))
	}
	slices.Sort(events)
	var gaps []Span
	for i := 1; i < len(events); i++ {
		if events[i]-events[i-1] > 2*keptIdleTime {
			gaps = append(gaps, Span{events[i-1] + keptIdleTime, events[i]})
		}
	}
	return gaps
}

// withoutSpan returns the schedule without a span of time: later events are that much earlier,
// and faults that last over the span are that much shorter.
func (s Schedule) withoutSpan(gap Span) Schedule {
	less := gap.Longest - gap.Shortest
	moved := func(t time.Duration) time.Duration {
		if t >= gap.Longest {
			return t - less
		}
		return t
	}
	old := s.Length
	s.Jobs, s.Steps, s.Faults, s.Expect = slices.Clone(s.Jobs), slices.Clone(s.Steps), slices.Clone(s.Faults), slices.Clone(s.Expect)
	for i := range s.Jobs {
		s.Jobs[i].Start = moved(s.Jobs[i].Start)
	}
	for i := range s.Steps {
		s.Steps[i].At = moved(s.Steps[i].At)
	}
	for i, f := range s.Faults {
		s.Faults[i].At = moved(f.At)
		s.Faults[i].Params.Age = moved(f.At) - moved(f.At-f.Params.Age) // 0 but for a restored copy
		if f.For > 0 {
			s.Faults[i].For = moved(f.End(old)) - moved(f.At)
		}
	}
	for i, e := range s.Expect {
		s.Expect[i].Time, s.Expect[i].Until = moved(e.Time), moved(e.Until)
	}
	s.Length = moved(old)
	return s
}

// smallerFaults tries, for each fault, fewer targets, the default parameters and a shorter time.
func (k *shrinker) smallerFaults(ctx context.Context) {
	for i := 0; i < len(k.best.Faults) && k.hasRunsLeft(ctx); i++ {
		try := func(simpler func(f *Fault)) bool {
			s := k.best
			s.Faults = slices.Clone(s.Faults)
			if i < len(s.Faults) {
				simpler(&s.Faults[i])
			}
			return k.tryCandidate(ctx, s)
		}
		try(func(f *Fault) { f.Targets = f.Targets[:min(1, len(f.Targets))] })
		try(func(f *Fault) { f.Targets = f.Targets[min(1, len(f.Targets)):] })
		try(func(f *Fault) { f.Params = f.Kind.requiredParams(f.Params) })
		try(func(f *Fault) { info, _ := f.Kind.Info(); f.For = info.Shortest })
		for try(func(f *Fault) { f.For = round(f.For / 2) }) {
		}
	}
}

// requiredParams returns the parameters with only the Needed ones kept and defaults in the others.
func (k Kind) requiredParams(p Params) Params {
	info, _ := k.Info()
	var plain Params
	for _, param := range info.Params {
		if param.Needed {
			param.valueIn(&plain).Set(param.valueIn(&p))
		}
	}
	return k.Fill(plain)
}

// smallerJobs tries fewer allocations of each job, and jobs without the fields that are not
// needed: without all of them, then without one after the other.
func (k *shrinker) smallerJobs(ctx context.Context) {
	for i := 0; i < len(k.best.Jobs) && k.hasRunsLeft(ctx); i++ {
		try := func(simpler func(j *Job)) {
			s := k.best
			s.Jobs = slices.Clone(s.Jobs)
			simpler(&s.Jobs[i])
			k.tryCandidate(ctx, s)
		}
		try(func(j *Job) {
			*j = Job{ID: j.ID, Start: j.Start, Type: j.Type, Count: j.Count, HCL: j.HCL, Next: j.Next}
		})
		try(func(j *Job) { j.Count = min(j.Count, 1) })
		try(func(j *Job) { j.Task = Script{RunFor: j.Task.RunFor} })
		try(func(j *Job) { j.Rollout = Rollout{MaxParallel: j.Rollout.MaxParallel} })
		try(func(j *Job) { j.Rollout.WindowEvery, j.Rollout.WindowFor = 0, 0 })
		try(func(j *Job) { j.Rollout.Canary, j.Rollout.AutoPromote = 0, false })
		for _, field := range []func(j *Job) any{
			func(j *Job) any { return j }, func(j *Job) any { return &j.Rollout }, func(j *Job) any { return &j.Task },
		} {
			for n := range reflect.ValueOf(field(&Job{})).Elem().NumField() {
				try(func(j *Job) { reflect.ValueOf(field(j)).Elem().Field(n).SetZero() })
			}
		}
		try(func(j *Job) { j.Count /= 2 })
		try(func(j *Job) { j.Count-- })
	}
}
