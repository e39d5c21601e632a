package check

import (
	"fmt"
	"time"

	"skerry/fleet"
)

// keptViolations bounds how many violations of one invariant are kept; the others
// are counted.
const keptViolations = 20

// scene is what the taps know in common.
type scene struct {
	limits  Limits
	now     time.Duration // newest observation
	ticked  time.Duration
	told    fleet.Index // newest entry whose effects are known
	weather weather
	fleet   cast
	tally   tally

	found  []Violation
	broken map[Invariant]uint64
	judged map[Invariant]uint64
}

func newScene(limits Limits) *scene {
	return &scene{
		limits: limits, weather: newWeather(), fleet: newCast(), tally: tally{},
		broken: map[Invariant]uint64{}, judged: map[Invariant]uint64{},
	}
}

// learn takes over what an observation says of the fleet, before taps see it.
func (s *scene) learn(o *Observation) {
	s.now = max(s.now, o.At)
	switch {
	case o.Fault != nil:
		s.weather.take(o.Fault, s.now)
	case o.Applied != nil:
		if o.Applied.Effects != nil && o.Applied.Index <= s.told {
			o.Applied.Effects = nil // another hub was first
		}
		if e := o.Applied.Effects; e != nil {
			s.told = o.Applied.Index
			s.fleet.plan(e, s.now)
		}
	case o.Hub != nil:
		s.fleet.hub(o.Hub, s.now)
	case o.Edge != nil:
		s.fleet.names[o.Edge.NodeID] = o.Edge.Name
	case o.Job != nil:
		s.fleet.job(o.Job, s.now)
	}
}

// forget lets go of what no tap will ask for again.
func (s *scene) forget() { s.fleet.forget(s.now) }

// judge counts a look at an invariant.
func (s *scene) judge(i Invariant) { s.judged[i]++ }

// broke notes a violation.
func (s *scene) broke(i Invariant, where string, format string, args ...any) {
	s.add(Violation{Invariant: i, At: s.now, Where: where, Message: fmt.Sprintf(format, args...)})
}

// shown is broke with lines that show it.
func (s *scene) shown(i Invariant, where string, evidence []string, format string, args ...any) {
	if len(evidence) > maxEvidence {
		evidence = evidence[len(evidence)-maxEvidence:]
	}
	s.add(Violation{Invariant: i, At: s.now, Where: where, Message: fmt.Sprintf(format, args...), Evidence: evidence})
}

func (s *scene) add(v Violation) {
	s.broken[v.Invariant]++
	if s.broken[v.Invariant] <= keptViolations {
		s.found = append(s.found, v)
	}
}
