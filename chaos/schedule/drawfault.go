package schedule

import (
	"slices"
	"time"
)

// warmUp is the time at the beginning of a run without faults, in which the jobs start.
const warmUp = 30 * time.Second

// drawFault draws a fault of the kind, with parameters, duration and targets. It begins between
// the two times, or earlier or later if it must, to begin after the warm-up and end in the run.
func (d *drawer) drawFault(kind Kind, from, to time.Duration) Fault {
	info, _ := kind.Info()
	f := Fault{Kind: kind, Params: d.drawParams(kind)}
	if info.Lasting == Lasts || info.Lasting == MayStay || info.Lasting == MayLast && d.drawBool(60) {
		f.For = d.drawDuration(info.Drawn.Shortest, max(info.Shortest, min(info.Drawn.Longest, d.s.Length/3)))
	}
	earliest := min(warmUp, d.s.Length/10)
	if kind == Restore {
		earliest += f.Params.Age
	}
	f.At = min(d.drawTime(max(from, earliest), max(to, earliest)), d.s.Length-f.For)
	f.Targets = d.drawTargets(info)
	return f
}

// drawTargets draws the targets of a fault: hubs, or a site, or one to three edges in the order
// of the topology. It returns nil for a kind that names no targets.
func (d *drawer) drawTargets(info Info) []string {
	switch {
	case info.At == AtMember && d.drawBool(30):
		return d.drawHubs()
	case info.At == AtHub:
		return d.drawHubs()
	case !info.At.Named():
		return nil
	}
	if sites := d.s.Topology.Sites(); info.Most == 0 && len(sites) > 0 && d.drawBool(10) {
		return []string{pick(d.rng, sites...)}
	}
	n := 1
	if info.Most == 0 && d.drawBool(40) {
		n = min(len(d.s.Topology.Edges), 1+d.rng.IntN(3))
	}
	var names []string
	for _, i := range d.rng.Perm(len(d.s.Topology.Edges))[:n] {
		names = append(names, d.s.Topology.Edges[i].Name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return d.s.Topology.edgeIndex(a) - d.s.Topology.edgeIndex(b)
	})
	return names
}

// edgeIndex returns the index of an edge in the topology; -1: there is no edge of that name.
func (t Topology) edgeIndex(edge string) int {
	return slices.IndexFunc(t.Edges, func(e Edge) bool { return e.Name == edge })
}

// drawHubs draws the hubs of a fault: the leader, one hub, or rarely as many as faults may hit
// at the same time.
func (d *drawer) drawHubs() []string {
	if d.drawBool(35) {
		return []string{TargetLeader}
	}
	n := 1
	if d.drawBool(20) {
		n = min(d.s.Topology.Minority(), len(d.s.Topology.Hubs))
	}
	hubs := make([]string, 0, n)
	for _, i := range d.rng.Perm(len(d.s.Topology.Hubs))[:n] {
		hubs = append(hubs, d.s.Topology.Hubs[i])
	}
	slices.Sort(hubs)
	return hubs
}

// drawParams draws the parameters of a fault; those that are not drawn have their defaults.
func (d *drawer) drawParams(kind Kind) Params {
	var p Params
	switch kind {
	case LinkCut:
		p.Way = pick(d.rng, WayBoth, WayBoth, WayBoth, WayOut, WayIn)
		p.Refused = d.drawBool(20)
	case LinkProfile:
		p.Profile = pick(d.rng, Profiles()...)
	case Flapping:
		p.Phases = Span{time.Second, pick(d.rng, 5*time.Second, 30*time.Second)}
	case OfflineOn:
		p.Off = d.drawDuration(10*time.Second, 5*time.Minute)
		p.On = d.drawDuration(10*time.Second, 5*time.Minute)
	case Restore:
		p.Age = d.drawDuration(10*time.Second, min(10*time.Minute, max(10*time.Second, d.s.Length/4)))
	case ClockJump:
		p.Jump = d.drawDuration(2*time.Second, longest)
		if d.drawBool(50) {
			p.Jump = -p.Jump
		}
	case BitFlip:
		p.Bits = pick(d.rng, 1, 3, 30)
	case SlowDisk:
		p.Sync = d.drawDuration(20*time.Millisecond, 2*time.Second).Truncate(time.Millisecond)
	case CARotate:
		p.Grace = d.drawDuration(30*time.Second, 30*time.Minute)
	case LocalStop, LocalRestart:
		if d.drawBool(40) {
			p.Job = pick(d.rng, d.s.Jobs...).ID
		}
	case CrashLoop:
		p.Life = pick(d.rng, 100*time.Millisecond, time.Second, 10*time.Second)
		if len(d.s.Jobs) > 0 && d.drawBool(50) {
			p.Job = pick(d.rng, d.s.Jobs...).ID
		}
	}
	return kind.Fill(p)
}
