package template

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"text/template"

	"skerry/fleet"
)

// maxLoop bounds the length of the list that loop makes.
const maxLoop = 100000

var listFunctions = template.FuncMap{
	"loop": makeLoop,
	"byPort": func(list []Service) map[int][]Service {
		m := map[int][]Service{}
		for _, s := range list {
			m[s.Port] = append(m[s.Port], s)
		}
		return m
	},
	"byTag": func(list []Service) map[string][]Service {
		m := map[string][]Service{}
		for _, s := range list {
			for _, tag := range s.Tags {
				m[tag] = append(m[tag], s)
			}
		}
		return m
	},
}

// searchFunctions are those that look for values.
func (r *renderer) searchFunctions() template.FuncMap {
	return template.FuncMap{
		"in":       r.holdsValue,
		"contains": func(v, list any) (bool, error) { return r.holdsValue(list, v) },
		"containsAll": func(want, list any) (bool, error) {
			return r.countHeld(want, list, func(held, n int) bool { return held == n })
		},
		"containsAny": func(want, list any) (bool, error) {
			return r.countHeld(want, list, func(held, _ int) bool { return held > 0 })
		},
		"containsNone": func(want, list any) (bool, error) {
			return r.countHeld(want, list, func(held, _ int) bool { return held == 0 })
		},
		"containsNotAll": func(want, list any) (bool, error) {
			return r.countHeld(want, list, func(held, n int) bool { return held < n })
		},
	}
}

var mathFunctions = template.FuncMap{
	"add": func(b, a any) (any, error) {
		return calculate(a, b, func(x, y int64) int64 { return x + y }, func(x, y float64) float64 { return x + y })
	},
	"subtract": func(b, a any) (any, error) {
		return calculate(a, b, func(x, y int64) int64 { return x - y }, func(x, y float64) float64 { return x - y })
	},
	"multiply": func(b, a any) (any, error) {
		return calculate(a, b, func(x, y int64) int64 { return x * y }, func(x, y float64) float64 { return x * y })
	},
	"minimum": func(b, a any) (any, error) {
		return calculate(a, b, func(x, y int64) int64 { return min(x, y) }, math.Min)
	},
	"maximum": func(b, a any) (any, error) {
		return calculate(a, b, func(x, y int64) int64 { return max(x, y) }, math.Max)
	},
	"divide": func(b, a any) (any, error) {
		if isZero(b) {
			return nil, errors.New("division by zero")
		}
		return calculate(a, b, func(x, y int64) int64 { return x / y }, func(x, y float64) float64 { return x / y })
	},
	"modulo": func(b, a any) (any, error) {
		if isZero(b) {
			return nil, errors.New("division by zero")
		}
		return calculate(a, b, func(x, y int64) int64 { return x % y }, math.Mod)
	},
	"parseInt": func(s string) (int64, error) {
		if s == "" {
			return 0, nil
		}
		return strconv.ParseInt(s, 10, 64)
	},
	"parseUint": func(s string) (uint64, error) {
		if s == "" {
			return 0, nil
		}
		return strconv.ParseUint(s, 10, 64)
	},
	"parseFloat": func(s string) (float64, error) {
		if s == "" {
			return 0, nil
		}
		return strconv.ParseFloat(s, 64)
	},
}

// makeLoop returns the numbers from 0 up to one, or from one up to another.
func makeLoop(bounds ...any) ([]int, error) {
	var from, to int64
	var err error
	switch len(bounds) {
	case 1:
		to, err = number(bounds[0])
	case 2:
		if from, err = number(bounds[0]); err == nil {
			to, err = number(bounds[1])
		}
	default:
		return nil, errors.New("loop has one argument or two")
	}
	if err != nil {
		return nil, err
	}
	if n := to - from; n > maxLoop || to > math.MaxInt32 || from < math.MinInt32 {
		return nil, fleet.Errorf(fleet.CodeInvalid, "loop goes from %d to %d: at most %d turns", from, to, maxLoop)
	}
	var list []int
	for i := from; i < to; i++ {
		list = append(list, int(i))
	}
	return list, nil
}

func number(v any) (int64, error) {
	switch n := reflect.ValueOf(v); {
	case n.CanInt():
		return n.Int(), nil
	case n.CanUint() && n.Uint() <= math.MaxInt64:
		return int64(n.Uint()), nil
	case n.CanFloat():
		return int64(n.Float()), nil
	case n.Kind() == reflect.String:
		return strconv.ParseInt(n.String(), 10, 64)
	}
	return 0, fmt.Errorf("%v is no number", v)
}

// calculate applies an operation, in whole numbers where both are.
func calculate(a, b any, whole func(x, y int64) int64, real func(x, y float64) float64) (any, error) {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	if !x.CanFloat() && !y.CanFloat() {
		m, err := number(a)
		if err != nil {
			return nil, err
		}
		n, err := number(b)
		if err != nil {
			return nil, err
		}
		return whole(m, n), nil
	}
	toFloat := func(v reflect.Value) (float64, error) {
		if v.CanFloat() {
			return v.Float(), nil
		}
		n, err := number(v.Interface())
		return float64(n), err
	}
	m, err := toFloat(x)
	if err != nil {
		return nil, err
	}
	n, err := toFloat(y)
	if err != nil {
		return nil, err
	}
	return real(m, n), nil
}

func isZero(v any) bool {
	r := reflect.ValueOf(v)
	if r.CanFloat() {
		return r.Float() == 0
	}
	n, err := number(v)
	return err == nil && n == 0
}

// holdsValue reports whether a list has a value, or a text a part.
func (r *renderer) holdsValue(list, v any) (bool, error) {
	l := reflect.ValueOf(list)
	switch l.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		if err := r.countCompared(l.Len()); err != nil {
			return false, err
		}
	}
	switch l.Kind() {
	case reflect.String:
		part, ok := v.(string)
		return ok && strings.Contains(l.String(), part), nil
	case reflect.Slice, reflect.Array:
		for i := range l.Len() {
			if equal(l.Index(i).Interface(), v) {
				return true, nil
			}
		}
		return false, nil
	case reflect.Map:
		for _, k := range l.MapKeys() {
			if equal(l.MapIndex(k).Interface(), v) {
				return true, nil
			}
		}
		return false, nil
	}
	return false, fmt.Errorf("%T is no list", list)
}

func equal(a, b any) bool { return reflect.DeepEqual(a, b) || fmt.Sprint(a) == fmt.Sprint(b) }

// countHeld counts how many of the wanted values a list has.
func (r *renderer) countHeld(want, list any, decide func(held, n int) bool) (bool, error) {
	w := reflect.ValueOf(want)
	if w.Kind() != reflect.Slice && w.Kind() != reflect.Array {
		return false, fmt.Errorf("%T is no list", want)
	}
	held := 0
	for i := range w.Len() {
		ok, err := r.holdsValue(list, w.Index(i).Interface())
		if err != nil {
			return false, err
		}
		if ok {
			held++
		}
	}
	return decide(held, w.Len()), nil
}

// texts returns a list as texts.
func texts(list any) ([]string, error) {
	if l, ok := list.([]string); ok {
		return l, nil
	}
	l := reflect.ValueOf(list)
	if l.Kind() != reflect.Slice && l.Kind() != reflect.Array {
		return nil, fmt.Errorf("%T is no list", list)
	}
	out := make([]string, l.Len())
	for i := range out {
		out[i] = fmt.Sprint(l.Index(i).Interface())
	}
	return out, nil
}
