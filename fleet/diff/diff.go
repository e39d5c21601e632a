// Package diff compares two versions of a job: what changed, in Nomad's shape, and what a
// group's change means for its running allocations. The planning endpoint and the commands
// show the differences; reconcile and the checkers of chaos ask about the allocations.
//
// It is pure: it starts no goroutine, reads no clock, and changes nothing that it is given.
package diff

import (
	"slices"

	"skerry/fleet"
)

// Type says what happened to a part of a job.
type Type string

// The types of a difference.
const (
	None    Type = "None"
	Added   Type = "Added"
	Deleted Type = "Deleted"
	Edited  Type = "Edited"
)

// Annotations of a Task, and of the Field of a count.
const (
	ForcesInPlace = "forces in-place update"
	ForcesRestart = "forces create/destroy update"
	ForcesCreate  = "forces create"
	ForcesDestroy = "forces destroy"
)

// Job is what a newer version of a job changes, in Nomad's shape. It leaves
// out equal parts, and lists every group.
type Job struct {
	Type       Type
	ID         fleet.JobID
	Fields     []Field
	Objects    []Object
	TaskGroups []TaskGroup
}

// TaskGroup is what changes in one group. Updates is the scheduler's to fill in:
// how many allocations are placed, stopped, and so on.
type TaskGroup struct {
	Type    Type
	Name    string
	Change  GroupChange // what it means for the group's allocations
	Fields  []Field
	Objects []Object
	Tasks   []Task
	Updates map[string]uint64 `json:",omitempty"`
}

// Task is what changes in one task, and what follows of it.
type Task struct {
	Type        Type
	Name        string
	Fields      []Field
	Objects     []Object
	Annotations []string `json:",omitempty"`
}

// Object is what changes in a block, a list, or a map that is not one of text.
type Object struct {
	Type   Type
	Name   string
	Fields []Field
}

// Field is one value that changed. Name of an element is KEY[ELEMENT].
type Field struct {
	Type     Type
	Name     string
	Old, New string
	// Annotations says what follows of it, of a group's count.
	Annotations []string `json:",omitempty"`
}

// Jobs compares two versions of a job. A new job has no old version, a purged job has no
// updated one. Fields that the hub fills in are not compared.
func Jobs(old, updated *fleet.Job) Job {
	was, is := jobTree(old), jobTree(updated)
	d := Job{Type: diffType(old != nil, updated != nil)}
	if updated != nil {
		d.ID = updated.ID
	} else if old != nil {
		d.ID = old.ID
	}
	d.Fields, d.Objects = diffTrees(was, is)
	for _, name := range groupNames(old, updated) {
		d.TaskGroups = append(d.TaskGroups, diffGroup(old, updated, name))
	}
	if d.Type == Edited && len(d.Fields)+len(d.Objects) == 0 &&
		!slices.ContainsFunc(d.TaskGroups, func(g TaskGroup) bool { return g.Type != None }) {
		d.Type = None
	}
	return d
}

func diffGroup(old, updated *fleet.Job, name string) TaskGroup {
	var was, is *fleet.TaskGroup
	if old != nil {
		was = old.Group(name)
	}
	if updated != nil {
		is = updated.Group(name)
	}
	d := TaskGroup{Type: diffType(was != nil, is != nil), Name: name, Change: GroupUpdate(old, updated, name)}
	d.Fields, d.Objects = diffTrees(groupTree(was), groupTree(is))
	if i := slices.IndexFunc(d.Fields, func(f Field) bool { return f.Name == "Count" }); i >= 0 && was != nil && is != nil {
		d.Fields[i].Annotations = []string{ForcesCreate}
		if is.Count < was.Count {
			d.Fields[i].Annotations = []string{ForcesDestroy}
		}
	}
	for _, task := range taskNames(was, is) {
		if t := diffTask(was, is, task); t.Type != None {
			d.Tasks = append(d.Tasks, t)
		}
	}
	if d.Type == Edited && len(d.Fields)+len(d.Objects)+len(d.Tasks) == 0 {
		d.Type = None
	}
	return d
}

func diffTask(old, updated *fleet.TaskGroup, name string) Task {
	var was, is *fleet.Task
	if old != nil {
		was = old.Task(name)
	}
	if updated != nil {
		is = updated.Task(name)
	}
	d := Task{Type: diffType(was != nil, is != nil), Name: name}
	d.Fields, d.Objects = diffTrees(taskTree(was), taskTree(is))
	switch d.Type {
	case Added:
		d.Annotations = []string{ForcesCreate}
	case Deleted:
		d.Annotations = []string{ForcesDestroy}
	case Edited:
		switch {
		case len(d.Fields)+len(d.Objects) == 0:
			d.Type = None
		case canonical(taskProcess(*was)) != canonical(taskProcess(*is)):
			d.Annotations = []string{ForcesRestart}
		default:
			d.Annotations = []string{ForcesInPlace}
		}
	}
	return d
}

func diffType(was, is bool) Type {
	switch {
	case was && is:
		return Edited
	case is:
		return Added
	case was:
		return Deleted
	}
	return None
}

// diffTrees compares two objects: plain values and maps of text become fields,
// anything else an object.
func diffTrees(old, updated map[string]any) (fields []Field, objects []Object) {
	for _, key := range unionKeys(old, updated) {
		was, is := old[key], updated[key]
		switch {
		case isPlain(was) && isPlain(is):
			fields = append(fields, diffFields(map[string]string{key: scalar(was)}, map[string]string{key: scalar(is)})...)
		case key == "Meta" || key == "Env":
			fields = append(fields, diffFields(flatten(key, was), flatten(key, is))...)
		case diffedLists[key] != "":
			was, is := asList(was), asList(is)
			old, updated := elementsNotIn(was, is), elementsNotIn(is, was)
			if field, ok := diffKeyFields[key]; ok {
				var edited []Object
				edited, old, updated = diffKnown(diffedLists[key], field, old, updated)
				objects = append(objects, edited...)
			}
			objects = append(objects, diffLists(diffedLists[key], old, updated)...)
		default:
			if f := diffFields(flatten("", was), flatten("", is)); len(f) > 0 {
				objects = append(objects, Object{Type: diffType(!isEmptyTree(was), !isEmptyTree(is)), Name: key, Fields: f})
			}
		}
	}
	return fields, objects
}

func diffFields(old, updated map[string]string) []Field {
	var diffs []Field
	for _, name := range unionKeys(old, updated) {
		was, hasOld := old[name]
		is, hasNew := updated[name]
		if was == is && (hasOld == hasNew || was == "") {
			continue
		}
		d := Field{Type: diffType(hasOld && was != "", hasNew && is != ""), Name: name, Old: was, New: is}
		diffs = append(diffs, d)
	}
	return diffs
}
