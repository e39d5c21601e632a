package template

import (
	"fmt"
	"maps"
	"slices"
)

// Scratch keeps values while a template is rendered. The function scratch returns the one of the rendering.
type Scratch struct {
	r       *renderer
	values  map[string]any
	weights map[string]int
	weight  int // of all values
}

// Key reports whether there is a value.
func (s *Scratch) Key(key string) bool {
	_, ok := s.values[key]
	return ok
}

// Get returns a value; nil if there is none.
func (s *Scratch) Get(key string) any { return s.values[key] }

// Set stores a value.
func (s *Scratch) Set(key string, value any) (string, error) {
	weight, err := s.r.weightOf(key, value)
	if err != nil {
		return "", err
	}
	return "", s.storeValue(key, value, weight)
}

// SetX stores a value, unless there is one.
func (s *Scratch) SetX(key string, value any) (string, error) {
	if s.Key(key) {
		return "", nil
	}
	return s.Set(key, value)
}

// MapSet stores an entry of a map.
func (s *Scratch) MapSet(key, entry string, value any) (string, error) {
	return s.setEntry(key, entry, value, true)
}

// MapSetX stores an entry of a map, unless there is one.
func (s *Scratch) MapSetX(key, entry string, value any) (string, error) {
	return s.setEntry(key, entry, value, false)
}

// MapValues returns the values of a map in the order of their keys.
func (s *Scratch) MapValues(key string) []any {
	entries, _ := s.values[key].(map[string]any)
	var list []any
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		list = append(list, entries[k])
	}
	return list
}

// setEntry stores an entry in a copy of a map: others may have the map itself.
func (s *Scratch) setEntry(key, entry string, value any, replace bool) (string, error) {
	entries, isMap := s.values[key].(map[string]any)
	if s.Key(key) && !isMap {
		return "", fmt.Errorf("scratch: %q is no map", key)
	}
	had, known := entries[entry]
	if known && !replace {
		return "", nil
	}
	weight, err := s.r.weightOf(entry, value)
	if err != nil {
		return "", err
	}
	if known {
		old, err := s.r.weightOf(entry, had)
		if err != nil {
			return "", err
		}
		weight -= old
	}
	changed := maps.Clone(entries)
	if changed == nil {
		changed = map[string]any{}
	}
	changed[entry] = value
	return "", s.storeValue(key, changed, s.weights[key]+weight)
}

// storeValue stores a value of that weight, if all values together are not too large.
func (s *Scratch) storeValue(key string, value any, weight int) error {
	total := s.weight + weight - s.weights[key]
	if total > MaxBytes {
		return errTooLarge
	}
	if s.values == nil {
		s.values, s.weights = map[string]any{}, map[string]int{}
	}
	s.values[key], s.weights[key], s.weight = value, weight, total
	return nil
}
