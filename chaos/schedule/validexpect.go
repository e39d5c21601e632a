package schedule

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
)

// clientStatuses are the client statuses that an expectation of an allocation can name, and AllocHeld.
var clientStatuses = []string{
	fleet.ClientPending, fleet.ClientRunning, fleet.ClientComplete, fleet.ClientFailed, fleet.ClientLost, fleet.ClientUnknown, AllocHeld,
}

var nodeStatuses = []string{
	string(fleet.NodeInitializing), string(fleet.NodeReady), string(fleet.NodeDisconnected), string(fleet.NodeDown),
}

// refusals are the codes with which a hub or an edge refuses a session or a message.
var refusals = toStrings([]fleet.Code{
	fleet.CodeHeartbeatFirst, fleet.CodeStaleEpoch, fleet.CodeNodeNotReady, fleet.CodeForeignAlloc, fleet.CodeGap,
	fleet.CodeFork, fleet.CodeCloned, fleet.CodeStaleSession, fleet.CodeFrameTooLarge, fleet.CodeFrameBad,
	fleet.CodeUnavailable, fleet.CodeVersion, fleet.CodeRevoked, fleet.CodeCAEnded,
})

// subjectRules are the fields and values that an expectation of a subject may have.
type subjectRules struct {
	fields []string // the allowed fields, beside Subject, When and the fields of its time
	states []string // the allowed values of State; nil: it has no State
	whens  []When
}

var anyTime = []When{AtEnd, At, By, Always, Never}

// subjects are all subjects of expectations.
var subjects = []Subject{
	ExpectJob, ExpectAlloc, ExpectNode, ExpectEdge, ExpectReplaced, ExpectRestarted, ExpectRefused, ExpectQuiet, ExpectVoid,
}

var rulesOfSubjects = map[Subject]subjectRules{
	ExpectJob:       {[]string{"Job", "State", "Compare", "Count"}, clientStatuses, anyTime},
	ExpectAlloc:     {[]string{"Name", "State"}, append([]string{AllocKept, AllocReplaced, AllocStopped}, clientStatuses...), anyTime},
	ExpectNode:      {[]string{"Name", "State"}, nodeStatuses, anyTime},
	ExpectEdge:      {[]string{"Name", "Compare", "Count", "Job"}, nil, anyTime},
	ExpectReplaced:  {[]string{"Compare", "Count", "Job"}, nil, []When{AtEnd, At}},
	ExpectRestarted: {[]string{"Compare", "Count", "Job"}, nil, []When{AtEnd, At}},
	ExpectRefused:   {[]string{"State"}, refusals, []When{AtEnd, By, Never}},
	ExpectQuiet:     {[]string{"Within"}, nil, []When{AtEnd}},
	ExpectVoid:      {nil, nil, []When{Never}},
}

// fieldsOfWhens are the fields that a When needs.
var fieldsOfWhens = map[When][]string{At: {"Time"}, By: {"Time"}, Always: {"Time", "Until"}}

// allocName matches the name of an allocation, JOB.GROUP[INDEX].
var allocName = regexp.MustCompile(`^([A-Za-z0-9_.-]+)\.([A-Za-z0-9_-]+)\[([0-9]{1,5})\]$`)

// checkExpectations adds a problem for each mistake in an expectation.
func (s Schedule) checkExpectations(ps *Problems) {
	for i, e := range s.Expect {
		e.validateExpectation(ps, i, s)
	}
}

// validateExpectation adds a problem for each mistake in e, the expectation i of the schedule s.
func (e Expectation) validateExpectation(ps *Problems, i int, s Schedule) {
	rules, known := rulesOfSubjects[e.Subject]
	if !known {
		ps.addWithHint(PartExpect, i, "it is one of "+strings.Join(toStrings(subjects), ", "), "nothing can be expected about %q", e.Subject)
		return
	}
	if !slices.Contains([]Compare{Exactly, AtLeast, AtMost}, e.Compare) {
		ps.add(PartExpect, i, "%q instead of %q or %q", e.Compare, AtLeast, AtMost)
	}
	if rules.states != nil && !slices.Contains(rules.states, e.State) {
		ps.addWithHint(PartExpect, i, "it is one of "+strings.Join(rules.states, ", "), "%s cannot be %q", e.Subject, e.State)
	}
	if !e.hasOnlyFields(slices.Concat([]string{"Subject", "When"}, rules.fields, fieldsOfWhens[e.When])) {
		ps.add(PartExpect, i, "an expectation of %s has more set than it takes", e.Subject)
	}
	if _, there := s.Job(e.Job); e.Job != "" && !there {
		ps.add(PartExpect, i, "there is no job %q", e.Job)
	}
	if e.Count < 0 || e.Count > 1_000_000 {
		ps.add(PartExpect, i, "a count is 0 to 1000000, not %d", e.Count)
	}
	e.checkName(ps, i, s)
	e.checkWhen(ps, i, s)
}

// hasOnlyFields reports whether all fields that are not zero are among the names.
func (e Expectation) hasOnlyFields(names []string) bool {
	v := reflect.ValueOf(e)
	for _, field := range reflect.VisibleFields(v.Type()) {
		if !v.FieldByIndex(field.Index).IsZero() && !slices.Contains(names, field.Name) {
			return false
		}
	}
	return true
}

// checkName adds a problem if the job, allocation or edge of expectation i is missing or unknown.
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

// checkWhen adds problems of the times of expectation i.
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
	if !slices.Contains(rulesOfSubjects[e.Subject].whens, e.When) {
		ps.add(PartExpect, i, "%s cannot be expected %q", e.Subject, e.When)
	}
	switch {
	case e.Subject == ExpectQuiet && e.Within == 0:
		ps.addWithHint(PartExpect, i, "{about: quiet, within: 60s}", "quiet within what time?")
	case e.Subject == ExpectQuiet && e.Within > last-s.lastFaultEnd():
		ps.add(PartExpect, i, "the run is over %s after its last fault", formatDuration(last-s.lastFaultEnd()))
	}
}

// lastFaultEnd returns the time at which the last fault is over; 0: there are no faults.
func (s Schedule) lastFaultEnd() time.Duration {
	end := time.Duration(0)
	for _, f := range s.Faults {
		end = max(end, min(s.Length, f.End(s.Length)))
	}
	return end
}
