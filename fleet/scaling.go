package fleet

import (
	"slices"
	"strings"
)

// Kinds of scaling.
const (
	ScalingHorizontal  = "horizontal"
	ScalingVerticalCPU = "vertical_cpu"
	ScalingVerticalMem = "vertical_mem"
)

// ScalingPolicy bounds what a scaler may set a group's count or a task's resources to.
type ScalingPolicy struct {
	Type    string // default ScalingHorizontal
	Enabled bool   // default true
	Min     *int   // default: the group's count
	Max     *int
	Policy  map[string]any // the scaler's own
}

// Bounds of what is kept of how a job was scaled.
const (
	ScalingEventsKept = 20 // of a group
	MaxScalingMessage = 4 << 10
	MaxScalingMeta    = 16 << 10 // bytes of its JSON
)

// ScalingEvent is one step of a group's scaling, or what a scaler had to say about it.
type ScalingEvent struct {
	Time          int64 // UnixNano, the hub's clock
	Count         *int  // nil: it was not changed
	PreviousCount int
	Message       string
	Error         bool
	Meta          map[string]any
	EvalID        *EvalID
	CreateIndex   Index
}

// Scaled returns the job with another count of one group, or why it cannot have it.
func (j *Job) Scaled(group string, count int) (*Job, error) {
	i := slices.IndexFunc(j.TaskGroups, func(g TaskGroup) bool { return g.Name == group })
	switch {
	case i < 0:
		names := make([]string, len(j.TaskGroups))
		for k, g := range j.TaskGroups {
			names[k] = g.Name
		}
		return nil, Errorf(CodeInvalid, "scale job %s: it has no group %q", j.ID, group).WithHint("it has: %s", strings.Join(names, ", "))
	case RunsEverywhere(j.Type):
		return nil, Errorf(CodeInvalid, "scale job %s: a %s job runs once on every node that suits it", j.ID, j.Type)
	case count < 0 || count > JobCountMax:
		return nil, Errorf(CodeInvalid, "scale group %q of job %s: count %d is not within 0 to %d", group, j.ID, count, JobCountMax)
	}
	if s := j.TaskGroups[i].Scaling; s != nil {
		switch {
		case s.Min != nil && count < *s.Min:
			return nil, Errorf(CodeInvalid, "scale group %q of job %s: count %d is less than the minimum %d of its scaling policy", group, j.ID, count, *s.Min)
		case s.Max != nil && count > *s.Max:
			return nil, Errorf(CodeInvalid, "scale group %q of job %s: count %d is more than the maximum %d of its scaling policy", group, j.ID, count, *s.Max)
		}
	}
	next := *j
	next.TaskGroups = slices.Clone(j.TaskGroups)
	next.TaskGroups[i].Count = count
	return &next, nil
}
