package fleet

import (
	"bytes"
	"encoding/json"
	"time"
)

// VariableMeta is a variable without its items, in Nomad's shape.
type VariableMeta struct {
	Namespace   string
	Path        string
	CreateIndex Index
	CreateTime  int64 // UnixNano
	ModifyIndex Index
	ModifyTime  int64         // UnixNano
	Lock        *VariableLock `json:",omitempty"` // nil: it is not locked
}

// Variable is a variable with its items.
type Variable struct {
	VariableMeta
	Items VariableItems
}

// VariableItems are the keys and values of a variable.
type VariableItems map[string]string

// Size returns the number of bytes of all keys and values.
func (items VariableItems) Size() int {
	n := 0
	for k, v := range items {
		n += len(k) + len(v)
	}
	return n
}

// VariableLock is the lock of a variable. While it has no ID, its holder has lost it, and LockDelay has to pass before
// somebody else can acquire it.
type VariableLock struct {
	ID        string
	TTL       time.Duration // without a renewal for so long, the holder loses the lock
	LockDelay time.Duration
}

// Default and bounds of a lock's TTL, and the default of its delay.
const (
	DefaultLockTTL   = 15 * time.Second
	MinLockTTL       = 10 * time.Second
	MaxLockTTL       = 24 * time.Hour
	DefaultLockDelay = 15 * time.Second
	MaxLockDelay     = 24 * time.Hour
)

// WithoutID returns a copy of a variable's description without the lock's ID, which only the holder may know.
func (m VariableMeta) WithoutID() VariableMeta {
	if m.Lock != nil {
		lock := *m.Lock
		lock.ID = ""
		m.Lock = &lock
	}
	return m
}

// savedLock is a VariableLock as JSON, with durations as text.
type savedLock struct{ ID, TTL, LockDelay string }

// MarshalJSON writes durations like "15s".
func (l VariableLock) MarshalJSON() ([]byte, error) {
	return json.Marshal(savedLock{l.ID, l.TTL.String(), l.LockDelay.String()})
}

// UnmarshalJSON reads durations like "15s". A missing or empty one is 0. Any other key is an error.
func (l *VariableLock) UnmarshalJSON(b []byte) error {
	var s savedLock
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return Errorf(CodeInvalid, "read the variable's Lock: %v", err).WithHint(`write it like {"ID": "…", "TTL": "15s", "LockDelay": "15s"}`)
	}
	out := VariableLock{ID: s.ID}
	for _, d := range []struct {
		name, text string
		into       *time.Duration
	}{{"TTL", s.TTL, &out.TTL}, {"LockDelay", s.LockDelay, &out.LockDelay}} {
		if d.text == "" {
			continue
		}
		var err error
		if *d.into, err = time.ParseDuration(d.text); err != nil {
			return Errorf(CodeInvalid, "read the variable's Lock: %s is %q, which is not a duration", d.name, d.text).WithHint("write it like 15s or 2m")
		}
	}
	*l = out
	return nil
}

// VariablesOfJobs begins the paths of the variables that the tasks of jobs may read.
const VariablesOfJobs = "nomad/jobs"

// VariablePaths returns the paths of the variables that a task of the allocation may read, with task "" those of all
// its tasks. A child of a periodic or parameterized job reads those of its parent.
func (a *Alloc) VariablePaths(task string) []string {
	job := VariablesOfJobs + "/" + string(a.JobOfIdentity())
	group := job + "/" + a.TaskGroup
	paths := []string{VariablesOfJobs, job, group}
	if task != "" {
		return append(paths, group+"/"+task)
	}
	if g := a.Group(); g != nil {
		for _, t := range g.Tasks {
			paths = append(paths, group+"/"+t.Name)
		}
	}
	return paths
}
