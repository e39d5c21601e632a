package validate

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry/fleet"
)

// durations are the keys of a mesh's tree that hold durations.
var durations = []string{"ConnectTimeout", "KillTimeout", "ShutdownDelay"}

// tidyConnect returns a service's connect block without what says nothing, and with
// durations as nanoseconds: clients write every field of it, job files only some. It is
// kept as a tree, for nothing acts on it.
func tidyConnect(m map[string]any) map[string]any {
	tidy := make(map[string]any, len(m))
	for k, v := range m {
		switch x := v.(type) {
		case map[string]any:
			if k != "Config" {
				tidy[k] = tidyConnect(x)
			} else if len(x) > 0 {
				tidy[k] = x
			}
			continue
		case []any:
			list := make([]any, len(x))
			for i, e := range x {
				if sub, ok := e.(map[string]any); ok {
					e = tidyConnect(sub)
				}
				list[i] = e
			}
			v = list
		case string:
			if d, err := time.ParseDuration(x); err == nil && slices.Contains(durations, k) {
				v = int64(d)
			}
		}
		if !isEmpty(v) {
			tidy[k] = v
		}
	}
	return tidy
}

// jsonObject is one JSON object of a job, being read: what its keys may be is said by
// reading them, and what is wrong is added to problems with its path.
type jsonObject struct {
	path     string
	m        map[string]any
	problems *fleet.Problems
	known    []string
	keys     []string // keys of m, sorted; filled by the first lookup that finds no exact match
}

// valueOfKey returns what stands under a key, nil where there is nothing. As in the
// standard library, the case of a key does not matter where no key matches exactly. Of several such keys, the first counts
// whose value is not empty.
func (o *jsonObject) valueOfKey(key string) any {
	o.addKnown(key)
	if v, ok := o.m[key]; ok {
		return v
	}
	if o.keys == nil {
		o.keys = sortedKeys(o.m)
	}
	var found any
	for _, k := range o.keys {
		if v := o.m[k]; strings.EqualFold(k, key) && (found == nil || isEmpty(found) && !isEmpty(v)) {
			found = v
		}
	}
	return found
}

// addKnown adds a key that an object may have.
func (o *jsonObject) addKnown(key string) {
	if n := len(o.known); n == 0 || o.known[n-1] != key { // a field is looked up several times
		o.known = append(o.known, key)
	}
}

func (o *jsonObject) pathOfKey(key string) string { return joinPath(o.path, key) }

func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (o *jsonObject) hasNonNullValue(key string) bool { return o.valueOfKey(key) != nil }

// valueAs returns what stands under a key; false where there is none, or it is of another kind.
func valueAs[T any](o *jsonObject, key, want string) (T, bool) {
	v := o.valueOfKey(key)
	value, ok := v.(T)
	if !ok && v != nil {
		o.problems.Add(o.pathOfKey(key), "must be %s, not %s", want, kindOf(v))
	}
	return value, ok
}

// readWholeNumber reads an int64; false where there is none, or it is wrong.
func (o *jsonObject) readWholeNumber(key, want string) (int64, bool) {
	v := o.valueOfKey(key)
	if v == nil {
		return 0, false
	}
	n, ok := wholeNumber(v)
	if !ok {
		o.problems.Add(o.pathOfKey(key), "must be %s, not %s", want, kindOf(v))
	}
	return n, ok
}

func wholeNumber(v any) (int64, bool) {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, true
		}
		f, err := v.Float64()
		return int64(f), err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53
	case int:
		return int64(v), true
	case int64:
		return v, true
	case float64:
		return int64(v), v == math.Trunc(v) && math.Abs(v) < 1<<53
	}
	return 0, false
}

// readDuration reads nanoseconds, or text such as "1h30m".
func (o *jsonObject) readDuration(key string) (time.Duration, bool) {
	s, isText := o.valueOfKey(key).(string)
	if !isText {
		n, ok := o.readWholeNumber(key, "a duration")
		return time.Duration(n), ok
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		o.problems.AddHint(o.pathOfKey(key), `write "1h30m", "15s" or "250ms"`, "%q is not a duration", s)
	}
	return d, err == nil
}

// childObject returns the object under a key; false where there is none.
func (o *jsonObject) childObject(key string) (*jsonObject, bool) {
	m, ok := valueAs[map[string]any](o, key, "an object")
	return &jsonObject{path: o.pathOfKey(key), m: m, problems: o.problems}, ok
}

// childObjects returns the objects of the list under a key.
func (o *jsonObject) childObjects(key string) []*jsonObject {
	objects, _ := listOf[map[string]any](o, key, "an object")
	out := make([]*jsonObject, 0, len(objects))
	for _, e := range objects {
		out = append(out, &jsonObject{path: e.path, m: e.value, problems: o.problems})
	}
	return out
}

// element is an element of a list, and where it stands.
type element[T any] struct {
	path  string
	value T
}

// listOf returns the elements of the list under a key that are of the kind that is wanted; false
// where there is no list.
func listOf[T any](o *jsonObject, key, want string) ([]element[T], bool) {
	list, ok := valueAs[[]any](o, key, "a list")
	out := make([]element[T], 0, len(list))
	for i, e := range list {
		path := fmt.Sprintf("%s[%d]", o.pathOfKey(key), i)
		if v, ok := e.(T); ok {
			out = append(out, element[T]{path, v})
		} else {
			o.problems.Add(path, "must be %s, not %s", want, kindOf(e))
		}
	}
	return out, ok
}

// acceptIgnoredKeys returns those of the keys that ask for something, which is not done: that is a
// warning, not a problem.
func (o *jsonObject) acceptIgnoredKeys(keys ...string) []string {
	var asked []string
	for _, key := range keys {
		if v := o.valueOfKey(key); v != nil && !isEmpty(v) {
			asked = append(asked, o.pathOfKey(key))
		}
	}
	return asked
}

// reportUnknownKeys refuses what nobody asked for, unless it is empty, and what is there twice, in letters of
// different case.
func (o *jsonObject) reportUnknownKeys() {
	var unusual []string // keys that are not written as they are known
	for k, v := range o.m {
		if !slices.Contains(o.known, k) && !isEmpty(v) {
			unusual = append(unusual, k)
		}
	}
	slices.Sort(unusual)
	said := map[string]string{}
	for _, k := range unusual {
		as := strings.ToLower(k)
		if known := slices.IndexFunc(o.known, func(known string) bool { return strings.EqualFold(known, k) }); known < 0 {
			o.problems.Add(o.pathOfKey(k), "%s is not known", k)
		} else if as = o.known[known]; said[as] == "" {
			if _, ok := o.m[as]; ok {
				said[as] = as
			}
		}
		if other := said[as]; other != "" {
			o.problems.Add(o.pathOfKey(k), "%s is defined twice, also as %s", k, other)
		}
		said[as] = k
	}
}

// isEmpty reports whether v says nothing: null, zero, or a list or an object of
// nothing.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case bool:
		return !v
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, x := range v {
			if !isEmpty(x) {
				return false
			}
		}
		return true
	}
	n, ok := wholeNumber(v)
	return ok && n == 0
}

// plain makes a tree of json.Number into one of int64 and float64.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, err := v.Float64()
		if err != nil {
			return v.String() // out of range: kept as it was written
		}
		return f
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = plain(v[i])
		}
		return list
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, x := range v {
			m[k] = plain(x)
		}
		return m
	}
	return v
}

func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return strconv.Quote(abbreviate(v))
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return fmt.Sprint(v)
}

func abbreviate(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
