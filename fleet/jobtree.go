package fleet

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// object is one JSON object of a job, being read: what its keys may be is said by
// reading them, and what is wrong is added to problems with its path.
type object struct {
	path     string
	m        map[string]any
	problems *Problems
	known    []string
}

// value returns what stands under a key, nil where there is nothing. As in the
// standard library, the case of a key does not matter where no key matches exactly.
func (o *object) value(key string) any {
	o.known = append(o.known, key)
	if v, ok := o.m[key]; ok {
		return v
	}
	for k, v := range o.m {
		if strings.EqualFold(k, key) {
			return v
		}
	}
	return nil
}

func (o *object) at(key string) string { return joinPath(o.path, key) }

func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (o *object) has(key string) bool { return o.value(key) != nil }

func (o *object) text(key string, into *string) {
	readString(o, key, into)
}

// readString reads a string of any string type; null leaves what is there.
func readString[T ~string](o *object, key string, into *T) {
	switch v := o.value(key).(type) {
	case nil:
	case string:
		*into = T(v)
	default:
		o.problems.add(o.at(key), "must be text, not %s", kindOf(v))
	}
}

func (o *object) boolean(key string, into *bool) {
	switch v := o.value(key).(type) {
	case nil:
	case bool:
		*into = v
	default:
		o.problems.add(o.at(key), "must be true or false, not %s", kindOf(v))
	}
}

func (o *object) integer(key string, into *int) {
	if n, ok := o.whole(key, "a whole number"); ok {
		if n < math.MinInt32 || n > math.MaxInt32 {
			o.problems.add(o.at(key), "%d is out of range", n)
			return
		}
		*into = int(n)
	}
}

// whole reads an int64; false where there is none, or it is wrong.
func (o *object) whole(key, want string) (int64, bool) {
	v := o.value(key)
	if v == nil {
		return 0, false
	}
	n, ok := wholeNumber(v)
	if !ok {
		o.problems.add(o.at(key), "must be %s, not %s", want, kindOf(v))
	}
	return n, ok
}

func readCounter[T ~uint64 | ~int64](o *object, key string, into *T) {
	if n, ok := o.whole(key, "a whole number"); ok {
		*into = T(n)
	}
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

// duration reads nanoseconds, or text such as "1h30m".
func (o *object) duration(key string, into *time.Duration) {
	if s, ok := o.value(key).(string); ok {
		d, err := time.ParseDuration(s)
		if err != nil {
			o.problems.addHint(o.at(key), `write "1h30m", "15s" or "250ms"`, "%q is not a duration", s)
			return
		}
		*into = d
		return
	}
	if n, ok := o.whole(key, "a duration"); ok {
		*into = time.Duration(n)
	}
}

func (o *object) optionalDuration(key string, into **time.Duration) {
	if o.has(key) {
		var d time.Duration
		o.duration(key, &d)
		*into = &d
	}
}

func (o *object) texts(key string, into *[]string) {
	v := o.value(key)
	if v == nil {
		return
	}
	list, ok := v.([]any)
	if !ok {
		o.problems.add(o.at(key), "must be a list, not %s", kindOf(v))
		return
	}
	out := make([]string, 0, len(list))
	for i, e := range list {
		s, ok := e.(string)
		if !ok {
			o.problems.add(fmt.Sprintf("%s[%d]", o.at(key), i), "must be text, not %s", kindOf(e))
			continue
		}
		out = append(out, s)
	}
	*into = out
}

func (o *object) textMap(key string, into *map[string]string) {
	sub, ok := o.object(key)
	if !ok || len(sub.m) == 0 {
		return
	}
	out := make(map[string]string, len(sub.m))
	for _, k := range sortedKeys(sub.m) {
		s, ok := sub.m[k].(string)
		if !ok {
			o.problems.add(sub.at(k), "must be text, not %s", kindOf(sub.m[k]))
			continue
		}
		out[k] = s
	}
	*into = out
}

// object returns the object under a key; false where there is none.
func (o *object) object(key string) (*object, bool) {
	v := o.value(key)
	if v == nil {
		return nil, false
	}
	m, ok := v.(map[string]any)
	if !ok {
		o.problems.add(o.at(key), "must be an object, not %s", kindOf(v))
		return nil, false
	}
	return &object{path: o.at(key), m: m, problems: o.problems}, true
}

// objects returns the objects of the list under a key.
func (o *object) objects(key string) []*object {
	v := o.value(key)
	if v == nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		o.problems.add(o.at(key), "must be a list, not %s", kindOf(v))
		return nil
	}
	out := make([]*object, 0, len(list))
	for i, e := range list {
		path := fmt.Sprintf("%s[%d]", o.at(key), i)
		m, ok := e.(map[string]any)
		if !ok {
			o.problems.add(path, "must be an object, not %s", kindOf(e))
			continue
		}
		out = append(out, &object{path: path, m: m, problems: o.problems})
	}
	return out
}

// ignore names keys that a client may send and that mean nothing here, whatever
// their value: what the server itself wrote, or what carries no wish.
func (o *object) ignore(keys ...string) { o.known = append(o.known, keys...) }

// unsupported refuses keys that this release does not act on, unless they are empty.
func (o *object) unsupported(keys ...string) {
	for _, key := range keys {
		o.unsupportedBut(key, nil)
	}
}

// unsupportedPresent refuses keys whose mere presence means something.
func (o *object) unsupportedPresent(keys ...string) {
	for _, key := range keys {
		if o.has(key) {
			o.problems.add(o.at(key), "%s is not supported yet", key)
		}
	}
}

// unsupportedBut lets a key's object pass too where it says only what the defaults
// say: clients send them without being asked.
func (o *object) unsupportedBut(key string, defaults map[string]any) {
	if v := o.value(key); !isEmpty(v, defaults) {
		o.problems.add(o.at(key), "%s is not supported yet", key)
	}
}

// unsupportedText lets "" and one harmless value pass.
func (o *object) unsupportedText(key, harmless string) {
	if v := o.value(key); v != harmless {
		if !isEmpty(v, nil) {
			o.problems.add(o.at(key), "%s is not supported yet", key)
		}
	}
}

// done refuses what nobody asked for, unless it is empty.
func (o *object) done() {
	for _, k := range sortedKeys(o.m) {
		isKnown := slices.ContainsFunc(o.known, func(known string) bool { return strings.EqualFold(known, k) })
		if !isKnown && !isEmpty(o.m[k], nil) {
			o.problems.add(o.at(k), "%s is not known", k)
		}
	}
}

// isEmpty reports whether v says nothing: null, zero, or a list or an object of
// nothing, where a key of the object may also say what defaults has for it.
func isEmpty(v any, defaults map[string]any) bool {
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
		for k, x := range v {
			if !isEmpty(x, nil) && !sameValue(x, defaults[k]) {
				return false
			}
		}
		return true
	}
	n, ok := wholeNumber(v)
	return ok && n == 0
}

func sameValue(a, b any) bool {
	x, okX := wholeNumber(a)
	y, okY := wholeNumber(b)
	if okX && okY {
		return x == y
	}
	switch a.(type) {
	case string, bool:
		return a == b
	}
	return false
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
