package check

import (
	"fmt"
	"maps"
	"time"
)

// Traffic is how much happened in a run.
type Traffic struct {
	Length     time.Duration
	Entries    uint64 // of the log, each counted once
	Rows       uint64 // of journals, applied
	Sessions   uint64
	Tasks      uint64 // starts and ends
	Operations uint64 // of clients, with a known outcome
	Unknown    uint64 // of clients, without one
	// Faults are by kind.
	Faults map[string]FaultHits
}

// FaultHits is how often a kind of fault was tried, and how often it did something.
type FaultHits struct{ Times, Hits uint64 }

// Thin says below what a run proves nothing. Zero fields have defaults; negative
// ones ask for nothing.
type Thin struct {
	Rows       float64 // an hour. 0: 20
	Sessions   float64 // an hour. 0: 2
	Operations float64 // an hour. 0: 60
	// Unknown is the share of operations that may have no known outcome. 0: a half.
	Unknown float64
	// Judged are the invariants of which the run has to say something.
	Judged []Invariant
}

func (t *Traffic) countObservation(s *runContext, o *Observation) {
	t.Length = s.now
	switch {
	case o.Applied != nil && o.Applied.Effects != nil:
		t.Entries++
		for _, k := range s.newRows {
			t.Rows += uint64(len(k.rows))
		}
		if o.Applied.Effects.Opened != nil {
			t.Sessions++
		}
	case o.Task != nil:
		t.Tasks++
	case o.Operation != nil && o.Operation.Outcome == OutcomeUnknown:
		t.Unknown++
	case o.Operation != nil:
		t.Operations++
	case o.Fault != nil:
		t.countFault(o.Fault)
	}
}

func (t *Traffic) countFault(f *Fault) {
	hits := t.Faults[f.Kind]
	if f.End {
		hits.Hits += f.Hits
	} else {
		hits.Times++
	}
	t.Faults[f.Kind] = hits
}

// Traffic is how much happened so far.
func (m *Monitor) Traffic() Traffic {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.traffic
	t.Faults = maps.Clone(t.Faults)
	return t
}

// Void are the reasons why a run without a violation is no pass: it was too thin,
// something that was to happen never did, or the search for an explanation of what
// clients were told came to nothing. None: it is a pass.
func (m *Monitor) Void(thin Thin) []string {
	t := m.Traffic()
	why := thin.missingTraffic(t)
	for _, kind := range sorted(t.Faults) {
		if f := t.Faults[kind]; f.Hits == 0 {
			why = append(why, fmt.Sprintf("fault %s never hit, in %d tries", kind, f.Times))
		}
	}
	judged := map[Invariant]uint64{}
	for _, v := range m.Verdicts() {
		judged[v.Invariant] = v.Judged
		if v.Undecided > 0 {
			why = append(why, fmt.Sprintf("%s could not be decided, %d times", v.Invariant, v.Undecided))
		}
	}
	for _, i := range thin.Judged {
		if judged[i] == 0 {
			why = append(why, fmt.Sprintf("%s was never judged", i))
		}
	}
	return why
}

func (thin Thin) missingTraffic(t Traffic) []string {
	var why []string
	for _, least := range []struct {
		what   string
		have   uint64
		hourly float64
	}{
		{"journal rows", t.Rows, or(thin.Rows, 20)},
		{"sessions", t.Sessions, or(thin.Sessions, 2)},
		{"clients' operations", t.Operations, or(thin.Operations, 60)},
	} {
		if want := least.hourly * t.Length.Hours(); float64(least.have) < want {
			why = append(why, fmt.Sprintf("%d %s in %s, at least %.0f are needed", least.have, least.what, t.Length.Round(time.Second), want))
		}
	}
	if all := t.Operations + t.Unknown; thin.Unknown >= 0 && float64(t.Unknown) > or(thin.Unknown, 0.5)*float64(all) {
		why = append(why, fmt.Sprintf("%d of %d clients' operations have no known outcome", t.Unknown, all))
	}
	return why
}
