package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
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
		return &Job{}, Problems{{Message: err.Error(), Hint: `a job in JSON is an object, {"ID": …, "TaskGroups": […]}`}}
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
	var kind *json.UnmarshalTypeError
	if err := dec.Decode(&tree); errors.As(err, &kind) {
		return nil, fmt.Errorf("not a job in JSON, but %s", kind.Value)
	} else if err != nil {
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
	j := &Job{Type: JobTypeService, Priority: JobPriorityDefault}
	o.fill(j, "TaskGroups")
	setDefault(&j.Type, JobTypeService)
	inherited := o.inherited(j.Type)
	for _, g := range o.objects("TaskGroups") {
		j.TaskGroups = append(j.TaskGroups, inherited.group(g, &j.Ignored))
	}
	j.Ignored = append(j.Ignored, o.ignore("NomadTokenID", "ConsulToken", "VaultToken")...)
	o.done()
	j.complete()
	return j, ps
}

// inheritance is what the groups of a job have of it where they say nothing else.
type inheritance struct {
	jobType    string
	reschedule rescheduleReader
	update     *Update
	migrate    *Migrate
}

// inherited reads the policies that stand in the job and hold for its groups.
func (o *object) inherited(jobType string) inheritance {
	in := inheritance{
		jobType: jobType, reschedule: newReschedule(jobType), update: DefaultUpdate(jobType), migrate: DefaultMigrate(jobType),
	}
	in.reschedule.read(o, "Reschedule")
	in.update = merge(o, "Update", in.update)
	in.migrate = merge(o, "Migrate", in.migrate)
	return in
}

// group reads a group, and adds to ignored what of it is passed over.
func (in inheritance) group(o *object, ignored *[]string) TaskGroup {
	restart := DefaultRestart(in.jobType)
	g := TaskGroup{Count: 1, EphemeralDisk: EphemeralDisk{SizeMB: DefaultDiskMB}, RestartPolicy: &restart}
	o.fill(&g, "ReschedulePolicy", "Update", "Migrate", "Tasks")
	if s := g.Scaling; s != nil && s.Min != nil && !o.has("Count") {
		g.Count = *s.Min
	}
	in.reschedule.read(o, "ReschedulePolicy")
	g.ReschedulePolicy = in.reschedule.policy()
	g.Update = merge(o, "Update", in.update)
	g.Migrate = merge(o, "Migrate", in.migrate)
	*ignored = append(*ignored, o.formerDisconnect(&g)...)
	for _, t := range o.objects("Tasks") {
		g.Tasks = append(g.Tasks, readTask(t, restart, ignored))
	}
	o.done()
	return g
}

// merge reads what stands under a key into a copy of what is inherited.
func merge[T any](o *object, key string, inherited *T) *T {
	into := inherited
	if inherited != nil {
		clone := *inherited
		into = &clone
	}
	sub, ok := o.object(key)
	if !ok {
		return into
	}
	if into == nil {
		if isEmpty(sub.m) {
			return nil // as Nomad's client sends it
		}
		into = newPreset(reflect.TypeFor[T]()).Interface().(*T)
	}
	sub.fill(into)
	sub.done()
	return into
}

// formerDisconnect reads what a group said of its node's absence before there was a
// disconnect block, and returns what of it is ignored: where the group gives both times, the
// edge stops its tasks as asked, and the hubs wait for that.
func (o *object) formerDisconnect(g *TaskGroup) (ignored []string) {
	var former Disconnect
	var keep *bool
	for _, f := range []struct {
		key  string
		into any
	}{
		{"MaxClientDisconnect", &former.LostAfter}, {"StopAfterClientDisconnect", &former.StopOnClientAfter},
		{"PreventRescheduleOnLost", &keep},
	} {
		if o.has(f.key) {
			o.field(f.key, reflect.ValueOf(f.into).Elem())
		}
	}
	if keep != nil && *keep {
		replace := false
		former.Replace = &replace
	}
	if former.LostAfter != nil && *former.LostAfter > 0 && former.StopOnClientAfter != nil && *former.StopOnClientAfter > 0 {
		former.LostAfter, ignored = nil, []string{o.at("MaxClientDisconnect")}
	}
	if g.Disconnect == nil && former != (Disconnect{}) {
		g.Disconnect = &former
	}
	return ignored
}

func readTask(o *object, restart RestartPolicy, ignored *[]string) Task {
	t := Task{
		Resources:     TaskResources{Resources: Resources{CPU: DefaultCPU, MemoryMB: DefaultMemoryMB}},
		KillTimeout:   DefaultKillTimeout,
		LogConfig:     LogConfig{MaxFiles: DefaultLogFiles, MaxFileSizeMB: DefaultLogFileSizeMB},
		RestartPolicy: &restart,
	}
	o.fill(&t, "Resources", "LogConfig")
	if res, ok := o.object("Resources"); ok {
		res.fill(&t.Resources)
		if t.Resources.Cores > 0 && !res.has("CPU") {
			t.Resources.CPU = 0
		}
		*ignored = append(*ignored, res.ignore("IOPS")...)
		res.done()
	}
	if logs, ok := o.object("LogConfig"); ok {
		logs.fill(&t.LogConfig)
		if logs.value("Enabled") == false {
			t.LogConfig.Disabled = true
		}
		logs.done()
	}
	o.done()
	return t
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
	r.none = r.none && isEmpty(given.m)
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
