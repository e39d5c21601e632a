package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Bounds of a job as text, HCL or JSON.
const (
	MaxJobSize  = 1 << 20
	MaxJobDepth = 100 // of nested objects, lists and blocks
)

// DecodeJob reads a job in Nomad's JSON shape (the object below "Job") and fills in
// the defaults of its type. Null and absent mean the default, 0 means 0; durations
// are nanoseconds or text ("1h30m"); a policy given in part is merged into the
// default of the job's type. What this release does not act on is a problem by its
// name, unless it is empty or what Nomad's client sends without being asked.
// The job is not validated beyond its shape; it is never nil.
func DecodeJob(data []byte) (*Job, Problems) {
	tree, err := decodeTree(data)
	if err != nil {
		return &Job{}, Problems{{Message: err.Error()}}
	}
	return JobFromTree(tree)
}

// decodeTree reads one bounded JSON object, numbers as json.Number.
func decodeTree(data []byte) (map[string]any, error) {
	if len(data) > MaxJobSize {
		return nil, fmt.Errorf("a job of %d bytes: at most %d", len(data), MaxJobSize)
	}
	if JSONDepth(data) > MaxJobDepth {
		return nil, fmt.Errorf("nested more than %d deep", MaxJobDepth)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var tree map[string]any
	if err := dec.Decode(&tree); err != nil {
		return nil, fmt.Errorf("not a job in JSON: %w", positioned(data, err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a job in JSON: something follows the object")
	}
	if tree == nil {
		return nil, errors.New("not a job in JSON: null")
	}
	return tree, nil
}

// positioned adds line and column to a syntax error.
func positioned(data []byte, err error) error {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) || syntax.Offset < 1 || syntax.Offset > int64(len(data)) {
		return err
	}
	before := data[:syntax.Offset-1]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Errorf("line %d, column %d: %w", line, column, err)
}

// JSONDepth returns how deep objects and lists are nested, without decoding: what is
// too deep is to be refused before a recursive decoder sees it.
func JSONDepth(data []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// JobFromTree is DecodeJob for a tree that was already read: map[string]any, []any,
// string, bool, nil, and numbers as json.Number, int, int64 or float64. Package
// jobspec makes one from HCL, so that both kinds of job files have the same rules.
func JobFromTree(tree map[string]any) (*Job, Problems) {
	var ps Problems
	o := &object{m: tree, problems: &ps}
	j := &Job{
		Region: DefaultRegion, Namespace: DefaultNamespace, NodePool: DefaultPool,
		Type: JobTypeService, Priority: JobPriorityDefault, Datacenters: []string{"*"},
	}
	readString(o, "ID", &j.ID)
	j.Name = string(j.ID)
	readString(o, "Name", &j.Name)
	o.text("Region", &j.Region)
	o.text("Namespace", &j.Namespace)
	o.text("Type", &j.Type)
	o.text("NodePool", &j.NodePool)
	setDefault(&j.Name, string(j.ID))
	setDefault(&j.Region, DefaultRegion)
	setDefault(&j.Namespace, DefaultNamespace)
	setDefault(&j.NodePool, DefaultPool)
	o.integer("Priority", &j.Priority)
	o.boolean("AllAtOnce", &j.AllAtOnce)
	o.boolean("Stop", &j.Stop)
	if o.texts("Datacenters", &j.Datacenters); len(j.Datacenters) == 0 {
		j.Datacenters = []string{"*"}
	}
	j.Constraints = readConstraints(o)
	o.textMap("Meta", &j.Meta)
	reschedule := newReschedule(j.Type)
	reschedule.read(o, "Reschedule")
	for _, g := range o.objects("TaskGroups") {
		j.TaskGroups = append(j.TaskGroups, readGroup(g, j.Type, reschedule))
	}
	readServerFields(o, j)
	o.unsupportedPresent("Multiregion", "Periodic", "ParameterizedJob")
	o.unsupported("Affinities", "Spreads", "UI", "ParentID", "Dispatched", "DispatchIdempotencyToken", "Payload", "ConsulToken", "VaultToken")
	readRollout(o, j.Type)
	o.unsupportedText("ConsulNamespace", DefaultNamespace)
	o.unsupportedText("VaultNamespace", DefaultNamespace)
	o.done()
	return j, ps
}

// readServerFields reads what a hub wrote into a job that is handed in again.
func readServerFields(o *object, j *Job) {
	o.text("Status", &j.Status)
	o.text("StatusDescription", &j.StatusDescription)
	o.boolean("Stable", &j.Stable)
	readCounter(o, "Version", &j.Version)
	readCounter(o, "SubmitTime", &j.SubmitTime)
	readCounter(o, "CreateIndex", &j.CreateIndex)
	readCounter(o, "ModifyIndex", &j.ModifyIndex)
	readCounter(o, "JobModifyIndex", &j.JobModifyIndex)
	o.ignore("SpecHash", "NomadTokenID", "VersionTag")
}

// What Nomad's client sends where a job says nothing.
var (
	updateDefaults = map[string]any{
		"Stagger": int64(30 * time.Second), "MaxParallel": 1, "HealthCheck": "checks",
		"MinHealthyTime": int64(10 * time.Second), "HealthyDeadline": int64(5 * time.Minute),
		"ProgressDeadline": int64(10 * time.Minute),
	}
	migrateDefaults = map[string]any{
		"MaxParallel": 1, "HealthCheck": "checks",
		"MinHealthyTime": int64(10 * time.Second), "HealthyDeadline": int64(5 * time.Minute),
	}
	consulDefaults = map[string]any{"Cluster": "default", "Namespace": DefaultNamespace}
)

// readRollout refuses what asks for a deployment. Nomad's client sends the defaults
// for services without being asked; for other types it means somebody did ask.
func readRollout(o *object, jobType string) {
	update, migrate := updateDefaults, migrateDefaults
	if jobType != JobTypeService {
		update, migrate = nil, nil
	}
	o.unsupportedBut("Update", update)
	o.unsupportedBut("Migrate", migrate)
}

func readGroup(o *object, jobType string, inherited rescheduleReader) TaskGroup {
	restart := DefaultRestart(jobType)
	g := TaskGroup{Count: 1, EphemeralDisk: EphemeralDisk{SizeMB: DefaultDiskMB}}
	o.text("Name", &g.Name)
	o.integer("Count", &g.Count)
	g.Constraints = readConstraints(o)
	o.textMap("Meta", &g.Meta)
	readRestart(o, &restart)
	g.RestartPolicy = &restart
	inherited.read(o, "ReschedulePolicy")
	g.ReschedulePolicy = inherited.policy()
	g.Disconnect = readDisconnect(o)
	if d, ok := o.object("EphemeralDisk"); ok {
		d.integer("SizeMB", &g.EphemeralDisk.SizeMB)
		d.unsupported("Sticky", "Migrate")
		d.done()
	}
	for _, t := range o.objects("Tasks") {
		g.Tasks = append(g.Tasks, readTask(t, restart))
	}
	o.unsupported("Affinities", "Spreads", "Volumes", "Networks", "Services", "ShutdownDelay", "MaxRunDuration",
		"StopAfterClientDisconnect", "MaxClientDisconnect", "PreventRescheduleOnLost", "Scaling")
	readRollout(o, jobType)
	o.unsupportedBut("Consul", consulDefaults)
	o.done()
	return g
}

func readTask(o *object, restart RestartPolicy) Task {
	t := Task{
		Resources:   Resources{CPU: DefaultCPU, MemoryMB: DefaultMemoryMB},
		KillTimeout: DefaultKillTimeout,
		LogConfig:   LogConfig{MaxFiles: DefaultLogFiles, MaxFileSizeMB: DefaultLogFileSizeMB},
	}
	o.text("Name", &t.Name)
	o.text("Driver", &t.Driver)
	if c, ok := o.object("Config"); ok {
		t.Config = plain(c.m).(map[string]any)
	}
	o.textMap("Env", &t.Env)
	o.textMap("Meta", &t.Meta)
	t.Constraints = readConstraints(o)
	readResources(o, &t.Resources)
	readRestart(o, &restart)
	t.RestartPolicy = &restart
	o.duration("KillTimeout", &t.KillTimeout)
	o.text("KillSignal", &t.KillSignal)
	setDefault(&t.KillSignal, DefaultKillSignal)
	o.boolean("Leader", &t.Leader)
	readLogs(o, &t.LogConfig)
	o.unsupported("User", "Lifecycle", "Affinities", "Services", "Artifacts", "Vault", "Templates",
		"DispatchPayload", "VolumeMounts", "CSIPluginConfig", "ShutdownDelay", "Kind", "ScalingPolicies",
		"Secrets", "Identity", "Identities", "Actions", "Schedule")
	o.unsupportedBut("Consul", consulDefaults)
	o.done()
	return t
}

func readResources(o *object, r *Resources) {
	res, ok := o.object("Resources")
	if !ok {
		return
	}
	res.integer("CPU", &r.CPU)
	res.integer("MemoryMB", &r.MemoryMB)
	res.integer("DiskMB", &r.DiskMB)
	res.unsupported("Cores", "MemoryMaxMB", "Networks", "Devices", "NUMA", "SecretsMB", "IOPS")
	res.done()
}

func readLogs(o *object, l *LogConfig) {
	logs, ok := o.object("LogConfig")
	if !ok {
		return
	}
	logs.integer("MaxFiles", &l.MaxFiles)
	logs.integer("MaxFileSizeMB", &l.MaxFileSizeMB)
	if logs.value("Enabled") == false {
		logs.problems.add(logs.at("Enabled"), "switching logs off is not supported yet")
	}
	logs.unsupported("Disabled")
	logs.done()
}

func readConstraints(o *object) []Constraint {
	var cs []Constraint
	for _, c := range o.objects("Constraints") {
		con := Constraint{Operand: OpEqual}
		c.text("LTarget", &con.LTarget)
		c.text("RTarget", &con.RTarget)
		c.text("Operand", &con.Operand)
		setDefault(&con.Operand, OpEqual)
		c.done()
		cs = append(cs, con)
	}
	return cs
}

// readRestart merges what is given into p.
func readRestart(o *object, p *RestartPolicy) {
	r, ok := o.object("RestartPolicy")
	if !ok {
		return
	}
	r.integer("Attempts", &p.Attempts)
	r.duration("Interval", &p.Interval)
	r.duration("Delay", &p.Delay)
	r.text("Mode", &p.Mode)
	r.unsupported("RenderTemplates")
	r.done()
}

func readDisconnect(o *object) *Disconnect {
	d, ok := o.object("Disconnect")
	if !ok {
		return nil
	}
	var out Disconnect
	d.optionalDuration("LostAfter", &out.LostAfter)
	d.optionalDuration("StopOnClientAfter", &out.StopOnClientAfter)
	if d.has("Replace") {
		replace := true
		d.boolean("Replace", &replace)
		out.Replace = &replace
	}
	d.text("Reconcile", &out.Reconcile)
	d.done()
	return &out
}

// rescheduleReader merges a job's and a group's policy into the default of the job's
// type, and knows which of the two limits somebody asked for.
type rescheduleReader struct {
	p                   ReschedulePolicy
	none                bool // the job's type is never rescheduled
	attempts, unlimited bool // given
}

func newReschedule(jobType string) rescheduleReader {
	if p := DefaultReschedule(jobType); p != nil {
		return rescheduleReader{p: *p}
	}
	return rescheduleReader{none: true}
}

func (r *rescheduleReader) read(o *object, key string) {
	given, ok := o.object(key)
	if !ok {
		return
	}
	r.none = r.none && isEmpty(given.m, nil)
	r.attempts = r.attempts || given.has("Attempts")
	r.unlimited = r.unlimited || given.has("Unlimited")
	given.integer("Attempts", &r.p.Attempts)
	given.duration("Interval", &r.p.Interval)
	given.duration("Delay", &r.p.Delay)
	given.text("DelayFunction", &r.p.DelayFunction)
	given.duration("MaxDelay", &r.p.MaxDelay)
	given.boolean("Unlimited", &r.p.Unlimited)
	given.done()
}

// policy returns the merged policy. Who limits the attempts and does not mention
// unlimited wants a limit, and the other way around.
func (r rescheduleReader) policy() *ReschedulePolicy {
	if r.none {
		return nil
	}
	p := r.p
	switch {
	case r.attempts && !r.unlimited && p.Attempts > 0:
		p.Unlimited = false
	case r.unlimited && !r.attempts && p.Unlimited:
		p.Attempts, p.Interval = 0, 0
	}
	return &p
}
