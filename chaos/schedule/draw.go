package schedule

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Shape sets the size of the schedules that Draw makes. A zero field has the default that is
// written beside it.
type Shape struct {
	Hubs          int           // 3
	Edges         int           // 10
	Length        time.Duration // 1 h
	Settle        time.Duration // DefaultSettle
	FaultsPerHour int           // 22
	Jobs          int           // 6
	Operations    int           // 2 a minute; -1: none
	Kinds         []Kind        // nil: all kinds that Clock supports
	Clock         Clock         // 0: Virtual

	drains bool   // Draw may add faults of the kind Drain; withDefaults sets it
	onSite []Kind // the kinds of people on site that Draw may add; withDefaults sets it
	// secrets are the kinds of faults on keys, CAs and tokens that Draw may add; withDefaults sets it.
	secrets []Kind
}

// withDefaults returns the shape with its defaults and limits applied. Its Kinds are then the
// kinds that can be drawn; drains is set if the shape allows Drain.
func (s Shape) withDefaults() Shape {
	s.Hubs = min(orElse(s.Hubs, 3), MaxHubs)
	s.Edges = min(orElse(s.Edges, 10), MaxEdges)
	s.Length = min(orElse(s.Length, time.Hour), longest)
	s.Settle = min(orElse(s.Settle, DefaultSettle), MaxSettle)
	s.FaultsPerHour = orElse(s.FaultsPerHour, 22)
	s.Jobs = min(orElse(s.Jobs, 6), MaxJobs)
	s.Operations = max(0, min(orElse(s.Operations, 2), MaxOperations))
	s.Clock = orElse(s.Clock, Virtual)
	if s.Kinds == nil {
		s.Kinds = Kinds()
	}
	s.drains = s.Clock&Virtual != 0 && slices.Contains(s.Kinds, Drain)
	s.onSite, s.secrets = s.additionalKinds(LocalStop, LocalRestart), s.additionalKinds(KeyRotate, TokenRevoke, NodeRevoke, CARotate, SiteCode)
	s.Kinds = slices.DeleteFunc(slices.Clone(s.Kinds), func(k Kind) bool { return !s.canDrawKind(k) })
	return s
}

// additionalKinds returns those of the kinds that Draw may add to the faults of a run in virtual time.
func (s Shape) additionalKinds(kinds ...Kind) []Kind {
	return slices.DeleteFunc(kinds, func(k Kind) bool { return s.Clock&Virtual == 0 || !slices.Contains(s.Kinds, k) })
}

// canDrawKind reports whether the kind can be drawn among the faults: the clock supports it, it
// has a weight, and the run is long enough and has enough hubs.
func (s Shape) canDrawKind(k Kind) bool {
	info, known := k.Info()
	if !known || info.Clock&s.Clock == 0 || info.Weight == 0 || info.Shortest > s.Length/2 {
		return false
	}
	return s.Hubs >= 3 || k != MinorityCut && k != HubPart && k != MajorityCut
}

// pcgStream separates the random numbers of Draw from those that other code draws from the
// same seed.
const pcgStream = 0x5c4ed

// Draw returns a random, valid schedule; the same seed and shape give the same one. The faults
// are spread over its length. Every second one takes its kind from a shuffled list of all
// kinds, so that rare kinds occur too. If not all of them fit, the schedule has fewer.
func Draw(seed uint64, shape Shape) Schedule {
	shape = shape.withDefaults()
	d := &drawer{rng: rand.New(rand.NewPCG(seed, pcgStream)), shape: shape}
	d.s = Schedule{
		Comment: fmt.Sprintf("Drawn from seed %d.", seed),
		Seed:    seed, Length: shape.Length, Settle: shape.Settle, Operations: shape.Operations,
		Topology: d.drawTopology(),
	}
	d.s.Jobs = d.drawJobs()
	d.s.Faults = d.drawFaults()
	d.s.Steps = d.drawSteps()
	d.addVirtualOnlyParts(rand.New(rand.NewPCG(seed, rolloutStream)))
	d.s.Expect = []Expectation{{Subject: ExpectQuiet, Within: shape.Settle}}
	return d.s
}

// drawer is the state of one Draw: the source of randomness, and the schedule so far.
type drawer struct {
	rng   *rand.Rand
	shape Shape
	s     Schedule
}

// drawFaults draws the faults of the run, as many as the shape asks for if they fit, in order
// of time. Kinds that exclude many others are placed first, while there is room for them.
func (d *drawer) drawFaults() []Fault {
	n := int(math.Ceil(float64(d.shape.FaultsPerHour) * d.shape.Length.Hours()))
	n = min(n, MaxFaults-1) // a mass rejoin induces one more fault
	if len(d.shape.Kinds) == 0 {
		return nil
	}
	kinds := d.drawKinds(n)
	slices.SortStableFunc(kinds, func(a, b Kind) int { return cmp.Compare(claimRank(b), claimRank(a)) })
	slots := d.rng.Perm(n)
	taken := newOccupancy(d.s.Topology, d.s.Length)
	var faults []Fault
	for i, kind := range kinds {
		if len(faults) >= n {
			break
		}
		f, ok := Fault{}, false
		if d.drawBool(overlapPercent) && len(faults) > 0 {
			f, ok = d.drawOverlappingFault(taken, kind, faults)
		}
		if !ok {
			f, ok = d.drawFittingFault(taken, kind, slots[i], n)
		}
		if ok {
			faults = append(faults, f)
			faults = append(faults, d.drawRevealingFault(taken, f)...)
		}
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return faults
}

// drawKinds draws n kinds of fault: alternately the next one of a shuffled list of all kinds,
// and one at random by its weight.
func (d *drawer) drawKinds(n int) []Kind {
	kinds := make([]Kind, 0, n)
	var pack []int
	for i := range n {
		if i%2 == 1 {
			kinds = append(kinds, d.drawKindByWeight())
			continue
		}
		if len(pack) == 0 {
			pack = d.rng.Perm(len(d.shape.Kinds))
		}
		kinds = append(kinds, d.shape.Kinds[pack[0]])
		pack = pack[1:]
	}
	return kinds
}

// drawKindByWeight draws a kind of the shape with a probability proportional to Info.Weight.
func (d *drawer) drawKindByWeight() Kind {
	return pickByWeight(d.rng, d.shape.Kinds, func(k Kind) int { info, _ := k.Info(); return info.Weight })
}

// pickByWeight picks an item at random with a probability proportional to its weight.
func pickByWeight[T any](rng *rand.Rand, list []T, weight func(T) int) T {
	sum := 0
	for _, item := range list {
		sum += weight(item)
	}
	left := rng.IntN(sum)
	i := slices.IndexFunc(list, func(item T) bool { left -= weight(item); return left < 0 })
	return list[i]
}

// claimRank returns 0 to 3: the higher, the more other faults a kind excludes.
func claimRank(k Kind) int {
	info, _ := k.Info()
	switch {
	case slices.Contains(info.Takes, ClaimHubs):
		return 3
	case len(info.Apart) > 0:
		return 2
	case slices.Contains(info.Takes, ClaimHub):
		return 1
	}
	return 0
}

// overlapPercent is the share of faults that begin while another one lasts, on one of its edges:
// combinations of faults find the most mistakes.
const overlapPercent = 35

// drawOverlappingFault draws a fault of the kind that begins while one of the given faults
// lasts, on one of its edges, and reserves its claims in taken. ok is false if none fitted.
func (d *drawer) drawOverlappingFault(taken *occupancy, kind Kind, faults []Fault) (Fault, bool) {
	info, _ := kind.Info()
	for range triesInSlot {
		other := pick(d.rng, faults...)
		f := d.drawFault(kind, other.At, other.End(d.s.Length))
		if edges := d.s.Topology.EdgesOf(other); info.At == AtEdge && len(edges) > 0 {
			f.Targets = []string{pick(d.rng, edges...)}
		}
		if other.For > 0 && f.At < other.End(d.s.Length) && d.tryReserveFault(taken, f) {
			return f, true
		}
	}
	return Fault{}, false
}

// drawRevealingFault draws, in four of five cases, a fault that makes the effect of f visible
// (Info.Shown), and reserves its claims. It returns nil if there is none or none fits.
func (d *drawer) drawRevealingFault(taken *occupancy, f Fault) []Fault {
	info, _ := f.Kind.Info()
	kinds := slices.DeleteFunc(slices.Clone(info.Shown), func(k Kind) bool { return !slices.Contains(d.shape.Kinds, k) })
	if len(kinds) == 0 || d.drawBool(20) {
		return nil
	}
	if also, ok := d.drawOverlappingFault(taken, pick(d.rng, kinds...), []Fault{f}); ok {
		return []Fault{also}
	}
	return nil
}

// tryReserveFault reports whether the fault is valid and its claims are free, and then reserves them.
func (d *drawer) tryReserveFault(taken *occupancy, f Fault) bool {
	var wrong Problems
	f.validateFault(&wrong, 0, d.s)
	return len(wrong) == 0 && taken.reserveFault(f) == nil
}

// Number of tries of drawFittingFault in its slot, at any time, and with other kinds.
const (
	triesInSlot   = 8
	triesAnywhere = 24
	triesOfOther  = 40
)

// drawFittingFault draws a fault and reserves its claims. It tries the kind in the given one of n
// slots of the run, then at any time, then other kinds. The result is false if none fitted.
func (d *drawer) drawFittingFault(taken *occupancy, kind Kind, slot, n int) (Fault, bool) {
	width := d.s.Length / time.Duration(n)
	for try := range triesInSlot + triesAnywhere + triesOfOther {
		from, to := time.Duration(slot)*width, time.Duration(slot+1)*width
		if try >= triesInSlot {
			from, to = 0, d.s.Length
		}
		if try >= triesInSlot+triesAnywhere {
			kind = d.drawKindByWeight()
		}
		f := d.drawFault(kind, from, to)
		if d.tryReserveFault(taken, f) {
			return f, true
		}
	}
	return Fault{}, false
}

// drawDuration draws a duration from lo to hi, rounded. Logarithms are spread evenly, so that
// short durations are as frequent as long ones.
func (d *drawer) drawDuration(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	x := math.Exp(math.Log(float64(lo)) + d.rng.Float64()*(math.Log(float64(hi))-math.Log(float64(lo))))
	return max(lo, min(hi, round(time.Duration(x))))
}

// drawTime draws a rounded time from a uniform distribution over from to to.
func (d *drawer) drawTime(from, to time.Duration) time.Duration {
	if to <= from {
		return from
	}
	return max(from, round(from+time.Duration(d.rng.Int64N(int64(to-from)))))
}

// round cuts a duration to seconds, and one below 10 s to tenths of a second, so that it is
// easy to read.
func round(t time.Duration) time.Duration {
	if t < 10*time.Second {
		return t.Truncate(100 * time.Millisecond)
	}
	return t.Truncate(time.Second)
}

// drawBool returns true with the given probability.
func (d *drawer) drawBool(percent int) bool { return d.rng.IntN(100) < percent }

// pick returns one of the items at random.
func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }
