package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry/fleet"
)

// Param is a parameter that kinds take.
type Param struct {
	Name    string   // as it stands in a scenario
	Words   []string // what it can be; nil: any value. The first one is the default
	Default string   // "": it may be left out, but for what Needed says
	Needed  bool
	Doc     string

	// read puts a value into its field, and write gives it back, "" where it is not
	// set.
	read  func(p *Params, value string) error
	write func(p Params) string
}

var (
	wayParam = Param{
		Name: "way", Words: []string{string(WayBoth), string(WayOut), string(WayIn)},
		read:  func(p *Params, v string) error { p.Way = Way(v); return nil },
		write: func(p Params) string { return string(p.Way) },
	}
	refusedParam = boolParam("refused", func(p *Params) *bool { return &p.Refused })
	profileParam = Param{
		Name: "profile", Words: toStrings(Profiles()), Needed: true,
		read:  func(p *Params, v string) error { p.Profile = Profile(v); return nil },
		write: func(p Params) string { return string(p.Profile) },
	}
	phasesParam = Param{
		Name: "phases", Default: "1s..30s", Doc: "how long it is gone, and there, each time: 1s..30s",
		read: func(p *Params, v string) (err error) {
			p.Phases, err = parseSpan(v, time.Second, time.Hour)
			return err
		},
		write: func(p Params) string {
			if p.Phases == (Span{}) {
				return ""
			}
			return p.Phases.String()
		},
	}
	offParam = durationParam("off", "5m", "how long the link is gone", Span{time.Second, 30 * day},
		func(p *Params) *time.Duration { return &p.Off })
	onParam = durationParam("on", "5m", "how long it is there", Span{time.Second, 30 * day},
		func(p *Params) *time.Duration { return &p.On })
	ageParam = durationParam("age", "10m", "how old the copy is", Span{time.Second, longest},
		func(p *Params) *time.Duration { return &p.Age })
	syncParam = durationParam("sync", "200ms", "how long each sync takes", Span{time.Millisecond, 30 * time.Second},
		func(p *Params) *time.Duration { return &p.Sync })
	lifeParam = durationParam("life", "1s", "how long a task lives", Span{time.Millisecond, 10 * time.Minute},
		func(p *Params) *time.Duration { return &p.Life })
	deadlineParam = durationParam("deadline", "1m", "how long what is on it may stay", Span{time.Second, longest},
		func(p *Params) *time.Duration { return &p.Deadline })
	systemParam = boolParam("keep_system", func(p *Params) *bool { return &p.KeepSystem })
	jumpParam   = Param{
		Name: "by", Needed: true, Doc: "by how much the clock jumps: -1h, 9600h",
		read: func(p *Params, v string) (err error) {
			p.Jump, err = parseJump(v)
			return err
		},
		write: func(p Params) string {
			if p.Jump == 0 {
				return ""
			}
			return formatDuration(p.Jump)
		},
	}
	bitsParam = Param{
		Name: "bits", Default: "3", Doc: "how many bits flip: 1 to 1000",
		read: func(p *Params, v string) (err error) {
			p.Bits, err = parseCount(v, 1, 1000)
			return err
		},
		write: func(p Params) string {
			if p.Bits == 0 {
				return ""
			}
			return strconv.Itoa(p.Bits)
		},
	}
	jobParam = Param{
		Name: "job", Doc: "of this job alone",
		read:  func(p *Params, v string) error { p.Job = fleet.JobID(v); return checkLabel(v) },
		write: func(p Params) string { return string(p.Job) },
	}
	stepParam = Param{
		Name: "step", Doc: "the label of a step of its disk protocol, at which it happens",
		read: func(p *Params, v string) error {
			p.Step = v
			return checkLabel(v)
		},
		write: func(p Params) string { return p.Step },
	}
)

func boolParam(name string, field func(*Params) *bool) Param {
	return Param{
		Name: name, Words: []string{"false", "true"},
		read:  func(p *Params, v string) error { *field(p) = v == "true"; return nil },
		write: func(p Params) string { return strconv.FormatBool(*field(&p)) },
	}
}

func durationParam(name, standard, doc string, bounds Span, field func(*Params) *time.Duration) Param {
	return Param{
		Name: name, Default: standard, Doc: doc + ": " + standard,
		read: func(p *Params, v string) (err error) {
			*field(p), err = parseDuration(v, bounds.Shortest, bounds.Longest)
			return err
		},
		write: func(p Params) string {
			if d := *field(&p); d != 0 {
				return formatDuration(d)
			}
			return ""
		},
	}
}

func toStrings[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = string(list[i])
	}
	return out
}

// defaultValue is the value that the parameter has where nothing is said.
func (p Param) defaultValue() string {
	if p.Words != nil && !p.Needed {
		return p.Words[0]
	}
	return p.Default
}

// Fill gives parameters that are not set the defaults of the kind.
func (k Kind) Fill(p Params) Params {
	info, _ := k.Info()
	for _, param := range info.Params {
		if param.write(p) == "" && param.defaultValue() != "" {
			// A default of the table is valid: a test reads them all.
			_ = param.read(&p, param.defaultValue())
		}
	}
	return p
}

// formatParams writes the parameters without those words that are the default.
func (k Kind) formatParams(p Params) string {
	info, _ := k.Info()
	var parts []string
	for _, param := range info.Params {
		if v := param.write(p); v != "" && (param.Words == nil || v != param.defaultValue()) {
			parts = append(parts, param.Name+"="+v)
		}
	}
	return strings.Join(parts, " ")
}

// validateParams reads back what is set, and finds what the kind does not take.
func (k Kind) validateParams(p Params) error {
	info, _ := k.Info()
	var back Params
	for _, param := range info.Params {
		v := param.write(p)
		switch {
		case v == "" && (param.Needed || param.defaultValue() != ""):
			return fmt.Errorf("%s is missing", param.Name)
		case v == "":
			continue
		case param.Words != nil && !slices.Contains(param.Words, v):
			return fmt.Errorf("%q is none of %s", v, strings.Join(param.Words, ", "))
		}
		if err := param.read(&back, v); err != nil {
			return fmt.Errorf("%s %w", param.Name, err)
		}
	}
	if back != p {
		return errors.New("has parameters that it does not take")
	}
	return nil
}
