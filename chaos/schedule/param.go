package schedule

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Param is a parameter of faults. Several kinds may share it.
type Param struct {
	Name     string   // its key in a scenario
	Words    []string // the allowed values; nil: any value within the bounds
	Standard any      // its default; nil: none, and the parameter may be absent unless Needed
	Needed   bool
	Doc      string

	bounds Span                // the allowed durations; of a range, both ends must lie in them
	most   int                 // the largest allowed count; the smallest is 1
	field  func(p *Params) any // returns a pointer to the parameter's field of p
}

const (
	maxJump = 100 * 365 * day
	maxBits = 1000
)

var (
	wayParam = Param{
		Name: "way", Words: []string{string(WayBoth), string(WayOut), string(WayIn)}, Standard: WayBoth,
		field: func(p *Params) any { return &p.Way },
	}
	refusedParam = boolParam("refused", func(p *Params) any { return &p.Refused })
	systemParam  = boolParam("keep_system", func(p *Params) any { return &p.KeepSystem })
	profileParam = Param{Name: "profile", Words: toStrings(Profiles()), Needed: true, field: func(p *Params) any { return &p.Profile }}
	phasesParam  = Param{
		Name: "phases", Standard: Span{time.Second, 30 * time.Second}, bounds: Span{time.Second, time.Hour},
		Doc: "how long it is gone, and there, each time", field: func(p *Params) any { return &p.Phases },
	}
	offParam = Param{
		Name: "off", Standard: 5 * time.Minute, bounds: Span{time.Second, 30 * day},
		Doc: "how long the link is gone", field: func(p *Params) any { return &p.Off },
	}
	onParam = Param{
		Name: "on", Standard: 5 * time.Minute, bounds: Span{time.Second, 30 * day},
		Doc: "how long it is there", field: func(p *Params) any { return &p.On },
	}
	ageParam = Param{
		Name: "age", Standard: 10 * time.Minute, bounds: Span{time.Second, longest},
		Doc: "how old the copy is", field: func(p *Params) any { return &p.Age },
	}
	syncParam = Param{
		Name: "sync", Standard: 200 * time.Millisecond, bounds: Span{time.Millisecond, 30 * time.Second},
		Doc: "how long each sync takes", field: func(p *Params) any { return &p.Sync },
	}
	lifeParam = Param{
		Name: "life", Standard: time.Second, bounds: Span{time.Millisecond, 10 * time.Minute},
		Doc: "how long a task lives", field: func(p *Params) any { return &p.Life },
	}
	deadlineParam = Param{
		Name: "deadline", Standard: time.Minute, bounds: Span{time.Second, longest},
		Doc: "how long what is on it may stay", field: func(p *Params) any { return &p.Deadline },
	}
	graceParam = Param{
		Name: "grace", Standard: 10 * time.Minute, bounds: Span{time.Second, longest},
		Doc: "how long edges get in with certificates of the old CA", field: func(p *Params) any { return &p.Grace },
	}
	jumpParam = Param{
		Name: "by", Needed: true, bounds: Span{-maxJump, maxJump},
		Doc: "by how much the clock jumps: -1h, 9600h", field: func(p *Params) any { return &p.Jump },
	}
	bitsParam = Param{Name: "bits", Standard: 3, most: maxBits, Doc: "how many bits flip", field: func(p *Params) any { return &p.Bits }}
	jobParam  = Param{Name: "job", Doc: "of this job alone", field: func(p *Params) any { return &p.Job }}
	stepParam = Param{
		Name: "step", Doc: "the label of a step of its disk protocol, at which it happens", field: func(p *Params) any { return &p.Step },
	}
)

// boolParam returns an optional parameter that is true or false, by default false.
func boolParam(name string, field func(*Params) any) Param {
	return Param{Name: name, Words: []string{"false", "true"}, Standard: false, field: field}
}

// toStrings converts a list of string types to strings.
func toStrings[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = string(list[i])
	}
	return out
}

// valueIn returns the parameter's field of p as a value that can be set.
func (param Param) valueIn(p *Params) reflect.Value { return reflect.ValueOf(param.field(p)).Elem() }

// Fill returns p with the defaults of the kind in all parameters that are zero.
func (k Kind) Fill(p Params) Params {
	info, _ := k.Info()
	for _, param := range info.Params {
		if v := param.valueIn(&p); v.IsZero() && param.Standard != nil {
			v.Set(reflect.ValueOf(param.Standard))
		}
	}
	return p
}

// formatParams formats the parameters of the kind as "name=value name=value". It leaves out
// zero values, and of parameters with a list of Words also the default.
func (k Kind) formatParams(p Params) string {
	info, _ := k.Info()
	var parts []string
	for _, param := range info.Params {
		v := param.valueIn(&p)
		if v.IsZero() || param.Words != nil && v.Interface() == param.Standard {
			continue
		}
		text := fmt.Sprint(v)
		if d, ok := v.Interface().(time.Duration); ok {
			text = formatDuration(d)
		}
		parts = append(parts, param.Name+"="+text)
	}
	return strings.Join(parts, " ")
}

// validateParams returns an error if a parameter that needs a value has none, a value is not
// allowed, or p sets a parameter that the kind does not take.
func (k Kind) validateParams(p Params) error {
	info, _ := k.Info()
	rest := p
	for _, param := range info.Params {
		v := param.valueIn(&rest)
		if v.IsZero() && (param.Needed || param.Standard != nil && param.Standard != false) {
			return fmt.Errorf("%s is missing", param.Name)
		}
		if err := param.validateValue(v); err != nil {
			return err
		}
		v.SetZero()
	}
	if rest != (Params{}) {
		return errors.New("has parameters that it does not take")
	}
	return nil
}

// validateValue returns an error if v, the parameter's field, is none of its Words or outside
// of its bounds.
func (param Param) validateValue(v reflect.Value) error {
	if text := fmt.Sprint(v); param.Words != nil && !slices.Contains(param.Words, text) {
		return fmt.Errorf("%q is none of %s", text, strings.Join(param.Words, ", "))
	}
	switch value := v.Interface().(type) {
	case time.Duration:
		return param.validateDuration(value)
	case Span:
		if value.Longest < value.Shortest {
			return fmt.Errorf("%s must end after it begins, not %s", param.Name, value)
		}
		return errors.Join(param.validateDuration(value.Shortest), param.validateDuration(value.Longest))
	case int:
		if value < 1 || value > param.most {
			return fmt.Errorf("%s must be 1 to %d, not %d", param.Name, param.most, value)
		}
	default:
		if v.Kind() == reflect.String && !v.IsZero() {
			if err := checkLabel(v.String()); err != nil {
				return fmt.Errorf("%s %w", param.Name, err)
			}
		}
	}
	return nil
}

// validateDuration returns an error if the duration is outside of the parameter's bounds.
func (param Param) validateDuration(d time.Duration) error {
	if d < param.bounds.Shortest || d > param.bounds.Longest {
		return fmt.Errorf("%s must be %s to %s, not %s", param.Name, formatDuration(param.bounds.Shortest), formatDuration(param.bounds.Longest), formatDuration(d))
	}
	return nil
}
