package diff

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skerry/fleet"
)

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
				switch {
				case prefix != "":
					walk(path+"["+k+"]", x)
				case path == "":
					walk(k, x)
				default:
					walk(path+"."+k, x)
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

// isEmptyTree reports whether a tree says nothing: null, zero, or a list or an object of nothing.
func isEmptyTree(v any) bool {
	switch v := v.(type) {
	case json.Number:
		f, err := v.Float64()
		return err == nil && f == 0
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, x := range v {
			if !isEmptyTree(x) {
				return false
			}
		}
		return true
	}
	return v == nil || v == "" || v == false
}

// isPlain reports whether v is neither an object nor a list.
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
func jobTree(j *fleet.Job) map[string]any {
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

func groupTree(g *fleet.TaskGroup) map[string]any {
	if g == nil {
		return nil
	}
	c := *g
	c.Tasks, c.Name = nil, ""
	return treeOf(c)
}

func taskTree(t *fleet.Task) map[string]any {
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

func groupNames(jobs ...*fleet.Job) []string {
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

func taskNames(groups ...*fleet.TaskGroup) []string {
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

// canonical writes a value so that equal content gives equal text, whatever number
// types a codec left in a Config.
func canonical(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%#v", v) // a Config that never came from JSON: differing types count as a difference
	}
	return string(b)
}
