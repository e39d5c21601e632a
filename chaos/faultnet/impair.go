package faultnet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Impairment is what is wrong with a member's link, in both directions as the
// member sees them. Several may lie on one link: a packet passes all of them.
type Impairment struct {
	Out, In Way
}

// Way is one direction of a link. The zero value is a good one.
type Way struct {
	Cut       bool
	Loss      float64 // share of packets that vanish
	Duplicate float64 // share of packets that come twice
	Reorder   float64 // share of packets that later ones overtake
	Delay     time.Duration
	Jitter    time.Duration // delays are drawn evenly from Delay ± Jitter
	Rate      int64         // bytes a second, 0: without a limit
}

// Dead is an impairment that lets nothing through.
func Dead() Impairment { return Impairment{Out: Way{Cut: true}, In: Way{Cut: true}} }

// Both is an impairment that is the same in both directions.
func Both(w Way) Impairment { return Impairment{Out: w, In: w} }

// Tally is what an impairment did to packets.
type Tally struct {
	Passed, Dropped, Delayed, Duplicated, Reordered uint64
}

// Touched is how many packets it did something to.
func (t Tally) Touched() uint64 { return t.Dropped + t.Delayed + t.Duplicated + t.Reordered }

// String returns the counts as reports write them.
func (t Tally) String() string {
	return fmt.Sprintf("%d packets passed, %d dropped, %d delayed, %d doubled, %d overtaken",
		t.Passed, t.Dropped, t.Delayed, t.Duplicated, t.Reordered)
}

// Imposed is an impairment that lies on a member's link.
type Imposed struct {
	links  *links
	member string
	ways   [2]imposedWay // guarded by links.mu
	tally  Tally         // guarded by links.mu
}

// imposedWay is one direction under way.
type imposedWay struct {
	Way
	free time.Time // when what was sent before has left the link
}

// Directions of a link, as indexes.
const (
	outbound = iota
	inbound
)

// Lift takes the impairment off the link again.
func (i *Imposed) Lift() {
	i.links.mu.Lock()
	defer i.links.mu.Unlock()
	l := i.links.on[i.member]
	i.links.on[i.member] = slices.DeleteFunc(slices.Clone(l), func(x *Imposed) bool { return x == i })
}

// Tally is what it has done so far.
func (i *Imposed) Tally() Tally {
	i.links.mu.Lock()
	defer i.links.mu.Unlock()
	return i.tally
}

// links holds the impairments of all members' links.
type links struct {
	mu  sync.Mutex
	on  map[string][]*Imposed // by member; no entry: no such member
	rng *rand.Rand

	delayedCalls *callScheduler
}

// newLinks draws by a fixed seed: which packet is hit depends on the traffic
// anyhow.
func newLinks() *links {
	return &links{on: map[string][]*Imposed{}, rng: rand.New(rand.NewPCG(1, 2)), delayedCalls: newCallScheduler()}
}

// addMember makes a member.
func (l *links) addMember(member string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on[member] = nil
}

// Impose impairs a member's link. Connections that a Proxy carries by TCP (gossip) stand still
// where a direction is cut, and are else left alone.
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

// canProgress reports whether a connection between two members could make progress.
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

// sendCopies sends a packet from one member to another by their links, where headers are so many bytes
// besides; false: it is lost.
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

// delaysOfCopies decides on a packet of so many bytes: after how long each copy of it
// arrives. None: it is lost.
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

// passDirection takes the copies of a packet through one direction.
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
			// Others overtake it while it waits for as long again, and at least for a
			// while that a burst of packets needs.
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

// reserveLinkTime has a packet wait for its turn on a link of limited rate.
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
