package check

import (
	"fmt"
	"time"

	"skerry/fleet"
)

// keptViolations bounds how many violations of one invariant are kept; the others
// are counted.
const keptViolations = 20

// forgetEvery is how often what is over is looked for.
const forgetEvery = 5 * time.Minute

// scene is what the taps know in common.
type scene struct {
	limits  Limits
	now     time.Duration // newest observation
	ticked  time.Duration
	forgot  time.Duration
	told    fleet.Index // newest entry whose effects are known
	entries bool        // somebody tells of entries; where nobody does, journals have to do
	weather weather
	fleet   cast
	truth   *machines
	tally   tally
	taken   []taken // rows that the observation applied for the first time
	log     ledger
	decided time.Duration // when what the observation tells was first known: now, unless it is a replay

	found  []Violation
	broken map[Invariant]uint64
	judged map[Invariant]uint64
	// undecided counts looks that came to nothing.
	undecided map[Invariant]uint64
}

func newScene(limits Limits) *scene {
	return &scene{
		limits: limits, weather: newWeather(), fleet: newCast(), truth: newMachines(), tally: tally{}, log: newLedger(),
		broken: map[Invariant]uint64{}, judged: map[Invariant]uint64{}, undecided: map[Invariant]uint64{},
	}
}

// learn takes over what an observation says of the fleet, before taps see it. It
// completes the observation, and takes out of it what is no news.
func (s *scene) learn(o *Observation) {
	s.now = max(s.now, o.At)
	s.decided = s.now
	if s.weather.rewinding() { // what hubs show is between two pasts
		o.Applied, o.Hub = nil, nil
	}
	switch {
	case o.Fault != nil:
		o.Fault = s.weather.take(o.Fault, s.now)
		if o.Fault.rewinds() {
			s.told = 0
			s.fleet.rewind()
		}
	case o.Applied != nil:
		s.entry(o)
	case o.Hub != nil:
		s.weather.hubs[o.Hub.Name] = true
		s.fleet.hub(o.Hub, s.told, s.now)
	case o.Edge != nil && o.Edge.NodeID != "":
		s.fleet.edge(o.Edge.NodeID, o.Edge.Name)
	case o.Process != nil:
		s.weather.process(o.Process, s.now)
	case o.Job != nil:
		s.fleet.job(o.Job, s.now)
	}
	s.truth.learn(s, o)
}

// entry takes over an entry's effects, of the hub that tells of them first.
func (s *scene) entry(o *Observation) {
	s.weather.hubs[o.Applied.Hub] = true
	if o.Applied.Effects == nil {
		return
	}
	if o.Applied.Index <= s.told {
		told := *o.Applied
		told.Effects = nil
		o.Applied = &told
		return
	}
	if s.told == 0 { // hubs that were put back show what they have before it, each of another age
		s.fleet.outdate()
	}
	s.told, s.entries = o.Applied.Index, true
	s.decided = s.log.first(o.Applied, s.now)
	s.fleet.plan(o.Applied.Effects, s.now)
	s.fleet.rows(o.Applied.Effects.Batches)
}

// forget lets go of what no tap will ask for again.
func (s *scene) forget() {
	if s.now-s.forgot >= forgetEvery {
		s.forgot = s.now
		s.fleet.forget(s.now)
	}
}

// reach counts a branch that was reached.
func (s *scene) reach(b Branch) { s.tally[b]++ }

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
	s.judged[v.Invariant] = max(s.judged[v.Invariant], s.broken[v.Invariant])
	if s.broken[v.Invariant] <= keptViolations {
		s.found = append(s.found, v)
	}
}
