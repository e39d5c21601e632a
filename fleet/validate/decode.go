package validate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"skerry/fleet"
	"skerry/fleet/syntax"
)

// DecodeJob reads a job in Nomad's JSON (the object below "Job") and fills in its defaults. It
// checks the shape alone, and never returns nil.
//
// Null and absent mean the default, 0 means 0. A duration is nanoseconds or text ("1h30m"). A
// policy given in part is merged into the default of the job's type. An unknown key is a
// problem, unless it is empty.
func DecodeJob(data []byte) (*fleet.Job, fleet.Problems) {
	tree, err := decodeTree(data)
	if err != nil {
		return &fleet.Job{}, fleet.Problems{{Message: err.Error(), Hint: `a job in JSON is an object, {"ID": …, "TaskGroups": […]}`}}
	}
	return JobFromTree(tree)
}

// decodeTree reads one bounded JSON object, numbers as json.Number.
func decodeTree(data []byte) (map[string]any, error) {
	if len(data) > fleet.MaxJobSize {
		return nil, fmt.Errorf("the job has %d bytes, at most %d are allowed", len(data), fleet.MaxJobSize)
	}
	if syntax.JSONDepth(data) > fleet.MaxJobDepth {
		return nil, fmt.Errorf("nested more than %d deep", fleet.MaxJobDepth)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var tree map[string]any
	var kind *json.UnmarshalTypeError
	if err := dec.Decode(&tree); errors.As(err, &kind) {
		return nil, fmt.Errorf("not a job in JSON, but %s", kind.Value)
	} else if err != nil {
		return nil, fmt.Errorf("not a job in JSON: %w", withLineNumber(data, err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a job in JSON: there is text after the object")
	}
	if tree == nil {
		return nil, errors.New("not a job in JSON: null")
	}
	if key := syntax.RepeatedKey(data); key != "" {
		return nil, fmt.Errorf("the key %s is there twice", key)
	}
	return tree, nil
}

// withLineNumber adds line and column to a syntax error.
func withLineNumber(data []byte, err error) error {
	var wrong *json.SyntaxError
	if !errors.As(err, &wrong) || wrong.Offset < 1 || wrong.Offset > int64(len(data)) {
		return err
	}
	before := data[:wrong.Offset-1]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Errorf("line %d, column %d: %w", line, column, err)
}

// JobFromTree is DecodeJob for a tree of map[string]any, []any, string, bool, nil, and numbers as
// json.Number, int, int64 or float64. Package jobspec makes one from HCL, so that both formats
// have the same rules.
func JobFromTree(tree map[string]any) (*fleet.Job, fleet.Problems) {
	var ps fleet.Problems
	o := &jsonObject{m: tree, problems: &ps}
	j := &fleet.Job{Type: fleet.JobTypeService, Priority: fleet.JobPriorityDefault}
	o.readIntoStruct(j, "TaskGroups")
	setDefault(&j.Type, fleet.JobTypeService)
	inherited := o.readInheritance(j.Type)
	for _, g := range o.childObjects("TaskGroups") {
		j.TaskGroups = append(j.TaskGroups, inherited.readTaskGroup(g, &j.Ignored))
	}
	j.Ignored = append(j.Ignored, o.acceptIgnoredKeys("NomadTokenID", "ConsulToken", "VaultToken")...)
	o.reportUnknownKeys()
	completeJob(j)
	return j, ps
}

// inheritance holds the policies that a job's groups inherit.
type inheritance struct {
	jobType    string
	reschedule rescheduleReader
	update     *fleet.Update
	migrate    *fleet.Migrate
	local      *fleet.LocalControl
}

// readInheritance reads the policies of the job itself, which hold for its groups.
func (o *jsonObject) readInheritance(jobType string) inheritance {
	in := inheritance{
		jobType: jobType, reschedule: newReschedule(jobType), update: fleet.DefaultUpdate(jobType), migrate: fleet.DefaultMigrate(jobType),
	}
	in.reschedule.mergeReschedule(o, "Reschedule")
	in.update = merge(o, "Update", in.update)
	in.migrate = merge(o, "Migrate", in.migrate)
	in.local = merge(o, "LocalControl", in.local)
	return in
}

// readTaskGroup reads a group, and adds the paths of ignored keys to ignored.
func (in inheritance) readTaskGroup(o *jsonObject, ignored *[]string) fleet.TaskGroup {
	restart := fleet.DefaultRestart(in.jobType)
	g := fleet.TaskGroup{Count: 1, EphemeralDisk: fleet.EphemeralDisk{SizeMB: fleet.DefaultDiskMB}, RestartPolicy: &restart}
	o.readIntoStruct(&g, "ReschedulePolicy", "Update", "Migrate", "LocalControl", "Tasks")
	if s := g.Scaling; s != nil && s.Min != nil && !o.hasNonNullValue("Count") {
		g.Count = *s.Min
	}
	in.reschedule.mergeReschedule(o, "ReschedulePolicy")
	g.ReschedulePolicy = in.reschedule.mergedPolicy()
	g.Update = merge(o, "Update", in.update)
	g.Migrate = merge(o, "Migrate", in.migrate)
	g.LocalControl = merge(o, "LocalControl", in.local)
	*ignored = append(*ignored, o.formerDisconnect(&g)...)
	for _, t := range o.childObjects("Tasks") {
		g.Tasks = append(g.Tasks, readTask(t, restart, ignored))
	}
	o.reportUnknownKeys()
	return g
}

// merge reads the object under a key into a copy of the inherited policy.
func merge[T any](o *jsonObject, key string, inherited *T) *T {
	into := inherited
	if inherited != nil {
		clone := *inherited
		into = &clone
	}
	sub, ok := o.childObject(key)
	if !ok {
		return into
	}
	if into == nil {
		if isEmpty(sub.m) {
			return nil // as Nomad's client sends it
		}
		into = newPreset(reflect.TypeFor[T]()).Interface().(*T)
	}
	sub.readIntoStruct(into)
	sub.reportUnknownKeys()
	return into
}

// formerDisconnect reads the keys that a group had before there was a disconnect block, and
// returns those that it ignores: with both times given, stop_after_client_disconnect counts.
func (o *jsonObject) formerDisconnect(g *fleet.TaskGroup) (ignored []string) {
	var given struct {
		MaxClientDisconnect, StopAfterClientDisconnect *time.Duration
		PreventRescheduleOnLost                        bool
	}
	o.readIntoStruct(&given)
	former := fleet.Disconnect{LostAfter: given.MaxClientDisconnect, StopOnClientAfter: given.StopAfterClientDisconnect}
	if given.PreventRescheduleOnLost {
		former.Replace = new(bool) // false
	}
	if former.LostAfter != nil && *former.LostAfter > 0 && former.StopOnClientAfter != nil && *former.StopOnClientAfter > 0 {
		former.LostAfter, ignored = nil, []string{o.pathOfKey("MaxClientDisconnect")}
	}
	if g.Disconnect == nil && former != (fleet.Disconnect{}) {
		g.Disconnect = &former
	}
	return ignored
}

func readTask(o *jsonObject, restart fleet.RestartPolicy, ignored *[]string) fleet.Task {
	t := fleet.Task{
		Resources:     fleet.TaskResources{Resources: fleet.Resources{CPU: fleet.DefaultCPU, MemoryMB: fleet.DefaultMemoryMB}},
		KillTimeout:   fleet.DefaultKillTimeout,
		LogConfig:     fleet.LogConfig{MaxFiles: fleet.DefaultLogFiles, MaxFileSizeMB: fleet.DefaultLogFileSizeMB},
		RestartPolicy: &restart,
	}
	o.readIntoStruct(&t, "Resources", "LogConfig")
	if res, ok := o.childObject("Resources"); ok {
		res.readIntoStruct(&t.Resources)
		if t.Resources.Cores > 0 && !res.hasNonNullValue("CPU") {
			t.Resources.CPU = 0
		}
		*ignored = append(*ignored, res.acceptIgnoredKeys("IOPS")...)
		res.reportUnknownKeys()
	}
	if logs, ok := o.childObject("LogConfig"); ok {
		logs.readIntoStruct(&t.LogConfig)
		if logs.valueOfKey("Enabled") == false {
			t.LogConfig.Disabled = true
		}
		logs.reportUnknownKeys()
	}
	o.reportUnknownKeys()
	return t
}

// rescheduleReader merges a job's and a group's policy into the default of the job's type, and
// remembers which of the two limits were given.
type rescheduleReader struct {
	p                   fleet.ReschedulePolicy
	none                bool // the job's type is never rescheduled
	attempts, unlimited bool // given
}

func newReschedule(jobType string) rescheduleReader {
	if p := fleet.DefaultReschedule(jobType); p != nil {
		return rescheduleReader{p: *p}
	}
	return rescheduleReader{none: true}
}

func (r *rescheduleReader) mergeReschedule(o *jsonObject, key string) {
	given, ok := o.childObject(key)
	if !ok {
		return
	}
	r.none = r.none && isEmpty(given.m)
	r.attempts = r.attempts || given.hasNonNullValue("Attempts")
	r.unlimited = r.unlimited || given.hasNonNullValue("Unlimited")
	given.readIntoStruct(&r.p)
	given.reportUnknownKeys()
}

// mergedPolicy returns the merged policy. Attempts given without unlimited turn unlimited off, and
// the other way around.
func (r rescheduleReader) mergedPolicy() *fleet.ReschedulePolicy {
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
