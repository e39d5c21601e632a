package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
)

// Bounds of a schedule.
const (
	MaxHubs         = 9
	MaxEdges        = 2000
	MaxPools        = 100
	MaxJobs         = 1000
	MaxSteps        = 10_000
	MaxFaults       = 10_000
	MaxExpectations = 1000
	MaxOperations   = 6000 // a minute
	MaxSettle       = 24 * time.Hour
	mostCPU         = 1_000_000
	mostMemory      = 10_000_000
	mostClaims      = 64 // ports, cores or devices of a task
	// Bounds of an edge's journal, in KiB.
	leastJournal, mostJournal = 16, 1 << 20
	// maxTargets bounds the edges of all faults together.
	maxTargets = 100_000
)

// Part is a part of a schedule, for problems.
type Part string

// The parts of a schedule.
const (
	PartWhole  Part = "schedule"
	PartHubs   Part = "hubs"
	PartEdge   Part = "edge"
	PartPool   Part = "pool"
	PartJob    Part = "job"
	PartStep   Part = "step"
	PartFault  Part = "fault"
	PartExpect Part = "expectation"
)

// Problem is a mistake in a schedule, in the item at Index of its part. Hint is a remedy and
// may be empty. Line and Column are a position in the job's HCL, from 1; otherwise 0.
type Problem struct {
	Part         Part
	Index        int
	Message      string
	Hint         string
	Line, Column int
}

// String returns the problem in one line.
func (p Problem) String() string {
	s := p.Message
	if p.Part != PartWhole && p.Part != PartHubs {
		s = fmt.Sprintf("%s %d: %s", p.Part, p.Index+1, s)
	}
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// Problems are all mistakes in a schedule.
type Problems []Problem

// Err returns nil if there are no problems, and otherwise an error with one line for each.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return errors.New(strings.Join(lines, "\n"))
}

func (ps *Problems) add(part Part, i int, format string, args ...any) {
	*ps = append(*ps, Problem{Part: part, Index: i, Message: fmt.Sprintf(format, args...)})
}

// addWithHint adds a problem of item i of the part; hint is a remedy. add does so without a hint.
func (ps *Problems) addWithHint(part Part, i int, hint, format string, args ...any) {
	*ps = append(*ps, Problem{Part: part, Index: i, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// Validate returns all mistakes in a schedule; none: it is valid. If its bounds or its topology
// are wrong, it returns only those mistakes.
func (s Schedule) Validate() Problems {
	var ps Problems
	s.checkBounds(&ps)
	s.Topology.validateTopology(&ps)
	if len(ps) > 0 {
		return ps // the other checks need a valid topology
	}
	s.checkJobs(&ps)
	s.checkSteps(&ps)
	s.checkFaults(&ps)
	s.checkExpectations(&ps)
	return ps
}

// checkBounds adds problems of the schedule's times, its comment, and the lengths of its lists.
func (s Schedule) checkBounds(ps *Problems) {
	if s.Length < time.Second || s.Length > longest {
		ps.addWithHint(PartWhole, 0, "length: 1h", "a run is 1s to 400d long, not %s", formatDuration(s.Length))
	}
	if s.Settle < 0 || s.Settle > MaxSettle {
		ps.add(PartWhole, 0, "settling takes 0 to %s, not %s", formatDuration(MaxSettle), formatDuration(s.Settle))
	}
	if s.Operations < 0 || s.Operations > MaxOperations {
		ps.add(PartWhole, 0, "operations are 0 to %d a minute, not %d", MaxOperations, s.Operations)
	}
	if s.Secrets < 0 || s.Secrets > MaxOperations {
		ps.add(PartWhole, 0, "secrets are 0 to %d operations a minute, not %d", MaxOperations, s.Secrets)
	}
	if !validComment(s.Comment) {
		ps.add(PartWhole, 0, "a comment has at most %d printable characters, and no empty lines around it", maxComment)
	}
	for _, list := range []struct {
		what string
		have int
		most int
	}{
		{"jobs", len(s.Jobs), MaxJobs}, {"steps", len(s.Steps), MaxSteps},
		{"faults", len(s.Faults), MaxFaults}, {"expectations", len(s.Expect), MaxExpectations},
	} {
		if list.have > list.most {
			ps.add(PartWhole, 0, "%d %s: at most %d are allowed", list.have, list.what, list.most)
		}
	}
}

// validateTopology adds a problem for each mistake in the hubs, edges and pools.
func (t Topology) validateTopology(ps *Problems) {
	if n := len(t.Hubs); n < 1 || n > MaxHubs {
		ps.addWithHint(PartHubs, 0, "hubs: 3", "1 to %d hubs, not %d", MaxHubs, n)
	}
	if n := len(t.Edges); n < 1 || n > MaxEdges {
		ps.addWithHint(PartHubs, 0, "edges: [{count: 10}]", "1 to %d edges, not %d", MaxEdges, n)
		return
	}
	for i, h := range t.Hubs {
		if h != HubName(i+1) {
			ps.add(PartHubs, 0, "hub %d is named %q: it is %s", i+1, h, HubName(i+1))
		}
	}
	for i, e := range t.Edges {
		e.validateEdge(ps, i)
	}
	t.checkPools(ps)
}

// validateEdge adds a problem for each mistake in e, the edge with the index i.
func (e Edge) validateEdge(ps *Problems, i int) {
	if e.Name != EdgeName(i+1) {
		ps.add(PartEdge, i, "edge %d is named %q: it is %s", i+1, e.Name, EdgeName(i+1))
	}
	ps.checkLabels(PartEdge, i, label{"datacenter", e.Datacenter}, label{"pool", e.Pool}, label{"site", e.Site})
	if reservedName(e.Site) {
		ps.add(PartEdge, i, "a site may not be named %q, which means something else", e.Site)
	}
	if e.Link != "" && !slices.Contains(Profiles(), e.Link) {
		ps.add(PartEdge, i, "link %q is none of %s", e.Link, strings.Join(toStrings(Profiles()), ", "))
	}
	if e.CPU < 0 || e.CPU > mostCPU || e.MemoryMB < 0 || e.MemoryMB > mostMemory {
		ps.add(PartEdge, i, "cpu is 0 to 1000000 MHz and memory 0 to 10000000 MB")
	}
	if e.JournalKiB != 0 && (e.JournalKiB < leastJournal || e.JournalKiB > mostJournal) {
		ps.add(PartEdge, i, "journal is %d to %d KiB", leastJournal, mostJournal)
	}
	if e.BackoffCap != 0 && (e.BackoffCap < time.Second || e.BackoffCap > day) {
		ps.add(PartEdge, i, "backoff_cap is 1s to 1d, not %s", formatDuration(e.BackoffCap))
	}
}

// reservedName reports whether a site may not have the name, since it is another target of faults.
func reservedName(name string) bool {
	return name == TargetLeader || name == TargetEdges || strings.HasPrefix(name, "hub-") || strings.HasPrefix(name, "edge-")
}

// checkPools adds a problem for each mistake in a node pool.
func (t Topology) checkPools(ps *Problems) {
	if len(t.Pools) > MaxPools {
		ps.add(PartPool, MaxPools, "%d pools: at most %d are allowed", len(t.Pools), MaxPools)
		return
	}
	for i, p := range t.Pools {
		if err := checkLabel(p.Name); err != nil {
			ps.add(PartPool, i, "the name of a pool %s", err)
		}
		if slices.ContainsFunc(t.Pools[:i], func(other Pool) bool { return other.Name == p.Name }) {
			ps.add(PartPool, i, "pool %s is there twice", p.Name)
		}
		if p.Disconnect != "" && p.Disconnect != fleet.DisconnectKeep && p.Disconnect != fleet.DisconnectNomad {
			ps.add(PartPool, i, "disconnect is %s or %s, not %q", fleet.DisconnectKeep, fleet.DisconnectNomad, p.Disconnect)
		}
		if p.TTL != 0 && (p.TTL < time.Second || p.TTL > day) {
			ps.add(PartPool, i, "ttl is 1s to 1d, not %s", formatDuration(p.TTL))
		}
	}
}
