package faultnet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Impairment is a set of faults of a member's link, in both directions as the member sees them. A
// link may have several impairments: a packet has to pass all of them.
type Impairment struct {
	Out, In Way
}

// Way has the faults of one direction of a link. Zero: none.
type Way struct {
	Cut       bool
	Loss      float64 // share of packets that are lost
	Duplicate float64 // share of packets that are duplicated
	Reorder   float64 // share of packets that arrive after later ones
	Delay     time.Duration
	Jitter    time.Duration // the delay is drawn uniformly from Delay ± Jitter
	Rate      int64         // bytes per second; 0: no limit
}

// Dead returns an impairment that cuts both directions.
func Dead() Impairment { return Impairment{Out: Way{Cut: true}, In: Way{Cut: true}} }

// Both returns an impairment with the same faults in both directions.
func Both(w Way) Impairment { return Impairment{Out: w, In: w} }

// Tally counts the packets that met an impairment, by its effect on them.
type Tally struct {
	Passed, Dropped, Delayed, Duplicated, Reordered uint64
}

// Touched returns the number of effects on packets: all but Passed.
func (t Tally) Touched() uint64 { return t.Dropped + t.Delayed + t.Duplicated + t.Reordered }

// String formats the counts for reports.
func (t Tally) String() string {
	return fmt.Sprintf("%d packets passed, %d dropped, %d delayed, %d doubled, %d overtaken",
		t.Passed, t.Dropped, t.Delayed, t.Duplicated, t.Reordered)
}

// Imposed is an impairment on a member's link, until Lift.
type Imposed struct {
	links  *links
	member string
	ways   [2]imposedWay // guarded by links.mu
	tally  Tally         // guarded by links.mu
}

// imposedWay is one direction of an imposed impairment.
type imposedWay struct {
	Way
	free time.Time // time at which the packets sent so far have left the link
}

// Directions of a link, as indexes.
const (
	outbound = iota
	inbound
)

// Lift removes the impairment from the link. A second call does nothing.
func (i *Imposed) Lift() {
	i.links.mu.Lock()
	defer i.links.mu.Unlock()
	l := i.links.on[i.member]
	i.links.on[i.member] = slices.DeleteFunc(slices.Clone(l), func(x *Imposed) bool { return x == i })
}

// Tally returns the counts so far.
func (i *Imposed) Tally() Tally {
	i.links.mu.Lock()
	defer i.links.mu.Unlock()
	return i.tally
}

// links has the impairments of all members' links.
type links struct {
	mu  sync.Mutex
	on  map[string][]*Imposed // by member; no entry: the member does not exist
	rng *rand.Rand

	delayedCalls *callScheduler
}

// newLinks returns links without members. Its random seed is fixed: the affected packets depend on
// the traffic in any case. It starts a goroutine, which delayedCalls.close stops.
func newLinks() *links {
	return &links{on: map[string][]*Imposed{}, rng: rand.New(rand.NewPCG(1, 2)), delayedCalls: newCallScheduler()}
}

// addMember adds a member without impairments.
func (l *links) addMember(member string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on[member] = nil
}

// Impose impairs a member's link. TCP connections through a Proxy (gossip) are affected by cuts only:
// while a direction is cut, they make no progress.
func (l *links) Impose(member string, i Impairment) (*Imposed, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.on[member]; !ok {
		return nil, fmt.Errorf("impair the link of %s: no such member", member)
	}
	imposed := &Imposed{links: l, member: member, ways: [2]imposedWay{{Way: i.Out}, {Way: i.In}}}
	l.on[member] = append(slices.Clone(l.on[member]), imposed)
	return imposed, nil
}

// canProgress reports whether no direction of the two members' links is cut.
func (l *links) canProgress(a, b string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range []string{a, b} {
		if slices.ContainsFunc(l.on[m], func(i *Imposed) bool { return i.ways[outbound].Cut || i.ways[inbound].Cut }) {
			return false
		}
	}
	return true
}

// sendCopies passes a packet through the links of both members and calls send for each copy, at once
// or later. headers is the size of headers that the packet lacks. It returns false if no copy is sent.
func (l *links) sendCopies(from, to string, packet []byte, headers int, send func([]byte)) bool {
	now := time.Now()
	copies := l.delaysOfCopies(from, to, len(packet)+headers, now)
	for _, wait := range copies {
		if wait == 0 {
			send(packet)
			continue
		}
		kept := slices.Clone(packet)
		l.delayedCalls.scheduleCall(now.Add(wait), func() { send(kept) })
	}
	return len(copies) > 0
}

// delaysOfCopies draws the delay of each copy of a packet of that size; none: the packet is lost.
func (l *links) delaysOfCopies(from, to string, size int, now time.Time) []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	copies := []time.Duration{0}
	for _, i := range l.on[from] {
		copies = i.passDirection(copies, outbound, size, now)
	}
	for _, i := range l.on[to] {
		copies = i.passDirection(copies, inbound, size, now)
	}
	return copies
}

// passDirection applies one direction of the impairment to the copies of a packet, given by their
// delays, and returns the delays of the resulting copies.
func (i *Imposed) passDirection(copies []time.Duration, direction, size int, now time.Time) []time.Duration {
	w, rng := &i.ways[direction], i.links.rng
	var passed []time.Duration
	for _, d := range copies {
		if w.Cut || rng.Float64() < w.Loss {
			i.tally.Dropped++
			continue
		}
		i.tally.Passed++
		d += w.reserveLinkTime(size, now)
		late := w.Delay
		if w.Jitter > 0 {
			late += time.Duration(rng.Int64N(int64(2*w.Jitter))) - w.Jitter
		}
		switch {
		case rng.Float64() < w.Reorder:
			// Twice the delay, and at least the time of a burst of packets, so that others
			// overtake it.
			late = 2*late + 20*time.Millisecond
			i.tally.Reordered++
		case late > 0:
			i.tally.Delayed++
		}
		passed = append(passed, d+late)
		if rng.Float64() < w.Duplicate {
			passed = append(passed, d+late+time.Millisecond)
			i.tally.Duplicated++
		}
	}
	return passed
}

// reserveLinkTime returns the time until a packet of that size has left a link of limited rate, and
// reserves that time. It returns 0 without a limit.
func (w *imposedWay) reserveLinkTime(size int, now time.Time) time.Duration {
	if w.Rate <= 0 {
		return 0
	}
	if w.free.Before(now) {
		w.free = now
	}
	w.free = w.free.Add(time.Duration(int64(size) * int64(time.Second) / w.Rate))
	return w.free.Sub(now)
}
