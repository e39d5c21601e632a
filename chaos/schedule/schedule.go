package schedule

import (
	"time"

	"skerry/fleet"
)

// Schedule describes a run. Its times count from the moment when all hubs and edges
// are up and ready.
type Schedule struct {
	Comment string        `yaml:"-"`              // the text's first lines, without their #: the purpose of the schedule
	Seed    uint64        `yaml:"seed,omitempty"` // of the executor's own random choices: latencies, phases, ids
	Length  time.Duration `yaml:"length"`
	Settle  time.Duration `yaml:"settle"` // time after Length, without faults, in which the fleet has to become quiet
	// Operations is the number of registrations and reads a minute, beside the Steps, on
	// small jobs of their own. The linearizability checker judges them.
	Operations int `yaml:"operations,omitempty"`
	// Access turns access control on: users have tokens, which end and are drawn anew.
	Access bool `yaml:"access,omitempty"`
	// Secrets is the number of operations a minute on variables: those of jobs with Secret, some that no job may
	// read, and a lock.
	Secrets  int           `yaml:"secrets,omitempty"`
	Topology Topology      `yaml:",inline"`
	Jobs     []Job         `yaml:"jobs,omitempty"`
	Steps    []Step        `yaml:"-"` // document writes these three, and allows repetitions
	Faults   []Fault       `yaml:"-"`
	Expect   []Expectation `yaml:"-"`
}

// DefaultSettle is the Settle of a schedule that sets none. A run ends earlier when the
// fleet has become quiet.
const DefaultSettle = 5 * time.Minute

// Topology lists the hubs, edges and node pools of the fleet.
type Topology struct {
	Hubs  HubNames `yaml:"hubs"`
	Edges Edges    `yaml:"edges"`
	Pools []Pool   `yaml:"pools,omitempty"` // the pools whose settings are not the defaults
}

// HubNames are hub-1, hub-2, …; YAML has only their number.
type HubNames []string

// Edges are the edges of a fleet. YAML has groups: neighbours with the same attributes are one group.
type Edges []Edge

// Edge is an edge: its name, its location, and the size of its machine.
type Edge struct {
	Name       string  `yaml:"-"`                    // edge-1, edge-2, …
	Datacenter string  `yaml:"datacenter,omitempty"` // "": dc1
	Pool       string  `yaml:"pool,omitempty"`       // "": default
	Site       string  `yaml:"site,omitempty"`       // "": none. A fault can name a site as its target
	Link       Profile `yaml:"link,omitempty"`
	CPU        int     `yaml:"cpu,omitempty"`     // MHz; 0: DefaultEdgeCPU
	MemoryMB   int     `yaml:"memory,omitempty"`  // 0: DefaultEdgeMemoryMB
	JournalKiB int     `yaml:"journal,omitempty"` // maximum size of its journal; 0: the production default
	// BackoffCap is the longest pause between two rounds of dialing; 0: the production default.
	BackoffCap time.Duration `yaml:"backoff_cap,omitempty"`
}

// Defaults of an edge.
const (
	DefaultEdgeCPU      = 4000
	DefaultEdgeMemoryMB = 4096
	DefaultDatacenter   = "dc1"
)

// Pool is a node pool.
type Pool struct {
	Name       string        `yaml:"name"`
	Disconnect string        `yaml:"disconnect,omitempty"` // fleet.DisconnectKeep or DisconnectNomad; "": keep
	TTL        time.Duration `yaml:"ttl,omitempty"`        // heartbeat TTL; 0: computed from the size of the fleet
}

// Job is a job of the workload, registered at Start. If HCL is set, it is the whole
// job. Otherwise the fields from Type on describe the job: one group "main" with one
// task "main" of the driver sim.
type Job struct {
	ID    fleet.JobID   `yaml:"id"`
	Start time.Duration `yaml:"start,omitempty"`
	HCL   string        `yaml:"hcl,omitempty"`
	// Next is the job file that the first Update registers in place of HCL. "": Update
	// registers HCL again with another environment, which replaces the tasks.
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
	Devices     int                     `yaml:"devices,omitempty"`          // number of devices with DeviceName
	MaxRun      time.Duration           `yaml:"max_run_duration,omitempty"` // 0: none
	KillTimeout time.Duration           `yaml:"kill_timeout,omitempty"`
	Rollout     Rollout                 `yaml:",inline"`
	Serves      bool                    `yaml:"serves,omitempty"`     // registers a service with the job's name
	HoldUntil   string                  `yaml:"hold_until,omitempty"` // until of its local_control; "": released
	Secret      bool                    `yaml:"secret,omitempty"`     // a template of its task reads the job's variable
	Identity    time.Duration           `yaml:"identity,omitempty"`   // ttl of the identity of its task; 0: it has none
	Offline     bool                    `yaml:"offline,omitempty"`    // its edge may renew the identity without a link
	Every       time.Duration           `yaml:"every,omitempty"`      // a periodic job, launched at this interval; 0: not periodic
	NoOverlap   bool                    `yaml:"prohibit_overlap,omitempty"`
	AtEdge      bool                    `yaml:"run_at_edge,omitempty"` // edges launch it, also without a link
	Payload     string                  `yaml:"payload,omitempty"`     // a parameterized job: optional, required or forbidden; "": not parameterized
	Task        Script                  `yaml:",inline"`
	Driver      string                  `yaml:"driver,omitempty"` // docker or podman, on real processes; "": the usual one of the run
	Disconnect  *fleet.Disconnect       `yaml:"disconnect,omitempty"`
	Restart     *fleet.RestartPolicy    `yaml:"restart,omitempty"`
	Reschedule  *fleet.ReschedulePolicy `yaml:"reschedule,omitempty"`
}

// Rollout is the update block of a job. A zero field has the default of the job's type.
type Rollout struct {
	MaxParallel int           `yaml:"max_parallel,omitempty"`
	MinHealthy  time.Duration `yaml:"min_healthy_time,omitempty"`
	Canary      int           `yaml:"canary,omitempty"`
	AutoPromote bool          `yaml:"auto_promote,omitempty"`
	AutoRevert  bool          `yaml:"auto_revert,omitempty"`
	MaxPerSite  int           `yaml:"max_unavailable_per_site,omitempty"`
	WaitFor     string        `yaml:"wait_for,omitempty"` // "": reachable
	// An update window opens every WindowEvery, counted from full hours, and stays open
	// for WindowFor. 0: the job has no windows and may be updated at any time.
	WindowEvery time.Duration `yaml:"window_every,omitempty"`
	WindowFor   time.Duration `yaml:"window_for,omitempty"`
}

// Default resources of a task.
const (
	DefaultTaskCPU      = 50
	DefaultTaskMemoryMB = 32
)

// DeviceName is the device that a job with Devices asks for. Each virtual edge has some.
const DeviceName = "sim/usb/stick"

// Script is the behaviour of a simulated task (package drivers/sim).
type Script struct {
	RunFor        time.Duration `yaml:"run_for,omitempty"` // 0: runs until it is stopped
	ExitCode      int           `yaml:"exit_code,omitempty"`
	StartDelay    time.Duration `yaml:"start_delay,omitempty"`
	StartError    string        `yaml:"start_error,omitempty"`
	KillAfter     time.Duration `yaml:"kill_after,omitempty"` // time from a stop signal to the task's end
	IgnoreSignals bool          `yaml:"ignore_signals,omitempty"`
}

// Verb is an action of a user on a job.
type Verb string

// The actions of a user on a job.
const (
	Run     Verb = "run"    // registers the job again after Stop or Purge, in its last version
	Scale   Verb = "scale"  // changes the count of the first group
	Update  Verb = "update" // registers a new version, which replaces the tasks
	Touch   Verb = "touch"  // registers a new version that leaves the tasks running
	Stop    Verb = "stop"
	Purge   Verb = "purge"
	Promote Verb = "promote" // promotes the canaries as soon as they are healthy
	// Dispatch launches a parameterized job.
	Dispatch Verb = "dispatch"
	// Store writes the variable of a job with Secret.
	Store Verb = "store"
)

// Step is one action of a user. If it fails for want of a leader, it is repeated until
// it succeeds; later steps of the same job wait for it.
type Step struct {
	At    time.Duration `yaml:"at"`
	Verb  Verb          `yaml:"do"`
	Job   fleet.JobID   `yaml:"job"`
	Count int           `yaml:"count,omitempty"` // the new count, of Scale alone
	Flaw  Flaw          `yaml:"flaw,omitempty"`  // why hubs refuse it, of Dispatch alone; "": they do not
}
