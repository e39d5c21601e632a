package schedule

import (
	"slices"
	"strings"
	"time"

	"skerry/fleet"
)

// Fault is one thing that breaks, At after the start of the run, for For (0: its kind has no
// duration, or its target is back at once). Targets are edges, hubs, sites, TargetLeader or
// TargetEdges; Topology.EdgesOf and HubsOf resolve them.
type Fault struct {
	At      time.Duration `yaml:"at"`
	Kind    Kind          `yaml:"kind"`
	Targets []string      `yaml:"targets,omitempty"`
	For     time.Duration `yaml:"for,omitempty"`
	Params  Params        `yaml:",inline"`
}

// Names that stand for other targets.
const (
	TargetLeader = "leader" // the hub that leads when the fault begins
	TargetEdges  = "edges"  // all edges
)

// End is when the fault is over, in a run of that length.
func (f Fault) End(length time.Duration) time.Duration {
	if info, _ := f.Kind.Info(); info.Lasting == MayStay && f.For == 0 {
		return max(length, f.At)
	}
	return f.At + f.For
}

// The leader is killed that long after a mass rejoin has healed all links, when edges are
// in the middle of their first sessions, and stays down for rejoinWithout.
const (
	rejoinUnderway = 1500 * time.Millisecond
	rejoinWithout  = 5 * time.Second
)

// WithInducedFaults are the faults with those that they bring along: faults of their own, since
// what excuses the first is over by then.
func WithInducedFaults(faults []Fault) []Fault {
	all := slices.Clone(faults)
	for _, f := range faults {
		if f.Kind == MassRejoin {
			all = append(all, Fault{Kind: LeaderKill, At: f.At + f.For + rejoinUnderway, For: rejoinWithout, Targets: []string{TargetLeader}})
		}
	}
	return all
}

// String is the fault in words: at 5m cut edge-1 for 10m way=out.
func (f Fault) String() string { return "at " + formatDuration(f.At) + " " + f.formatWithoutTime() }

// formatWithoutTime is the fault without its time.
func (f Fault) formatWithoutTime() string {
	s := string(f.Kind)
	if len(f.Targets) > 0 {
		s += " " + strings.Join(f.Targets, " ")
	}
	if f.For > 0 {
		s += " for " + formatDuration(f.For)
	}
	if p := f.Kind.formatParams(f.Params); p != "" {
		s += " " + p
	}
	return s
}

// Detail is what the fault's parameters say, as they are written; "" where all are as
// by default.
func (f Fault) Detail() string { return f.Kind.formatParams(f.Params) }

// Params are what kinds of fault take; Info.Params says which of them a kind takes,
// and the others are zero.
type Params struct {
	Way        Way           `yaml:"way,omitempty"`         // cut
	Refused    bool          `yaml:"refused,omitempty"`     // cut: packets are answered by a refusal, instead of vanishing
	Profile    Profile       `yaml:"profile,omitempty"`     // profile
	Phases     Span          `yaml:"phases,omitempty"`      // flapping: how long the link stays gone, and stays
	Off        time.Duration `yaml:"off,omitempty"`         // offline-on: how long it is gone
	On         time.Duration `yaml:"on,omitempty"`          // offline-on: how long it is there
	Jump       time.Duration `yaml:"by,omitempty"`          // clock-jump: by how much, forward or back
	Age        time.Duration `yaml:"age,omitempty"`         // restore: how old the copy is when it is put back
	Bits       int           `yaml:"bits,omitempty"`        // bit-flip: how many
	Sync       time.Duration `yaml:"sync,omitempty"`        // slow-disk: how long each sync takes
	Life       time.Duration `yaml:"life,omitempty"`        // crash-loop: how long a task lives after each start
	Job        fleet.JobID   `yaml:"job,omitempty"`         // crash-loop: of this job alone; "": of all
	Deadline   time.Duration `yaml:"deadline,omitempty"`    // drain: how long what is on the edge may stay
	KeepSystem bool          `yaml:"keep_system,omitempty"` // drain: what runs on every edge stays
	// Step is the label of a step of the target's disk protocol: a kill or a power
	// cut waits from At until the target comes to it. "": at once.
	Step string `yaml:"step,omitempty"`
}

// Way is the direction of a link that is cut.
type Way string

// The directions of a cut.
const (
	WayBoth Way = "both"
	WayOut  Way = "out" // what the target sends vanishes
	WayIn   Way = "in"  // what is sent to it vanishes
)

// Profile names how a link behaves that is not cut.
type Profile string

const (
	Satellite  Profile = "satellite"  // 600 ms ± 50 ms, 2 % lost, 25 Mbit/s
	Cellular3G Profile = "cellular3g" // 150 ms ± 75 ms, 1 % lost, 1 Mbit/s
	Lossy      Profile = "lossy"      // 10 % lost, 10 % out of order, 5 % twice
)

// Profiles returns all profiles.
func Profiles() []Profile { return []Profile{Satellite, Cellular3G, Lossy} }

// Span is a range of durations.
type Span struct {
	Shortest time.Duration `yaml:"shortest"`
	Longest  time.Duration `yaml:"longest"`
}
