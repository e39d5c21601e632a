package main

import (
	"reflect"
	"strconv"
	"strings"
	"time"

	"skerry/fleet"
)

// durationFields are the names of a job's fields that are durations wherever they stand.
var durationFields = durationNames(reflect.TypeFor[fleet.Job]())

// durationNames finds them by their types, so that none that comes later is forgotten. Min
// and Max are of templates' waits, and of counts as well: they are left as they are.
func durationNames(root reflect.Type) map[string]bool {
	names, seen := map[string]bool{}, map[reflect.Type]bool{}
	other := map[string]bool{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		t = element(t)
		if t.Kind() != reflect.Struct || seen[t] {
			return
		}
		seen[t] = true
		for i := range t.NumField() {
			f := t.Field(i)
			if element(f.Type) == reflect.TypeFor[time.Duration]() {
				names[f.Name] = true
				continue
			}
			other[f.Name] = true
			walk(f.Type)
		}
	}
	walk(root)
	for name := range other {
		delete(names, name)
	}
	return names
}

// element is what a pointer, a list or a map holds.
func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

// diffValue is a value of a diff for people: the API has durations in nanoseconds.
func diffValue(name, value string) string {
	if !durationFields[name[strings.LastIndexByte(name, '.')+1:]] {
		return value
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return value
	}
	return time.Duration(n).String()
}
