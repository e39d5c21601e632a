// Package options reads the config block of a task. A driver asks for each key that it knows; the reader
// collects all problems of the block, unknown keys included, and reports them in one error.
//
// Drivers call it on edges when a task starts, and on hubs when a job is registered. It starts no goroutine and
// stores nothing.
package options

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"skerry/fleet"
)

// maxProblems bounds the problems that an error names.
const maxProblems = 20

// Reader reads one config block. It belongs to one goroutine.
type Reader struct {
	config   map[string]any
	known    map[string]bool
	problems []string
}

// Read returns a Reader of a config block.
func Read(config map[string]any) *Reader {
	return &Reader{config: config, known: make(map[string]bool)}
}

// Text returns the string of a key, or "" if it is absent. It accepts numbers and booleans.
func (r *Reader) Text(key string) string {
	r.known[key] = true
	value, given := r.config[key]
	if !given {
		return ""
	}
	s, ok := textOf(value)
	if !ok {
		r.Refuse("%s must be a string, not %s", key, kindOf(value))
	}
	r.refuseNUL(key, s)
	return s
}

// RequiredText returns the string of a key that must be given and not empty.
func (r *Reader) RequiredText(key string) string {
	before := len(r.problems)
	s := r.Text(key)
	if s == "" && len(r.problems) == before {
		r.Refuse("%s is required", key)
	}
	return s
}

// Texts returns the list of strings of a key, or nil if it is absent or null.
func (r *Reader) Texts(key string) []string {
	r.known[key] = true
	list, err := stringList(r.config[key])
	if err != nil {
		r.Refuse("%s %w", key, err)
	}
	r.refuseNUL(key, list...)
	return list
}

// Bool returns the boolean of a key, or fallback if it is absent. "true" and "false" are accepted.
func (r *Reader) Bool(key string, fallback bool) bool {
	r.known[key] = true
	value, given := r.config[key]
	if !given {
		return fallback
	}
	if b, ok := value.(bool); ok {
		return b
	}
	if s, ok := value.(string); ok && (s == "true" || s == "false") {
		return s == "true"
	}
	r.Refuse("%s must be true or false, not %s", key, kindOf(value))
	return fallback
}

// Int returns the whole number of a key, which must be from low to high, or fallback if it is absent.
func (r *Reader) Int(key string, fallback, low, high int64) int64 {
	r.known[key] = true
	value, given := r.config[key]
	if !given {
		return fallback
	}
	s, ok := textOf(value)
	n, err := strconv.ParseInt(s, 10, 64)
	if !ok || err != nil {
		r.Refuse("%s must be a whole number", key)
		return fallback
	}
	if n < low || n > high {
		r.Refuse("%s must be from %d to %d, not %d", key, low, high, n)
		return fallback
	}
	return n
}

// Map returns the map of strings of a key: a map, or blocks of the same name, which are merged.
func (r *Reader) Map(key string) map[string]string {
	r.known[key] = true
	value, given := r.config[key]
	if !given || value == nil {
		return nil
	}
	blocks, ok := value.([]any)
	if !ok {
		blocks = []any{value}
	}
	out := make(map[string]string)
	for _, block := range blocks {
		m, ok := block.(map[string]any)
		if !ok {
			r.Refuse("%s must be a map of strings, not %s", key, kindOf(block))
			return nil
		}
		for name, v := range m {
			s, ok := textOf(v)
			if !ok {
				r.Refuse("%s must be a map of strings, but %q is %s", key, name, kindOf(v))
				return nil
			}
			r.refuseNUL(key, name, s)
			out[name] = s
		}
	}
	return out
}

// Has reports whether a key is given.
func (r *Reader) Has(key string) bool {
	_, given := r.config[key]
	return given
}

// Refuse records a problem of the block.
func (r *Reader) Refuse(format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf(format, args...).Error())
}

// Err returns the problems of the block as a fleet.CodeInvalid, also keys that were never asked for, or nil. hint
// lists the driver's keys.
func (r *Reader) Err(driver, hint string) error {
	problems := r.problems
	for _, key := range slices.Sorted(maps.Keys(r.config)) {
		if !r.known[key] {
			problems = append(problems, fmt.Sprintf("unknown key %q", key))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems:maxProblems], fmt.Sprintf("and %d more", more))
	}
	return fleet.Errorf(fleet.CodeInvalid, "config of %s: %s", driver, strings.Join(problems, "; ")).WithHint("%s", hint)
}

// refuseNUL records values with a NUL byte, because no program can receive one.
func (r *Reader) refuseNUL(key string, values ...string) {
	for _, s := range values {
		if strings.ContainsRune(s, 0) {
			r.Refuse("%s cannot hold a NUL byte", key)
			return
		}
	}
}
