package schedule

import (
	"time"

	"skerry/fleet"
)

// Schedule is what a run shall do. Times count from its start, which is when all
// hubs and edges are up and ready.
type Schedule struct {
	Comment string        `yaml:"-"`              // the text's first lines, without their #; says why it is there
	Seed    uint64        `yaml:"seed,omitempty"` // of what an executor draws by itself: latencies, phases, ids
	Length  time.Duration `yaml:"length"`
	Settle  time.Duration `yaml:"settle"` // how long after it, without faults, until all has to be quiet
	// Operations is how many registrations and reads a minute are made beside the
	// Steps, on small jobs of their own, for the linearizability checker.
	Operations int           `yaml:"operations,omitempty"`
	Topology   Topology      `yaml:",inline"`
	Jobs       []Job         `yaml:"jobs,omitempty"`
	Steps      []Step        `yaml:"-"` // the text has these three, with repetitions
	Faults     []Fault       `yaml:"-"`
	Expect     []Expectation `yaml:"-"`
}

// DefaultSettle is how long a run may take to settle where nothing is said. It is over
// as soon as it has.
const DefaultSettle = 5 * time.Minute

// Topology is what the fleet consists of.
type Topology struct {
	Hubs  HubNames `yaml:"hubs"`
	Edges Edges    `yaml:"edges"`
	Pools []Pool   `yaml:"pools,omitempty"` // those that are not as by default
}

// HubNames are hub-1, hub-2, …; a text has their number.
type HubNames []string

// Edges are a fleet's; a text has groups of edges that are alike and follow each other.
type Edges []Edge

// Edge is an edge and its place.
type Edge struct {
	Name       string  `yaml:"-"`                    // edge-1, edge-2, …
	Datacenter string  `yaml:"datacenter,omitempty"` // "": dc1
	Pool       string  `yaml:"pool,omitempty"`       // "": default
	Site       string  `yaml:"site,omitempty"`       // "": none. Edges of a site are one target
	Link       Profile `yaml:"link,omitempty"`
	CPU        int     `yaml:"cpu,omitempty"`     // MHz; 0: DefaultEdgeCPU
	MemoryMB   int     `yaml:"memory,omitempty"`  // 0: DefaultEdgeMemoryMB
	JournalKiB int     `yaml:"journal,omitempty"` // bound of its journal; 0: that of production
	// BackoffCap is its longest pause between rounds of dialing; 0: that of production.
	BackoffCap time.Duration `yaml:"backoff_cap,omitempty"`
}

// What an edge has where nothing is said.
const (
	DefaultEdgeCPU      = 4000
	DefaultEdgeMemoryMB = 4096
	DefaultDatacenter   = "dc1"
)

// Pool is a node pool.
type Pool struct {
	Name       string        `yaml:"name"`
	Disconnect string        `yaml:"disconnect,omitempty"` // fleet.DisconnectKeep or DisconnectNomad; "": keep
	TTL        time.Duration `yaml:"ttl,omitempty"`        // 0: by the size of the fleet
}

// Job is a job of the workload, registered at Start. Where HCL is given it is the
// job; else the other fields are, for one group "main" with one task "main" of the
// driver sim.
type Job struct {
	ID    fleet.JobID   `yaml:"id"`
	Start time.Duration `yaml:"start,omitempty"`
	HCL   string        `yaml:"hcl,omitempty"`
	// Next is the job file that Update registers in place of HCL; "": as HCL, with other tasks.
	Next string `yaml:"next,omitempty"`

	Type        string                  `yaml:"type,omitempty"` // service, batch or system
	Count       int                     `yaml:"count,omitempty"`
	Datacenters []string                `yaml:"datacenters,omitempty"`      // nil: all
	Pool        string                  `yaml:"pool,omitempty"`             // "": default
	Site        string                  `yaml:"site,omitempty"`             // "": any; a constraint on node.site
	Distinct    bool                    `yaml:"distinct,omitempty"`         // distinct_hosts
	CPU         int                     `yaml:"cpu,omitempty"`              // 0: DefaultTaskCPU
	MemoryMB    int                     `yaml:"memory,omitempty"`           // 0: DefaultTaskMemoryMB
	Port        int                     `yaml:"port,omitempty"`             // a static port; 0: none
	Ports       int                     `yaml:"ports,omitempty"`            // dynamic ports
	Cores       int                     `yaml:"cores,omitempty"`            // whole cores, in place of CPU
	Devices     int                     `yaml:"devices,omitempty"`          // of DeviceName
	MaxRun      time.Duration           `yaml:"max_run_duration,omitempty"` // 0: none
	KillTimeout time.Duration           `yaml:"kill_timeout,omitempty"`
	Rollout     Rollout                 `yaml:",inline"`
	Serves      bool                    `yaml:"serves,omitempty"` // it is in the catalogue of services
	Every       time.Duration           `yaml:"every,omitempty"`  // it is launched so often, by the clock; 0: it runs itself
	NoOverlap   bool                    `yaml:"prohibit_overlap,omitempty"`
	Task        Script                  `yaml:",inline"`
	Disconnect  *fleet.Disconnect       `yaml:"disconnect,omitempty"`
	Restart     *fleet.RestartPolicy    `yaml:"restart,omitempty"`
	Reschedule  *fleet.ReschedulePolicy `yaml:"reschedule,omitempty"`
}

// Rollout is how a job's new versions come: its update block. What is zero is as by
// default.
type Rollout struct {
	MaxParallel int           `yaml:"max_parallel,omitempty"`
	MinHealthy  time.Duration `yaml:"min_healthy_time,omitempty"`
	Canary      int           `yaml:"canary,omitempty"`
	AutoPromote bool          `yaml:"auto_promote,omitempty"`
	AutoRevert  bool          `yaml:"auto_revert,omitempty"`
	MaxPerSite  int           `yaml:"max_unavailable_per_site,omitempty"`
	WaitFor     string        `yaml:"wait_for,omitempty"` // "": reachable
	// A window of updates opens so often, counted from full hours, and for so long; 0: it
	// is always open.
	WindowEvery time.Duration `yaml:"window_every,omitempty"`
	WindowFor   time.Duration `yaml:"window_for,omitempty"`
}

// What a task asks for where nothing is said.
const (
	DefaultTaskCPU      = 50
	DefaultTaskMemoryMB = 32
)

// DeviceName is what a job with Devices asks for: each virtual edge has some.
const DeviceName = "sim/usb/stick"

// Script is how the simulated task behaves (package drivers/sim).
type Script struct {
	RunFor        time.Duration `yaml:"run_for,omitempty"` // 0: until it is stopped
	ExitCode      int           `yaml:"exit_code,omitempty"`
	StartDelay    time.Duration `yaml:"start_delay,omitempty"`
	StartError    string        `yaml:"start_error,omitempty"`
	KillAfter     time.Duration `yaml:"kill_after,omitempty"` // from a signal to its end
	IgnoreSignals bool          `yaml:"ignore_signals,omitempty"`
}

// Verb is what is done to a job.
type Verb string

// What a user can do to a job.
const (
	Run     Verb = "run"    // registered again after Stop or Purge, as it was last
	Scale   Verb = "scale"  // another count
	Update  Verb = "update" // a new version, which replaces its tasks
	Touch   Verb = "touch"  // a new version, which its tasks survive
	Stop    Verb = "stop"
	Purge   Verb = "purge"
	Promote Verb = "promote" // its canaries, as soon as they are healthy
	// Dispatch launches a parameterized job.
	Dispatch Verb = "dispatch"
)

// Step is one thing that a user does. Where it cannot be done, for want of a leader,
// it is tried again until it is; later steps of the same job wait for it.
type Step struct {
	At    time.Duration `yaml:"at"`
	Verb  Verb          `yaml:"do"`
	Job   fleet.JobID   `yaml:"job"`
	Count int           `yaml:"count,omitempty"` // Scale
}
