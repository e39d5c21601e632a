package check

import (
	"reflect"
	"time"
)

// Linearize searches for a linearization of the operations of one job, before which
// there was none of that name; returned are the times of their returns. Each step of
// the search costs one of budget.
func Linearize(ops []Operation, returned []time.Duration, budget int) Linearization {
	var calls []call
	for i, op := range ops {
		calls = append(calls, call{op, returned[i]})
	}
	return linearize(jobState{}, calls, budget)
}

// Remembered is how many things a Monitor keeps, in all that it keeps them in.
func (m *Monitor) Remembered() int {
	n := 0
	for _, c := range m.checkers {
		if r, ok := c.state.(*replicas); ok {
			n += len(r.written.known) + len(r.hubs) + len(r.owed) // its ring has one size
			continue
		}
		n += count(reflect.ValueOf(c.state), 0)
	}
	return n + count(reflect.ValueOf(m.run.registry.allocs), 0) + count(reflect.ValueOf(m.run.machines.by), 0)
}

func count(v reflect.Value, depth int) int {
	if depth > 6 {
		return 0
	}
	n := 0
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			n = count(v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += count(v.Field(i), depth+1)
		}
	case reflect.Map:
		n = v.Len()
		for it := v.MapRange(); it.Next(); {
			n += count(it.Value(), depth+1)
		}
	case reflect.Slice:
		n = v.Len()
		for i := range v.Len() {
			n += count(v.Index(i), depth+1)
		}
	}
	return n
}
