package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// DiffType says what happened to a part of a job.
type DiffType string

const (
	DiffNone    DiffType = "None"
	DiffAdded   DiffType = "Added"
	DiffDeleted DiffType = "Deleted"
	DiffEdited  DiffType = "Edited"
)

// Annotations of a TaskDiff, and of the FieldDiff of a count.
const (
	ForcesInPlace = "forces in-place update"
	ForcesRestart = "forces create/destroy update"
	ForcesCreate  = "forces create"
	ForcesDestroy = "forces destroy"
)

// JobDiff is what a newer version of a job changes, in Nomad's shape. Parts that are
// the same are left out, but for groups, of which each is listed.
type JobDiff struct {
	Type       DiffType
	ID         JobID
	Fields     []FieldDiff
	Objects    []ObjectDiff
	TaskGroups []TaskGroupDiff
}

// TaskGroupDiff is what changes in one group. Updates is the scheduler's to fill in:
// how many allocations are placed, stopped, and so on.
type TaskGroupDiff struct {
	Type    DiffType
	Name    string
	Change  GroupChange // what it means for the group's allocations
	Fields  []FieldDiff
	Objects []ObjectDiff
	Tasks   []TaskDiff
	Updates map[string]uint64 `json:",omitempty"`
}

// TaskDiff is what changes in one task, and what follows of it.
type TaskDiff struct {
	Type        DiffType
	Name        string
	Fields      []FieldDiff
	Objects     []ObjectDiff
	Annotations []string `json:",omitempty"`
}

// ObjectDiff is what changes in a block, a list, or a map that is not one of text.
type ObjectDiff struct {
	Type   DiffType
	Name   string
	Fields []FieldDiff
}

// FieldDiff is one value that changed. Name of an element is KEY[ELEMENT].
type FieldDiff struct {
	Type     DiffType
	Name     string
	Old, New string
	// Annotations says what follows of it, of a group's count.
	Annotations []string `json:",omitempty"`
}

// DiffJobs compares two versions of a job; old may be nil (it is new), updated may be
// nil (it is purged). What the hub writes into a job does not count.
func DiffJobs(old, updated *Job) JobDiff {
	was, is := jobTree(old), jobTree(updated)
	d := JobDiff{Type: diffType(old != nil, updated != nil)}
	if updated != nil {
		d.ID = updated.ID
	} else if old != nil {
		d.ID = old.ID
	}
	d.Fields, d.Objects = diffTrees(was, is)
	for _, name := range groupNames(old, updated) {
		d.TaskGroups = append(d.TaskGroups, diffGroup(old, updated, name))
	}
	if d.Type == DiffEdited && len(d.Fields)+len(d.Objects) == 0 &&
		!slices.ContainsFunc(d.TaskGroups, func(g TaskGroupDiff) bool { return g.Type != DiffNone }) {
		d.Type = DiffNone
	}
	return d
}

func diffGroup(old, updated *Job, name string) TaskGroupDiff {
	var was, is *TaskGroup
	if old != nil {
		was = old.Group(name)
	}
	if updated != nil {
		is = updated.Group(name)
	}
	d := TaskGroupDiff{Type: diffType(was != nil, is != nil), Name: name, Change: GroupUpdate(old, updated, name)}
	d.Fields, d.Objects = diffTrees(groupTree(was), groupTree(is))
	if i := slices.IndexFunc(d.Fields, func(f FieldDiff) bool { return f.Name == "Count" }); i >= 0 && was != nil && is != nil {
		d.Fields[i].Annotations = []string{ForcesCreate}
		if is.Count < was.Count {
			d.Fields[i].Annotations = []string{ForcesDestroy}
		}
	}
	for _, task := range taskNames(was, is) {
		if t := diffTask(was, is, task); t.Type != DiffNone {
			d.Tasks = append(d.Tasks, t)
		}
	}
	if d.Type == DiffEdited && len(d.Fields)+len(d.Objects)+len(d.Tasks) == 0 {
		d.Type = DiffNone
	}
	return d
}

func diffTask(old, updated *TaskGroup, name string) TaskDiff {
	var was, is *Task
	if old != nil {
		was = old.Task(name)
	}
	if updated != nil {
		is = updated.Task(name)
	}
	d := TaskDiff{Type: diffType(was != nil, is != nil), Name: name}
	d.Fields, d.Objects = diffTrees(taskTree(was), taskTree(is))
	switch d.Type {
	case DiffAdded:
		d.Annotations = []string{ForcesCreate}
	case DiffDeleted:
		d.Annotations = []string{ForcesDestroy}
	case DiffEdited:
		switch {
		case len(d.Fields)+len(d.Objects) == 0:
			d.Type = DiffNone
		case canonical(taskProcess(*was)) != canonical(taskProcess(*is)):
			d.Annotations = []string{ForcesRestart}
		default:
			d.Annotations = []string{ForcesInPlace}
		}
	}
	return d
}

func diffType(was, is bool) DiffType {
	switch {
	case was && is:
		return DiffEdited
	case is:
		return DiffAdded
	case was:
		return DiffDeleted
	}
	return DiffNone
}

// diffedLists are lists of objects, of which each one that differs is shown by itself.
var diffedLists = map[string]string{
	"Constraints": "Constraint", "Affinities": "Affinity", "Spreads": "Spread", "Networks": "Network", "Services": "Service",
	"Artifacts": "Artifact", "Templates": "Template", "VolumeMounts": "VolumeMount", "Identities": "Identity",
	"ScalingPolicies": "ScalingPolicy", "Actions": "Action", "Secrets": "Secret",
}

// diffKeyFields is by which of their fields objects of a list are known: those of the same are
// compared field by field. Of networks there is hardly ever more than one.
var diffKeyFields = map[string]string{
	"Actions": "Name", "Services": "Name", "Secrets": "Name", "Identities": "Name", "Templates": "DestPath",
	"VolumeMounts": "Destination", "Spreads": "Attribute", "Networks": "",
}

// diffTrees compares two objects: plain values and maps of text become fields,
// anything else an object.
func diffTrees(old, updated map[string]any) (fields []FieldDiff, objects []ObjectDiff) {
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
				var edited []ObjectDiff
				edited, old, updated = diffKnown(diffedLists[key], field, old, updated)
				objects = append(objects, edited...)
			}
			objects = append(objects, diffLists(diffedLists[key], old, updated)...)
		default:
			if f := diffFields(flatten("", was), flatten("", is)); len(f) > 0 {
				objects = append(objects, ObjectDiff{Type: diffType(!isEmpty(was), !isEmpty(is)), Name: key, Fields: f})
			}
		}
	}
	return fields, objects
}

func asList(v any) []any {
	list, _ := v.([]any)
	return list
}

// elementsNotIn are the objects of a list that another one does not have. Each is written as text
// once: lists are as long as a request's body lets them be.
func elementsNotIn(list, other []any) []any {
	there := make(map[string]bool, len(other))
	for _, e := range other {
		there[canonical(e)] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(e any) bool { return there[canonical(e)] })
}

// diffKnown compares those objects of two lists that are known by the same value of a
// field, one of each by the other in their order, and returns the rest.
func diffKnown(name, field string, was, is []any) (edited []ObjectDiff, old, updated []any) {
	known := func(e any) string { m, _ := e.(map[string]any); return scalar(m[field]) }
	rest := map[string][]any{}
	for _, e := range is {
		rest[known(e)] = append(rest[known(e)], e)
	}
	paired := map[string]int{}
	for _, e := range was {
		by := known(e)
		if len(rest[by]) == 0 {
			old = append(old, e)
			continue
		}
		called := name
		if field != "" {
			called = fmt.Sprintf("%s[%s]", name, by)
		}
		// A list that is empty in the one and not there in the other is no difference.
		if f := diffFields(flatten("", e), flatten("", rest[by][0])); len(f) > 0 {
			edited = append(edited, ObjectDiff{Type: DiffEdited, Name: called, Fields: f})
		}
		rest[by] = rest[by][1:]
		paired[by]++
	}
	for _, e := range is {
		if by := known(e); paired[by] > 0 {
			paired[by]--
			continue
		}
		updated = append(updated, e)
	}
	return edited, old, updated
}

// diffLists shows the objects that are in one of two lists alone: one that changed is
// deleted and added.
func diffLists(name string, was, is []any) []ObjectDiff {
	var diffs []ObjectDiff
	for _, e := range was {
		diffs = append(diffs, ObjectDiff{Type: DiffDeleted, Name: name, Fields: diffFields(flatten("", e), nil)})
	}
	for _, e := range is {
		diffs = append(diffs, ObjectDiff{Type: DiffAdded, Name: name, Fields: diffFields(nil, flatten("", e))})
	}
	return diffs
}

func diffFields(old, updated map[string]string) []FieldDiff {
	var diffs []FieldDiff
	for _, name := range unionKeys(old, updated) {
		was, hasOld := old[name]
		is, hasNew := updated[name]
		if was == is && (hasOld == hasNew || was == "") {
			continue
		}
		d := FieldDiff{Type: diffType(hasOld && was != "", hasNew && is != ""), Name: name, Old: was, New: is}
		diffs = append(diffs, d)
	}
	return diffs
}

// flatten writes the values below v by their path: a.b, a[0], and KEY[ELEMENT] below
// a prefix.
func flatten(prefix string, v any) map[string]string {
	out := map[string]string{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case nil:
		case map[string]any:
			for k, x := range v {
				if prefix != "" {
					walk(path+"["+k+"]", x)
				} else {
					walk(joinPath(path, k), x)
				}
			}
		case []any:
			for i, x := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), x)
			}
		default:
			out[path] = scalar(v)
		}
	}
	walk(prefix, v)
	return out
}

func isPlain(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

func scalar(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

func unionKeys[V any](a, b map[string]V) []string {
	keys := slices.Collect(maps.Keys(a))
	for k := range b {
		if _, both := a[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// jobTree is what of a job its user wrote, without the groups.
func jobTree(j *Job) map[string]any {
	if j == nil {
		return nil
	}
	c := *j
	c.TaskGroups = nil
	tree := treeOf(c)
	for _, key := range []string{"Status", "StatusDescription", "Stable", "Version", "SubmitTime", "CreateIndex",
		"ModifyIndex", "JobModifyIndex", "SpecHash", "VersionTag", "TaskGroups", "ID"} {
		delete(tree, key)
	}
	return tree
}

func groupTree(g *TaskGroup) map[string]any {
	if g == nil {
		return nil
	}
	c := *g
	c.Tasks, c.Name = nil, ""
	return treeOf(c)
}

func taskTree(t *Task) map[string]any {
	if t == nil {
		return nil
	}
	c := *t
	c.Name = ""
	return treeOf(c)
}

func treeOf(v any) map[string]any {
	var tree map[string]any
	dec := json.NewDecoder(strings.NewReader(canonical(v)))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		return nil // a Config that is not JSON has no tree; GroupUpdate still sees that it differs
	}
	return tree
}

func groupNames(jobs ...*Job) []string {
	var names []string
	for _, j := range jobs {
		if j == nil {
			continue
		}
		for _, g := range j.TaskGroups {
			if !slices.Contains(names, g.Name) {
				names = append(names, g.Name)
			}
		}
	}
	return names
}

func taskNames(groups ...*TaskGroup) []string {
	var names []string
	for _, g := range groups {
		if g == nil {
			continue
		}
		for _, t := range g.Tasks {
			if !slices.Contains(names, t.Name) {
				names = append(names, t.Name)
			}
		}
	}
	return names
}
