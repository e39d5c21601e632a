package template

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	"skerry/fleet"
)

const (
	// elementBytes is the weight of a value beside its text.
	elementBytes = 16
	// maxNesting bounds how deep values of a template lie in each other.
	maxNesting = 100
	// maxCompared bounds the values that a rendering compares.
	maxCompared = 1 << 20
)

// weightOf returns the weight of values with all that they hold, or an error if it is more than MaxBytes. Values never
// change once they are made, so a value made of weighed ones cannot grow later.
func (r *renderer) weightOf(values ...any) (int, error) {
	if r.ctx != nil && r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	left := MaxBytes
	for _, v := range values {
		if left = takeWeight(reflect.ValueOf(v), maxNesting, left); left < 0 {
			return 0, errTooLarge
		}
	}
	return MaxBytes - left, nil
}

// takeWeight subtracts the weight of a value from left. It stops below 0.
func takeWeight(v reflect.Value, depth, left int) int {
	if left -= elementBytes; depth == 0 {
		return -1
	}
	switch v.Kind() {
	case reflect.String:
		left -= v.Len()
	case reflect.Slice, reflect.Array:
		for i := 0; i < v.Len() && left >= 0; i++ {
			left = takeWeight(v.Index(i), depth-1, left)
		}
	case reflect.Map:
		for entries := v.MapRange(); left >= 0 && entries.Next(); {
			left = takeWeight(entries.Value(), depth-1, takeWeight(entries.Key(), depth-1, left))
		}
	case reflect.Struct:
		for i := 0; i < v.NumField() && left >= 0; i++ {
			left = takeWeight(v.Field(i), depth-1, left)
		}
	case reflect.Interface:
		if !v.IsNil() {
			left = takeWeight(v.Elem(), depth, left)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			left = takeWeight(v.Elem(), depth-1, left)
		}
	}
	return left
}

// countCompared counts values that are compared with each other.
func (r *renderer) countCompared(n int) error {
	if r.compared += n; r.compared > maxCompared {
		return fleet.Errorf(fleet.CodeInvalid, "the template compares more than %d values", maxCompared).WithHint("search shorter lists")
	}
	if r.ctx != nil && r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	return nil
}

// isEmpty reports whether a value is nil, false, 0, or has no elements.
func isEmpty(v any) bool {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Slice, reflect.Map, reflect.String, reflect.Array:
		return r.Len() == 0
	case reflect.Struct:
		return false
	}
	return !r.IsValid() || r.IsZero()
}

// mergeMaps returns the entries of two maps. Maps under one key are merged. Of two other values the first wins, or the
// second with override; an empty one never wins.
func mergeMaps(first, second map[string]any, override bool) map[string]any {
	merged := maps.Clone(first)
	if merged == nil {
		merged = map[string]any{}
	}
	for key, other := range second {
		has, known := merged[key]
		inner, isMap := has.(map[string]any)
		otherInner, otherIsMap := other.(map[string]any)
		switch {
		case isMap && otherIsMap:
			merged[key] = mergeMaps(inner, otherInner, override)
		case !known, isEmpty(has), override && !isEmpty(other):
			merged[key] = other
		}
	}
	return merged
}

// explodeMap makes nested maps of keys such as a/b/c.
func explodeMap(flat map[string]any) (map[string]any, error) {
	all := map[string]any{}
	made := map[string]map[string]any{} // by the part of the key that leads to it
	for _, key := range slices.Sorted(maps.Keys(flat)) {
		if strings.Count(key, "/") > maxNesting {
			return nil, fleet.Errorf(fleet.CodeInvalid, "explodeMap: a key has more than %d parts", maxNesting)
		}
		at, begin := all, 0
		for i, c := range []byte(key) {
			if c != '/' {
				continue
			}
			inner := made[key[:i]]
			if _, taken := at[key[begin:i]]; taken && inner == nil {
				return nil, fleet.Errorf(fleet.CodeInvalid, "explodeMap: %q has a value and keys below it", key[:i])
			}
			if inner == nil {
				inner = map[string]any{}
				made[key[:i]], at[key[begin:i]] = inner, inner
			}
			at, begin = inner, i+1
		}
		if last := key[begin:]; last != "" {
			at[last] = flat[key]
		}
	}
	return all, nil
}
