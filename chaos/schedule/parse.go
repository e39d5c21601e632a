package schedule

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"skerry/fleet/jobspec"
)

// Bounds of a text.
const (
	MaxText    = 8 << 20
	maxComment = 4096
	// maxDiagnostics is how much is said before the rest is only counted.
	maxDiagnostics = 100
)

// Diagnostics are all that is wrong with a scenario, by position; see package
// jobspec.
type Diagnostics = jobspec.Diagnostics

// Parse reads a scenario. The file's name is for messages. The error is Diagnostics:
// all that is wrong, by line and column, with what to do about it.
func Parse(file string, src []byte) (Schedule, error) {
	p := &parser{file: file, src: src, places: map[Part][]place{}}
	d := document{Settle: DefaultSettle}
	if err := DecodeText(file, src, &d); err != nil {
		return Schedule{}, err
	}
	if err := yaml.Unmarshal(src, &p.root); err != nil {
		p.addDiagnostic(place{}, err.Error(), "")
	}
	s := p.readDocument(d)
	if len(p.diags) == 0 {
		for _, problem := range s.Validate() {
			p.addDiagnostic(p.placeOfProblem(problem), problem.Message, problem.Hint)
		}
	}
	if len(p.diags) > 0 {
		return Schedule{}, p.diagnosticsError()
	}
	return s, nil
}

// Lines of the error of package yaml.
var (
	typeError  = regexp.MustCompile(`^(?:yaml: )?line ([0-9]+): (.*)$`)
	unknownKey = regexp.MustCompile(`^field (.*) not found in type .*$`)
)

// DecodeText reads YAML without unknown keys into a value. The error is Diagnostics.
func DecodeText(file string, src []byte, into any) error {
	p := &parser{file: file}
	if len(src) > MaxText {
		p.addDiagnostic(place{}, fmt.Sprintf("%d bytes: at most %d", len(src), MaxText), "")
		return p.diagnosticsError()
	}
	if !utf8.Valid(src) {
		p.addDiagnostic(place{}, "not UTF-8", "")
		return p.diagnosticsError()
	}
	in := yaml.NewDecoder(bytes.NewReader(src))
	in.KnownFields(true)
	err := in.Decode(into)
	if err == nil && !errors.Is(in.Decode(new(yaml.Node)), io.EOF) {
		err = errors.New("there is more than one document")
	}
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	lines := []string{err.Error()}
	if wrong := new(yaml.TypeError); errors.As(err, &wrong) {
		lines = wrong.Errors
	}
	for _, text := range lines {
		at := place{}
		if m := typeError.FindStringSubmatch(text); m != nil {
			at.line, _ = strconv.Atoi(m[1])
			at.column, text = 1, unknownKey.ReplaceAllString(m[2], `unknown key "$1"`)
		}
		p.addDiagnostic(at, text, "")
	}
	return p.diagnosticsError()
}

type parser struct {
	file   string
	src    []byte
	root   yaml.Node
	places map[Part][]place // where each item of a part stands
	diags  Diagnostics
}

// place is where something stands; both count from 1.
type place struct{ line, column int }

func (p *parser) addDiagnostic(at place, message, hint string) {
	p.diags = append(p.diags, jobspec.Diagnostic{File: p.file, Line: at.line, Column: at.column, Message: message, Hint: hint})
}

// diagnosticsError is the error of all that was reported.
func (p *parser) diagnosticsError() error {
	slices.SortStableFunc(p.diags, func(a, b jobspec.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	p.diags = slices.Compact(p.diags)
	if more := len(p.diags) - maxDiagnostics; more > 0 {
		p.diags = p.diags[:maxDiagnostics]
		p.addDiagnostic(place{}, fmt.Sprintf("and %d more", more), "")
	}
	return p.diags
}

// readDocument makes a schedule of a document, and notes where its parts stand.
func (p *parser) readDocument(d document) Schedule {
	s := Schedule{
		Comment: topComment(p.src), Seed: d.Seed, Length: d.Length, Settle: d.Settle, Operations: d.Operations, Expect: d.Expect,
	}
	var err error
	if s.Topology, err = d.Topology(); err != nil {
		p.addDiagnostic(place{}, err.Error(), "")
	}
	for i, g := range d.Edges {
		if len(p.diags) == 0 {
			p.places[PartEdge] = append(p.places[PartEdge], slices.Repeat([]place{p.placeOf("edges", i)}, orElse(g.Count, 1))...)
		}
	}
	for i := range d.Pools {
		p.places[PartPool] = append(p.places[PartPool], p.placeOf("pools", i))
	}
	for i, j := range d.Jobs {
		s.Jobs = append(s.Jobs, j.toJob())
		p.places[PartJob] = append(p.places[PartJob], p.placeOf("jobs", i))
	}
	for i := range d.Expect {
		p.places[PartExpect] = append(p.places[PartExpect], p.placeOf("expect", i))
	}
	s.Steps = readTimed(p, PartStep, "steps", d.Steps, func(t stepText) (Step, time.Duration, repetition, error) {
		return t.Step, t.At, t.repetition, nil
	}, func(step *Step) *time.Duration { return &step.At })
	s.Faults = readTimed(p, PartFault, "faults", d.Faults, func(t faultText) (f Fault, at time.Duration, r repetition, err error) {
		f = t.Fault
		f.Params = f.Kind.Fill(f.Params)
		f.Targets, err = expandTargets(f.Targets)
		return f, f.At, t.repetition, err
	}, func(f *Fault) *time.Duration { return &f.At })
	return s
}

// readTimed repeats steps or faults, and puts them in order of time.
func readTimed[T, U any](p *parser, part Part, key string, texts []T, read func(T) (U, time.Duration, repetition, error), at func(*U) *time.Duration) []U {
	type item struct {
		value U
		place place
	}
	var items []item
	for i, text := range texts {
		where := p.placeOf(key, i)
		value, first, repeat, err := read(text)
		times, wrong := repeat.expandTimes(first)
		if err := errors.Join(err, wrong); err != nil {
			p.addDiagnostic(where, err.Error(), "")
			continue
		}
		if len(items)+len(times) > MaxFaults {
			p.addDiagnostic(where, fmt.Sprintf("more than %d %s", MaxFaults, key), "")
			return nil
		}
		for _, t := range times {
			*at(&value) = t
			items = append(items, item{value, where})
		}
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(*at(&a.value), *at(&b.value)) })
	var values []U
	for _, i := range items {
		values = append(values, i.value)
		p.places[part] = append(p.places[part], i.place)
	}
	return values
}

// listOf returns the items of a list of the document.
func (p *parser) listOf(key string) []*yaml.Node {
	if len(p.root.Content) == 0 {
		return nil
	}
	fields := p.root.Content[0].Content
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i].Value == key {
			return fields[i+1].Content
		}
	}
	return nil
}

func (p *parser) placeOf(key string, i int) place {
	if items := p.listOf(key); i < len(items) {
		return place{items[i].Line, items[i].Column}
	}
	return place{}
}

// placeOfProblem is where a problem stands: the item that it is about, or the line of its
// job file.
func (p *parser) placeOfProblem(problem Problem) place {
	places := p.places[problem.Part]
	if problem.Index >= len(places) {
		return place{}
	}
	at := places[problem.Index]
	jobs := p.listOf("jobs")
	if problem.Line == 0 || problem.Index >= len(jobs) {
		return at
	}
	fields := jobs[problem.Index].Content
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i].Value == "hcl" {
			return place{fields[i+1].Line + problem.Line, fields[i].Column + 1 + problem.Column}
		}
	}
	return at
}

// topComment returns the lines at the top that begin with #.
func topComment(src []byte) string {
	var text []string
	for line := range strings.Lines(string(src)) {
		comment, ok := strings.CutPrefix(line, "#")
		if !ok {
			break
		}
		text = append(text, strings.TrimRightFunc(strings.TrimPrefix(comment, " "), unicode.IsSpace))
	}
	return strings.Trim(strings.Join(text, "\n"), "\n")
}

func validComment(s string) bool {
	if s == "" {
		return true
	}
	for line := range strings.SplitSeq(s, "\n") {
		if strings.TrimRightFunc(line, unicode.IsSpace) != line {
			return false
		}
	}
	printable := !strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
	return len(s) <= maxComment && utf8.ValidString(s) && printable && strings.Trim(s, "\n") == s
}
