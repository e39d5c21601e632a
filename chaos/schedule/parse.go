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
	// maxDiagnostics is the number of diagnostics that are listed; the rest is counted.
	maxDiagnostics = 100
)

// Diagnostics are all errors of a scenario, in the order of their positions; see package
// jobspec.
type Diagnostics = jobspec.Diagnostics

// Parse reads a scenario from YAML, repeats its steps and faults, and validates it. The error
// is Diagnostics with all mistakes, each with file (for messages), line, column and hint.
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

// DecodeText decodes one YAML document into a value. Unknown keys and further documents are
// errors; an empty text is none. The error is Diagnostics; file is for its messages.
func DecodeText(file string, src []byte, into any) error {
	p := &parser{file: file}
	if len(src) > MaxText {
		p.addDiagnostic(place{}, fmt.Sprintf("%d bytes: at most %d are allowed", len(src), MaxText), "")
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

// parser collects the positions and the diagnostics of one text.
type parser struct {
	file   string
	items  itemNodes
	places map[Part][]place // position of each item, by part
	diags  Diagnostics
}

// itemNodes are the YAML nodes of the items in a document's lists.
type itemNodes struct{ Edges, Pools, Jobs, Steps, Faults, Expect []yaml.Node }

// place is a position in the text; line and column count from 1. Zero: the text as a whole.
type place struct{ line, column int }

func (p *parser) addDiagnostic(at place, message, hint string) {
	p.diags = append(p.diags, jobspec.Diagnostic{File: p.file, Line: at.line, Column: at.column, Message: message, Hint: hint})
}

// diagnosticsError returns the diagnostics as an error: sorted by position, each once, and at
// most maxDiagnostics of them with a count of the rest.
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

// readDocument converts a document to a schedule, with repetitions and ranges of targets
// expanded and default parameters filled in. It records the positions of the items in p.places.
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

// repeatItems returns all repetitions of steps or faults in order of time, and records the
// position of each in p.places. It adds a diagnostic for each invalid repetition.
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

// placeOfProblem returns the position of a problem: its item, or the line in the HCL of its
// job. Zero: the problem has no position.
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

// topComment returns the lines at the top of the text that begin with #, without the #.
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

// validComment reports whether s is a comment that String writes and Parse reads unchanged.
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
