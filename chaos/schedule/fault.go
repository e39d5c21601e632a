package schedule

import (
	"slices"
	"strings"
	"time"

	"skerry/fleet"
)

// Fault breaks the Targets at the time At of the run, for the duration For. 0: the kind has no
// duration, or the target is back at once, or (MayStay) the fault lasts to the end of the run.
// Targets are edges, hubs, sites, TargetLeader or TargetEdges; EdgesOf and HubsOf resolve them.
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

// End returns the time at which the fault is over, in a run of the given length.
func (f Fault) End(length time.Duration) time.Duration {
	if info, _ := f.Kind.Info(); info.Lasting == MayStay && f.For == 0 {
		return max(length, f.At)
	}
	return f.At + f.For
}

// After a mass rejoin has healed all links, the leader is killed rejoinUnderway later, while
// edges open their first sessions. It stays down for rejoinWithout.
const (
	rejoinUnderway = 1500 * time.Millisecond
	rejoinWithout  = 5 * time.Second
)

// WithInducedFaults returns the faults and, for each mass rejoin, the kill of the leader that
// belongs to it. The kill is a fault of its own, because it begins when the mass rejoin is over.
func WithInducedFaults(faults []Fault) []Fault {
	all := slices.Clone(faults)
	for _, f := range faults {
		if f.Kind == MassRejoin {
			all = append(all, Fault{Kind: LeaderKill, At: f.At + f.For + rejoinUnderway, For: rejoinWithout, Targets: []string{TargetLeader}})
		}
	}
	return all
}

// String formats the fault: at 5m cut edge-1 for 10m way=out.
func (f Fault) String() string { return "at " + formatDuration(f.At) + " " + f.formatWithoutTime() }

// formatWithoutTime formats the fault as String does, without its beginning "at TIME".
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

// Detail formats the fault's parameters as name=value; "" if all of them have their
// defaults.
func (f Fault) Detail() string { return f.Kind.formatParams(f.Params) }

// Params are the parameters of all kinds of fault. Info.Params lists the ones that a kind
// takes; the others are zero.
type Params struct {
	Way        Way           `yaml:"way,omitempty"`         // cut
	Refused    bool          `yaml:"refused,omitempty"`     // cut: senders get a refusal, instead of silence
	Profile    Profile       `yaml:"profile,omitempty"`     // profile
	Phases     Span          `yaml:"phases,omitempty"`      // flapping: range of each time with, and of each time without the link
	Off        time.Duration `yaml:"off,omitempty"`         // offline-on: how long the link is cut each time
	On         time.Duration `yaml:"on,omitempty"`          // offline-on: how long the link works each time
	Jump       time.Duration `yaml:"by,omitempty"`          // clock-jump: the step of the wall clock, negative for back
	Age        time.Duration `yaml:"age,omitempty"`         // restore: age of the copy when it is restored
	Bits       int           `yaml:"bits,omitempty"`        // bit-flip: number of flipped bits
	Sync       time.Duration `yaml:"sync,omitempty"`        // slow-disk: duration of each sync
	Life       time.Duration `yaml:"life,omitempty"`        // crash-loop: lifetime of a task after each start
	Job        fleet.JobID   `yaml:"job,omitempty"`         // crash-loop, local-stop, local-restart: the only job that is hit; "": all jobs
	Deadline   time.Duration `yaml:"deadline,omitempty"`    // drain: deadline for the allocations of the edge
	KeepSystem bool          `yaml:"keep_system,omitempty"` // drain: allocations of system jobs stay
	Grace      time.Duration `yaml:"grace,omitempty"`       // ca-rotate: how long edges get in with certificates of the old CA
	// Step is the label of a step in the target's disk protocol. A kill or a power cut
	// waits from At until the target reaches that step. "": it happens at once.
	Step string `yaml:"step,omitempty"`
}

// Way is the direction of a link that is cut.
type Way string

// The directions of a cut.
const (
	WayBoth Way = "both"
	WayOut  Way = "out" // packets from the target are lost
	WayIn   Way = "in"  // packets to the target are lost
)

// Profile names the quality of a link that is not cut.
type Profile string

const (
	Satellite  Profile = "satellite"  // 600 ms ± 50 ms, 2 % lost, 25 Mbit/s
	Cellular3G Profile = "cellular3g" // 150 to 300 ms, up to 1 % lost, about 1 Mbit/s; see fabric.Cellular3G and chaos/real
	Lossy      Profile = "lossy"      // 10 % lost, 10 % out of order, 5 % twice
)

// Profiles returns all profiles.
func Profiles() []Profile { return []Profile{Satellite, Cellular3G, Lossy} }

// Span is a range of durations.
type Span struct {
	Shortest time.Duration `yaml:"shortest"`
	Longest  time.Duration `yaml:"longest"`
}
