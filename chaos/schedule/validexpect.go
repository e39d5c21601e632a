package schedule

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
)

// clientStatuses are what an allocation can be expected to be.
var clientStatuses = []string{
	fleet.ClientPending, fleet.ClientRunning, fleet.ClientComplete, fleet.ClientFailed, fleet.ClientLost, fleet.ClientUnknown,
}

var nodeStatuses = []string{
	string(fleet.NodeInitializing), string(fleet.NodeReady), string(fleet.NodeDisconnected), string(fleet.NodeDown),
}

// refusals are the codes that a session or a message can be refused with.
var refusals = toStrings([]fleet.Code{
	fleet.CodeHeartbeatFirst, fleet.CodeStaleEpoch, fleet.CodeNodeNotReady, fleet.CodeForeignAlloc, fleet.CodeGap,
	fleet.CodeFork, fleet.CodeCloned, fleet.CodeStaleSession, fleet.CodeFrameTooLarge, fleet.CodeFrameBad,
	fleet.CodeUnavailable, fleet.CodeVersion,
})

// subjectStates are what State may be, by subject; those that are absent have none.
var subjectStates = map[Subject][]string{
	ExpectJob:     clientStatuses,
	ExpectAlloc:   append([]string{AllocKept, AllocReplaced, AllocStopped}, clientStatuses...),
	ExpectNode:    nodeStatuses,
	ExpectRefused: refusals,
}

// allocName is JOB.GROUP[INDEX].
var allocName = regexp.MustCompile(`^([A-Za-z0-9_.-]+)\.([A-Za-z0-9_-]+)\[([0-9]{1,5})\]$`)

func (s Schedule) checkExpectations(ps *Problems) {
	for i, e := range s.Expect {
		e.validateExpectation(ps, i, s)
	}
}

// subjects are all that an expectation can be about.
var subjects = []Subject{
	ExpectJob, ExpectAlloc, ExpectNode, ExpectEdge, ExpectReplaced, ExpectRestarted, ExpectRefused, ExpectQuiet, ExpectVoid,
}

func (e Expectation) validateExpectation(ps *Problems, i int, s Schedule) {
	if !slices.Contains(subjects, e.Subject) {
		ps.addWithHint(PartExpect, i, "it is one of "+strings.Join(toStrings(subjects), ", "), "nothing can be expected about %q", e.Subject)
		return
	}
	if !slices.Contains([]Compare{Exactly, AtLeast, AtMost}, e.Compare) {
		ps.add(PartExpect, i, "%q instead of %q or %q", e.Compare, AtLeast, AtMost)
	}
	if list := subjectStates[e.Subject]; len(list) > 0 && !slices.Contains(list, e.State) {
		ps.addWithHint(PartExpect, i, "it is one of "+strings.Join(list, ", "), "%s cannot be %q", e.Subject, e.State)
	}
	if !e.hasOnlySubjectFields() {
		ps.add(PartExpect, i, "an expectation of %s has more set than it takes", e.Subject)
	}
	if _, known := s.Job(e.Job); e.Job != "" && !known {
		ps.add(PartExpect, i, "there is no job %q", e.Job)
	}
	if e.Count < 0 || e.Count > 1_000_000 {
		ps.add(PartExpect, i, "a count is 0 to 1000000, not %d", e.Count)
	}
	e.checkName(ps, i, s)
	e.checkWhen(ps, i, s)
}

// hasOnlySubjectFields reports whether only fields are set that the subject and its time have.
func (e Expectation) hasOnlySubjectFields() bool {
	only := Expectation{Subject: e.Subject, When: e.When}
	switch e.Subject {
	case ExpectJob:
		only.Job, only.State, only.Compare, only.Count = e.Job, e.State, e.Compare, e.Count
	case ExpectAlloc, ExpectNode:
		only.Name, only.State = e.Name, e.State
	case ExpectEdge:
		only.Name, only.Compare, only.Count, only.Job = e.Name, e.Compare, e.Count, e.Job
	case ExpectReplaced, ExpectRestarted:
		only.Compare, only.Count, only.Job = e.Compare, e.Count, e.Job
	case ExpectRefused:
		only.State = e.State
	case ExpectQuiet:
		only.Within = e.Within
	}
	switch e.When {
	case At, By:
		only.Time = e.Time
	case Always:
		only.Time, only.Until = e.Time, e.Until
	}
	return e == only
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

func (e Expectation) checkName(ps *Problems, i int, s Schedule) {
	switch e.Subject {
	case ExpectJob:
		if e.Job == "" {
			ps.add(PartExpect, i, "which job?")
		}
	case ExpectAlloc:
		m := allocName.FindStringSubmatch(e.Name)
		if m == nil {
			ps.addWithHint(PartExpect, i, "JOB.GROUP[INDEX], such as shop."+GroupName+"[0]", "%q is not the name of an allocation", e.Name)
			return
		}
		j, known := s.Job(fleet.JobID(m[1]))
		if !known {
			ps.add(PartExpect, i, "there is no job %q", m[1])
			return
		}
		if spec, err := j.Spec(); err == nil && spec.Group(m[2]) == nil {
			ps.add(PartExpect, i, "job %s has no group %q", j.ID, m[2])
		}
	case ExpectNode, ExpectEdge:
		if _, known := s.Topology.Edge(e.Name); !known {
			ps.addWithHint(PartExpect, i, s.Topology.targetNamesHint(AtEdge), "there is no edge %q", e.Name)
		}
	}
}

func (e Expectation) checkWhen(ps *Problems, i int, s Schedule) {
	last := s.Length + s.Settle
	switch {
	case e.Time < 0 || e.Until < 0 || e.Within < 0:
		ps.add(PartExpect, i, "a time may not be negative")
	case e.Time > last || e.Until > last:
		ps.add(PartExpect, i, "the run, with settling, is over at %s", formatDuration(last))
	case e.When == Always && e.Until < e.Time:
		ps.add(PartExpect, i, "it begins at %s and ends before, at %s", formatDuration(e.Time), formatDuration(e.Until))
	}
	if !slices.Contains(e.Subject.supportedWhens(), e.When) {
		ps.add(PartExpect, i, "%s cannot be expected %q", e.Subject, e.When)
	}
	switch {
	case e.Subject == ExpectQuiet && e.Within == 0:
		ps.addWithHint(PartExpect, i, "{about: quiet, within: 60s}", "quiet within what time?")
	case e.Subject == ExpectQuiet && e.Within > last-s.lastFaultEnd():
		ps.add(PartExpect, i, "the run is over %s after its last fault", formatDuration(last-s.lastFaultEnd()))
	}
}

// lastFaultEnd is when the last fault is over.
func (s Schedule) lastFaultEnd() time.Duration {
	end := time.Duration(0)
	for _, f := range s.Faults {
		end = max(end, min(s.Length, f.End(s.Length)))
	}
	return end
}
