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
	what := r.nextWord("what is expected")
	e := Expectation{Subject: Subject(what.text)}
	usage, names := "", []string{}
	for _, s := range subjects {
		names = append(names, string(s.subject))
		if s.subject == e.Subject {
			usage = s.usage
		}
	}
	if usage == "" {
		r.failWithError(what, newUnknownError("expectation", what.text, names))
		return e
	}
	switch e.Subject {
	case ExpectJob:
		e.Job = fleet.JobID(r.nextLabel("the name of the job").text)
		e.State = r.nextState(e.Subject)
		e.readAmount(r)
	case ExpectAlloc, ExpectNode:
		e.Name = r.nextWord("the name").text
		e.State = r.nextState(e.Subject)
	case ExpectEdge:
		e.Name = r.nextWord("the name of the edge").text
		r.expectWord("runs")
		e.readAmount(r)
		e.readJob(r)
	case ExpectReplaced, ExpectRestarted:
		e.readAmount(r)
		e.readJob(r)
	case ExpectRefused:
		e.State = r.nextState(e.Subject)
	case ExpectQuiet:
		r.expectWord("within")
		e.Within = r.nextDuration("the time")
	}
	e.readWhen(r)
	r.expectEndOfLine(usage)
	return e
}

// nextState takes a state of the subject.
func (r *reader) nextState(of Subject) string {
	t := r.nextWord("the state")
	if !r.failed && !slices.Contains(subjectStates[of], t.text) {
		r.failWithError(t, newUnknownError("state of "+string(of), t.text, subjectStates[of]))
	}
	return t.text
}

func (e *Expectation) readAmount(r *reader) {
	if r.acceptWord("at") {
		t := r.nextWord("least or most")
		e.Compare = Compare("at " + t.text)
		if e.Compare != AtLeast && e.Compare != AtMost {
			r.failAtToken(t, "", "%q instead of least or most", t.text)
		}
	}
	e.Count = r.nextCount("the number", 1_000_000)
}

func (e *Expectation) readJob(r *reader) {
	if r.acceptWord("of") {
		e.Job = fleet.JobID(r.nextLabel("the name of the job").text)
	}
}

// supportedWhens are the times that a subject may be expected at.
func (s Subject) supportedWhens() []When {
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
	if r.isAtEnd() {
		return
	}
	t := r.words[0]
	switch {
	case r.acceptWord("at"):
		e.When, e.Time = At, r.nextDuration("the time")
	case r.acceptWord("by"):
		e.When, e.Time = By, r.nextDuration("the time")
	case r.acceptWord("from"):
		e.When, e.Time = Always, r.nextDuration("the first time")
		r.expectWord("to")
		e.Until = r.nextDuration("the last time")
	case r.acceptWord("never"):
		e.When = Never
	}
	if !slices.Contains(e.Subject.supportedWhens(), e.When) {
		r.failAtToken(t, "", "%s cannot be expected %q", e.Subject, t.text)
	}
}
