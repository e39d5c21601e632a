package schedule

import (
	"slices"

	"skerry/fleet"
)

// subjects are what an expectation begins with, and how each is written.
var subjects = []struct {
	subject Subject
	usage   string
}{
	{ExpectJob, "expect job shop running 5 at 10m"},
	{ExpectAlloc, "expect alloc shop.main[0] kept"},
	{ExpectNode, "expect node edge-3 disconnected by 3m"},
	{ExpectEdge, "expect edge edge-3 runs 2 of shop from 5m to 30m"},
	{ExpectReplaced, "expect replaced 0 of shop"},
	{ExpectRestarted, "expect restarted at most 2"},
	{ExpectRefused, "expect refused cloned by 10m"},
	{ExpectQuiet, "expect quiet within 60s"},
	{ExpectVoid, "expect void never"},
}

// readExpectation reads what follows `expect`.
func readExpectation(r *reader) Expectation {
	what := r.next("what is expected")
	e := Expectation{Subject: Subject(what.text)}
	usage, names := "", []string{}
	for _, s := range subjects {
		names = append(names, string(s.subject))
		if s.subject == e.Subject {
			usage = s.usage
		}
	}
	if usage == "" {
		r.failWith(what, unknown("expectation", what.text, names))
		return e
	}
	switch e.Subject {
	case ExpectJob:
		e.Job = fleet.JobID(r.label("the name of the job").text)
		e.State = r.state(e.Subject)
		e.readAmount(r)
	case ExpectAlloc, ExpectNode:
		e.Name = r.next("the name").text
		e.State = r.state(e.Subject)
	case ExpectEdge:
		e.Name = r.next("the name of the edge").text
		r.want("runs")
		e.readAmount(r)
		e.readJob(r)
	case ExpectReplaced, ExpectRestarted:
		e.readAmount(r)
		e.readJob(r)
	case ExpectRefused:
		e.State = r.state(e.Subject)
	case ExpectQuiet:
		r.want("within")
		e.Within = r.duration("the time")
	}
	e.readWhen(r)
	r.close(usage)
	return e
}

// state takes a state of the subject.
func (r *reader) state(of Subject) string {
	t := r.next("the state")
	if !r.failed && !slices.Contains(states[of], t.text) {
		r.failWith(t, unknown("state of "+string(of), t.text, states[of]))
	}
	return t.text
}

func (e *Expectation) readAmount(r *reader) {
	if r.take("at") {
		t := r.next("least or most")
		e.Compare = Compare("at " + t.text)
		if e.Compare != AtLeast && e.Compare != AtMost {
			r.fail(t, "", "%q instead of least or most", t.text)
		}
	}
	e.Count = r.count("the number", 1_000_000)
}

func (e *Expectation) readJob(r *reader) {
	if r.take("of") {
		e.Job = fleet.JobID(r.label("the name of the job").text)
	}
}

// whens are the times that a subject may be expected at.
func (s Subject) whens() []When {
	switch s {
	case ExpectQuiet:
		return []When{AtEnd}
	case ExpectVoid:
		return []When{Never}
	case ExpectRefused:
		return []When{AtEnd, By, Never}
	case ExpectReplaced, ExpectRestarted:
		return []When{AtEnd, At}
	}
	return []When{AtEnd, At, By, Always, Never}
}

func (e *Expectation) readWhen(r *reader) {
	if r.done() {
		return
	}
	t := r.words[0]
	switch {
	case r.take("at"):
		e.When, e.Time = At, r.duration("the time")
	case r.take("by"):
		e.When, e.Time = By, r.duration("the time")
	case r.take("from"):
		e.When, e.Time = Always, r.duration("the first time")
		r.want("to")
		e.Until = r.duration("the last time")
	case r.take("never"):
		e.When = Never
	}
	if !slices.Contains(e.Subject.whens(), e.When) {
		r.fail(t, "", "%s cannot be expected %q", e.Subject, t.text)
	}
}
