package schedule

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// checkFaults adds a problem for each invalid fault, for each that clashes with an earlier one,
// and for faults that are not in order of time.
func (s Schedule) checkFaults(ps *Problems) {
	taken := newOccupancy(s.Topology, s.Length)
	var before time.Duration
	targets := 0
	for i, f := range s.Faults {
		if f.At < before {
			ps.add(PartFault, i, "faults are in order of time, and %s is before %s", formatDuration(f.At), formatDuration(before))
		}
		before = max(before, f.At)
		already := len(*ps)
		f.validateFault(ps, i, s)
		if targets += len(s.Topology.EdgesOf(f)); targets > maxTargets {
			ps.add(PartFault, i, "more than %d edges are hit, all faults taken together", maxTargets)
			return
		}
		if len(*ps) > already {
			continue
		}
		switch c := taken.reserveFault(f); {
		case c == nil:
		case sameFault(c.other, f):
			ps.add(PartFault, i, "%s: %s", f.Kind, c.why)
		default:
			info, _ := c.other.Kind.Info()
			hint := "that one is over at " + formatDuration(c.other.End(s.Length))
			if info.After > 0 {
				hint += ", and needs " + formatDuration(info.After) + " more to recover"
			}
			ps.addWithHint(PartFault, i, hint, "clashes with %q: %s", c.other, c.why)
		}
	}
}

func sameFault(a, b Fault) bool { return a.String() == b.String() }

// validateFault adds a problem for each mistake in f, the fault i of the schedule s. It does not
// compare it with other faults.
func (f Fault) validateFault(ps *Problems, i int, s Schedule) {
	info, ok := f.Kind.Info()
	if !ok {
		ps.addWithHint(PartFault, i, "there are "+strings.Join(toStrings(Kinds()), ", "), "unknown fault %q", f.Kind)
		return
	}
	end := f.End(s.Length)
	switch {
	case f.At < 0 || f.At > s.Length:
		ps.add(PartFault, i, "%s is not within the run, which is %s long", formatDuration(f.At), formatDuration(s.Length))
	case f.For < 0 || end < f.At || end > s.Length:
		ps.addWithHint(PartFault, i, "every fault ends within the run, so that what follows is seen",
			"%s is over at %s, after the run's %s", f.Kind, formatDuration(end), formatDuration(s.Length))
	}
	switch {
	case info.Lasting == Instant && f.For != 0:
		ps.add(PartFault, i, "%s takes no `for`: it is over at once", f.Kind)
	case info.Lasting == Lasts && f.For == 0:
		ps.addWithHint(PartFault, i, "for: 5m", "%s needs a `for`", f.Kind)
	case f.For != 0 && (f.For < info.Shortest || f.For > info.Longest):
		ps.add(PartFault, i, "%s lasts %s to %s, not %s", f.Kind, formatDuration(info.Shortest), formatDuration(info.Longest), formatDuration(f.For))
	}
	if err := f.Kind.validateParams(f.Params); err != nil {
		ps.addWithHint(PartFault, i, f.Kind.Usage(), "%s: %s", f.Kind, err)
	}
	f.checkTargets(ps, i, info, s)
	if f.Kind == Restore && f.Params.Age > f.At {
		ps.add(PartFault, i, "at %s there is no copy that is %s old", formatDuration(f.At), formatDuration(f.Params.Age))
	}
	if _, known := s.Job(f.Params.Job); f.Params.Job != "" && !known {
		ps.add(PartFault, i, "there is no job %q", f.Params.Job)
	}
}

// checkTargets adds a problem if the targets of fault i are missing, unknown, repeated, or of the
// wrong kind.
func (f Fault) checkTargets(ps *Problems, i int, info Info, s Schedule) {
	if !info.At.Named() {
		if len(f.Targets) > 0 {
			ps.add(PartFault, i, "%s is on %s and names none, not %s", f.Kind, info.At, strings.Join(f.Targets, " "))
		}
		return
	}
	if len(f.Targets) == 0 {
		ps.addWithHint(PartFault, i, f.Kind.Usage(), "%s of what? It is on %s", f.Kind, info.At)
	}
	if info.Most > 0 && len(s.Topology.EdgesOf(f)) > info.Most {
		ps.add(PartFault, i, "%s is on %d of them at a time", f.Kind, info.Most)
	}
	for k, name := range f.Targets {
		isHub := name == TargetLeader || slices.Contains(s.Topology.Hubs, name)
		_, isEdge := s.Topology.Edge(name)
		isEdge = isEdge || name == TargetEdges || slices.Contains(s.Topology.Sites(), name)
		switch {
		case !isHub && !isEdge:
			ps.addWithHint(PartFault, i, s.Topology.targetNamesHint(info.At), "there is no %q", name)
		case isHub && info.At == AtEdge, isEdge && info.At == AtHub:
			ps.addWithHint(PartFault, i, s.Topology.targetNamesHint(info.At), "%s is on %s, and %q is not", f.Kind, info.At, name)
		case slices.Contains(f.Targets[:k], name):
			ps.add(PartFault, i, "%q is there twice", name)
		}
	}
}

// targetNamesHint returns a hint with the names that a fault of the place can have as targets.
func (t Topology) targetNamesHint(at Place) string {
	var names []string
	if at != AtEdge {
		names = append(names, HubName(1)+" to "+HubName(len(t.Hubs)), TargetLeader)
	}
	if at != AtHub {
		names = append(names, EdgeName(1)+" to "+EdgeName(len(t.Edges)), TargetEdges)
		names = append(names, t.Sites()...)
	}
	if len(names) > 10 {
		names = append(names[:10], "…")
	}
	return "there are " + strings.Join(names, ", ")
}

// Usage returns an example of a fault of the kind in YAML, with the fields that it needs; "": the
// kind does not exist.
func (k Kind) Usage() string {
	info, ok := k.Info()
	if !ok {
		return ""
	}
	s := "{at: 5m, kind: " + string(k)
	switch info.At {
	case AtEdge, AtMember:
		s += ", targets: [edge-1]"
	case AtHub:
		s += ", targets: [hub-1]"
	}
	if info.Lasting == Lasts {
		s += ", for: 10m"
	}
	for _, p := range info.Params {
		if p.Needed {
			s += ", " + p.Name + ": " + cmp.Or(strings.Join(p.Words, "|"), "…")
		}
	}
	return s + "}"
}
