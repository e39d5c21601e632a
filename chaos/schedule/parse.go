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
	d := document{Schedule: Schedule{Settle: DefaultSettle}}
	if err := DecodeText(file, src, &d); err != nil {
		return Schedule{}, err
	}
	p := &parser{file: file, places: map[Part][]place{}}
	if err := yaml.Unmarshal(src, &p.items); err != nil {
		p.addDiagnostic(place{}, err.Error(), "")
	}
	s := p.readDocument(d)
	s.Comment = topComment(src)
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
	items  itemNodes
	places map[Part][]place // where each item of a part stands
	diags  Diagnostics
}

// itemNodes are the items of a document's lists, as they stand in it.
type itemNodes struct{ Edges, Pools, Jobs, Steps, Faults, Expect []yaml.Node }

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
	s := d.Schedule
	s.Expect = d.Expect
	for _, node := range p.items.Edges {
		var g edgeGroup
		if err := node.Decode(&g); err != nil {
			p.addDiagnostic(placeOf(node), err.Error(), "")
		}
		p.places[PartEdge] = append(p.places[PartEdge], slices.Repeat([]place{placeOf(node)}, orElse(g.Count, 1))...)
	}
	for part, nodes := range map[Part][]yaml.Node{PartPool: p.items.Pools, PartJob: p.items.Jobs, PartExpect: p.items.Expect} {
		for _, node := range nodes {
			p.places[part] = append(p.places[part], placeOf(node))
		}
	}
	s.Steps = repeatItems(p, PartStep, d.Steps, p.items.Steps, func(step *Step) *time.Duration { return &step.At })
	for i := range d.Faults {
		f := &d.Faults[i].Item
		f.Params = f.Kind.Fill(f.Params)
		var err error
		if f.Targets, err = expandTargets(f.Targets); err != nil {
			p.addDiagnostic(placeOf(p.items.Faults[i]), err.Error(), "")
		}
	}
	s.Faults = repeatItems(p, PartFault, d.Faults, p.items.Faults, func(f *Fault) *time.Duration { return &f.At })
	return s
}

// repeatItems repeats steps or faults, and puts them in order of time.
func repeatItems[T any](p *parser, part Part, texts []timed[T], nodes []yaml.Node, at func(*T) *time.Duration) (values []T) {
	type placed struct {
		value T
		place place
	}
	var items []placed
	for i, text := range texts {
		where := placeOf(nodes[i])
		times, err := text.expandTimes(*at(&text.Item))
		if err != nil {
			p.addDiagnostic(where, err.Error(), "")
			continue
		}
		if len(items)+len(times) > MaxFaults {
			p.addDiagnostic(where, fmt.Sprintf("more than %d %ss", MaxFaults, part), "")
			return nil
		}
		for _, t := range times {
			*at(&text.Item) = t
			items = append(items, placed{text.Item, where})
		}
	}
	slices.SortStableFunc(items, func(a, b placed) int { return cmp.Compare(*at(&a.value), *at(&b.value)) })
	for _, i := range items {
		values = append(values, i.value)
		p.places[part] = append(p.places[part], i.place)
	}
	return values
}

func placeOf(node yaml.Node) place { return place{node.Line, node.Column} }

// placeOfProblem is where a problem stands: the item that it is about, or the line of its
// job file.
func (p *parser) placeOfProblem(problem Problem) place {
	places := p.places[problem.Part]
	if problem.Index >= len(places) {
		return place{}
	}
	at := places[problem.Index]
	if problem.Line == 0 {
		return at
	}
	fields := p.items.Jobs[problem.Index].Content
	i := slices.IndexFunc(fields, func(field *yaml.Node) bool { return field.Value == "hcl" })
	if i < 0 {
		return at
	}
	return place{fields[i+1].Line + problem.Line, fields[i].Column + 1 + problem.Column}
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
