package fleet

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Job types.
const (
	JobTypeService  = "service"
	JobTypeBatch    = "batch"
	JobTypeSystem   = "system"
	JobTypeSysBatch = "sysbatch"
)

// RunsToCompletion reports whether jobs of a type are done once their allocations have
// ended.
func RunsToCompletion(jobType string) bool {
	return jobType == JobTypeBatch || jobType == JobTypeSysBatch
}

// RunsEverywhere reports whether jobs of a type have an allocation of each group on every
// node that suits them.
func RunsEverywhere(jobType string) bool {
	return jobType == JobTypeSystem || jobType == JobTypeSysBatch
}

// Job statuses, derived from a job's allocations and evaluations.
const (
	JobStatusPending = "pending"
	JobStatusRunning = "running"
	JobStatusDead    = "dead"
)

// Bounds and defaults of a job, as Nomad has them.
const (
	JobPriorityMin     = 1
	JobPriorityDefault = 50
	JobPriorityMax     = 100
	JobCountMax        = 50_000
	JobVersionsKept    = 6
	DefaultRegion      = "global"
)

// Job is what a user declares: what is to run, how often, and where.
type Job struct {
	Region            string
	Namespace         string
	ID                JobID
	Name              string
	Type              string
	Priority          int
	AllAtOnce         bool
	Datacenters       []string
	NodePool          string
	Constraints       []Constraint
	Affinities        []Affinity
	Spreads           []Spread
	TaskGroups        []TaskGroup
	Periodic          *Periodic
	ParameterizedJob  *ParameterizedJob
	Multiregion       *Multiregion
	UI                *JobUI
	Meta              map[string]string
	ConsulNamespace   string
	VaultNamespace    string
	Stop              bool
	Stable            bool
	Status            string
	StatusDescription string
	Version           uint64
	SubmitTime        int64 // UnixNano, the hub's clock
	CreateIndex       Index
	ModifyIndex       Index
	JobModifyIndex    Index // changes only when the specification does

	// What a job that was launched or dispatched has of its parent.
	ParentID                 JobID
	Dispatched               bool
	DispatchIdempotencyToken string
	Payload                  []byte

	VersionTag *JobVersionTag `json:",omitempty"`

	// Ignored are paths of what a job file asked for and was passed over when it was
	// read: for Warnings, and kept nowhere.
	Ignored []string `json:"-"`

	// SpecHash is the content hash of the specification (see SpecHash in
	// package hub/state): two versions with the same hash run the same thing.
	SpecHash string `json:",omitempty"`
}

// TaskGroup is a set of tasks that run together on one node, Count times.
type TaskGroup struct {
	Name             string
	Count            int
	Constraints      []Constraint
	Affinities       []Affinity
	Spreads          []Spread
	Tasks            []Task
	RestartPolicy    *RestartPolicy    // nil only before Defaults
	ReschedulePolicy *ReschedulePolicy // nil only before Defaults, and for types that are never rescheduled
	Disconnect       *Disconnect       // nil: the node pool's default holds
	Update           *Update           // nil: all at once, no deployment; see DefaultUpdate
	Migrate          *Migrate          // nil for types that are not migrated
	EphemeralDisk    EphemeralDisk
	Networks         []NetworkResource
	Services         []Service
	Volumes          map[string]VolumeRequest
	Scaling          *ScalingPolicy
	Consul           *Consul
	ShutdownDelay    *time.Duration
	MaxRunDuration   *time.Duration // nil: as long as it takes
	LocalControl     *LocalControl  `json:",omitempty"` // nil: people on site may do everything
	Meta             map[string]string
}

// EphemeralDisk is what an allocation may take of its node's disk.
type EphemeralDisk struct {
	SizeMB  int  // default DefaultDiskMB where a job file says nothing
	Sticky  bool // a replacement shall be placed where the data lies
	Migrate bool // a replacement elsewhere shall be given the data
}

// Task is one thing that a driver runs.
type Task struct {
	Name            string
	Driver          string
	User            string
	Lifecycle       *Lifecycle // nil: a main task
	Config          map[string]any
	Env             map[string]string
	Constraints     []Constraint
	Affinities      []Affinity
	Services        []Service
	Resources       TaskResources
	RestartPolicy   *RestartPolicy // nil only before Defaults
	Meta            map[string]string
	KillTimeout     time.Duration
	KillSignal      string // default SIGTERM
	ShutdownDelay   time.Duration
	Leader          bool
	Kind            string
	LogConfig       LogConfig
	Artifacts       []TaskArtifact
	Templates       []Template
	Vault           *Vault
	Consul          *Consul
	Secrets         []Secret
	Identity        *WorkloadIdentity // the default one; nil: as it is for every task
	Identities      []WorkloadIdentity
	DispatchPayload *DispatchPayload
	VolumeMounts    []VolumeMount
	CSIPluginConfig *CSIPlugin `json:",omitempty"`
	ScalingPolicies []ScalingPolicy
	Actions         []Action
	Schedule        *TaskSchedule
}

// LogConfig bounds what a task's output may take on an edge's disk.
type LogConfig struct {
	MaxFiles      int // of each of stdout and stderr
	MaxFileSizeMB int
	Disabled      bool
}

// Restart modes: after Attempts restarts within Interval either fail the
// allocation, or wait until the interval is over and go on.
const (
	RestartModeFail  = "fail"
	RestartModeDelay = "delay"
)

// RestartPolicy says how an edge itself restarts a task that ended.
type RestartPolicy struct {
	Attempts int           `yaml:"attempts"`
	Interval time.Duration `yaml:"interval"`
	Delay    time.Duration `yaml:"delay"`
	Mode     string        `yaml:"mode"`
	// RenderTemplates renders templates with once anew before a task is restarted; others always are.
	RenderTemplates bool `yaml:"render_templates,omitempty"`
}

// Delay functions of a ReschedulePolicy.
const (
	DelayConstant    = "constant"
	DelayExponential = "exponential"
	DelayFibonacci   = "fibonacci"
)

// ReschedulePolicy says how the hub replaces a failed allocation.
type ReschedulePolicy struct {
	Attempts      int           `yaml:"attempts,omitempty"`
	Interval      time.Duration `yaml:"interval,omitempty"`
	Delay         time.Duration `yaml:"delay,omitempty"`
	DelayFunction string        `yaml:"delay_function,omitempty"`
	MaxDelay      time.Duration `yaml:"max_delay,omitempty"`
	Unlimited     bool          `yaml:"unlimited,omitempty"`
}

// Strategies of Disconnect.Reconcile, and what absence of a block means.
const (
	ReconcileKeepOriginal    = "keep_original"
	ReconcileKeepReplacement = "keep_replacement"
	ReconcileLongestRunning  = "longest_running"
	ReconcileBestScore       = "best_score"
)

// Disconnect says what happens to a group's allocations on a node that lost its
// link. LostAfter and StopOnClientAfter exclude each other.
type Disconnect struct {
	LostAfter         *time.Duration `yaml:"lost_after,omitempty"`           // nil: never lost for being away alone
	StopOnClientAfter *time.Duration `yaml:"stop_on_client_after,omitempty"` // nil: the edge never stops it for being away
	Replace           *bool          `yaml:"replace,omitempty"`              // nil: true
	Reconcile         string         `yaml:"reconcile,omitempty"`            // "": best_score
}

// Group returns the group of that name, or nil.
func (j *Job) Group(name string) *TaskGroup {
	for i := range j.TaskGroups {
		if j.TaskGroups[i].Name == name {
			return &j.TaskGroups[i]
		}
	}
	return nil
}

// RunsOn is the time for which an edge runs a group without a hub if nothing stops it.
const RunsOn = time.Duration(math.MaxInt64)

// RunsAloneFor returns for how long an edge that has lost all hubs may run the group: until stop_on_client_after is over and
// its tasks have ended. Tasks end after the group's shutdown_delay: the leader first, then all others together, each after
// its own delay and kill_timeout. It returns RunsOn without stop_on_client_after, and for a nil group.
func (g *TaskGroup) RunsAloneFor() time.Duration {
	if g == nil || g.Disconnect == nil || g.Disconnect.StopOnClientAfter == nil {
		return RunsOn
	}
	var group, leader, others time.Duration
	if g.ShutdownDelay != nil {
		group = *g.ShutdownDelay
	}
	for i := range g.Tasks {
		t := &g.Tasks[i]
		if took := t.ShutdownDelay + t.KillTimeout; t.Leader {
			leader = max(leader, took)
		} else {
			others = max(others, took)
		}
	}
	return *g.Disconnect.StopOnClientAfter + group + leader + others
}

// Task returns the task of that name, or nil.
func (g *TaskGroup) Task(name string) *Task {
	for i := range g.Tasks {
		if g.Tasks[i].Name == name {
			return &g.Tasks[i]
		}
	}
	return nil
}

// Resources returns what one allocation of the group needs: tasks that run before or
// after the main ones do not need their own beside them, sidecars do.
func (g *TaskGroup) Resources() Resources {
	var before, main, after Resources
	always := Resources{DiskMB: g.EphemeralDisk.SizeMB}
	for i := range g.Tasks {
		t := &g.Tasks[i]
		takes := t.Resources.WithSecrets()
		if takes.MemoryMaxMB == 0 && g.hasOversubscribedTask() {
			takes.MemoryMaxMB = takes.MemoryMB
		}
		switch l := t.Lifecycle; {
		case l != nil && l.Sidecar:
			always = always.Add(takes)
		case l != nil && l.Hook == HookPrestart:
			before = before.Add(takes)
		case l != nil && l.Hook == HookPoststop:
			after = after.Add(takes)
		default:
			main = main.Add(takes)
		}
	}
	return always.Add(before.largerOfEach(main).largerOfEach(after))
}

// hasOversubscribedTask reports whether a task of the group may take more memory than it
// reserves.
func (g *TaskGroup) hasOversubscribedTask() bool {
	return slices.ContainsFunc(g.Tasks, func(t Task) bool { return t.Resources.MemoryMaxMB > 0 })
}

// Stopped reports whether nothing of the job shall run (a purged job is nil).
func (j *Job) Stopped() bool { return j == nil || j.Stop }

// InDatacenter reports whether the job may run in a datacenter. "*" in its list
// stands for any characters; an empty list for every datacenter.
func (j *Job) InDatacenter(dc string) bool {
	if len(j.Datacenters) == 0 {
		return true
	}
	for _, pattern := range j.Datacenters {
		if MatchGlob(pattern, dc) {
			return true
		}
	}
	return false
}

// MatchGlob matches s against a pattern in which "*" stands for any characters.
func MatchGlob(pattern, s string) bool {
	first, rest, isGlob := strings.Cut(pattern, "*")
	if !isGlob {
		return pattern == s
	}
	s, found := strings.CutPrefix(s, first)
	for found {
		var part string
		part, rest, isGlob = strings.Cut(rest, "*")
		if !isGlob {
			return strings.HasSuffix(s, part)
		}
		_, s, found = strings.Cut(s, part)
	}
	return false
}

// InPool reports whether the job may run on nodes of a pool.
func (j *Job) InPool(pool string) bool {
	if pool == "" {
		pool = DefaultPool
	}
	switch j.NodePool {
	case "":
		return pool == DefaultPool
	case AllPools:
		return true
	}
	return j.NodePool == pool
}

// Defaults of a task.
const (
	DefaultKillTimeout   = 5 * time.Second
	DefaultKillSignal    = "SIGTERM"
	DefaultLogFiles      = 10
	DefaultLogFileSizeMB = 10
)

// DefaultRestart returns how tasks of a job type are restarted where a job file
// says nothing.
func DefaultRestart(jobType string) RestartPolicy {
	switch jobType {
	case JobTypeBatch, JobTypeSysBatch:
		return RestartPolicy{Attempts: 3, Interval: 24 * time.Hour, Delay: 15 * time.Second, Mode: RestartModeFail}
	}
	return RestartPolicy{Attempts: 2, Interval: 30 * time.Minute, Delay: 15 * time.Second, Mode: RestartModeFail}
}

// DefaultReschedule returns how failed allocations of a job type are replaced where
// a job file says nothing; nil for types that are never rescheduled.
func DefaultReschedule(jobType string) *ReschedulePolicy {
	switch jobType {
	case JobTypeService:
		return &ReschedulePolicy{
			Delay: 30 * time.Second, DelayFunction: DelayExponential, MaxDelay: time.Hour, Unlimited: true,
		}
	case JobTypeBatch:
		return &ReschedulePolicy{
			Attempts: 1, Interval: 24 * time.Hour, Delay: 5 * time.Second, DelayFunction: DelayConstant,
		}
	}
	return nil
}

// Bounds of a job as text, HCL or JSON.
const (
	MaxJobSize  = 1 << 20
	MaxJobDepth = 100 // of nested objects, lists and blocks
)

// Bounds of names and lists of a job.
const (
	MaxJobIDLength = 255
	MaxNameLength  = 128
	MaxTaskGroups  = 1000
	MaxTasks       = 100 // in a group
	MaxLogFiles    = 1000
	MaxDuration    = 400 * 24 * time.Hour // the longest absence a link is meant to survive
	// MinStopOnClientAfter is the shortest time without a hub after which an edge
	// may be told to stop an allocation: it beats three times within it.
	MinStopOnClientAfter = 3 * time.Second
)

// TaskMeta returns what a task is given as meta: the task's own over its group's
// over the job's.
func (j *Job) TaskMeta(group, task string) map[string]string {
	meta := maps.Clone(j.Meta)
	if meta == nil {
		meta = map[string]string{}
	}
	g := j.Group(group)
	if g == nil {
		return meta
	}
	maps.Copy(meta, g.Meta)
	if t := g.Task(task); t != nil {
		maps.Copy(meta, t.Meta)
	}
	return meta
}
