package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"skerry/fleet"
	"skerry/fleet/jobspec"
)

// Bounds of a text.
const (
	MaxText    = 8 << 20
	maxComment = 4096
	// maxDiagnostics is how much is said before the rest is only counted.
	maxDiagnostics = 100
)

// Parse reads a scenario. The file's name is for messages. The error is Diagnostics:
// all that is wrong, by line and column, with what to do about it.
func Parse(file string, src []byte) (Schedule, error) {
	p := &parser{file: file, s: Schedule{Settle: DefaultSettle}, places: map[Part][]token{}, seen: map[string]token{}}
	if len(src) > MaxText {
		p.addDiagnostic(token{}, fmt.Sprintf("%d bytes: at most %d", len(src), MaxText), "")
		return Schedule{}, p.diagnosticsError()
	}
	if !utf8.Valid(src) {
		p.addDiagnostic(token{}, "not UTF-8", "")
		return Schedule{}, p.diagnosticsError()
	}
	p.lines = strings.Split(string(src), "\n")
	p.readTopComment()
	for p.number < len(p.lines) {
		p.readNextLine()
	}
	p.sortStepsAndFaults()
	p.validateSchedule()
	if len(p.diags) > 0 {
		return Schedule{}, p.diagnosticsError()
	}
	return p.s, nil
}

type parser struct {
	file   string
	lines  []string
	number int // of lines that are read
	s      Schedule
	places map[Part][]token // where each item of a part stands
	seen   map[string]token // directives that stand once
	diags  Diagnostics
	faults int // with those that were too many
}

func (p *parser) addDiagnostic(t token, message, hint string) {
	p.diags = append(p.diags, jobspec.Diagnostic{File: p.file, Line: t.line, Column: t.column, Message: message, Hint: hint})
}

// diagnosticsError is the error of all that was reported.
func (p *parser) diagnosticsError() error {
	slices.SortStableFunc(p.diags, func(a, b jobspec.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	p.diags = slices.Compact(p.diags)
	if more := len(p.diags) - maxDiagnostics; more > 0 {
		p.diags = p.diags[:maxDiagnostics]
		p.addDiagnostic(token{}, fmt.Sprintf("and %d more", more), "")
	}
	return p.diags
}

// readTopComment reads the lines at the top that begin with #.
func (p *parser) readTopComment() {
	var text []string
	for p.number < len(p.lines) && strings.HasPrefix(p.lines[p.number], "#") {
		line := strings.TrimPrefix(strings.TrimPrefix(p.lines[p.number], "#"), " ")
		text = append(text, strings.TrimRightFunc(line, unicode.IsSpace))
		p.number++
	}
	p.s.Comment = strings.Trim(strings.Join(text, "\n"), "\n")
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

// directives are what a line may begin with.
var directives = []string{"seed", "length", "settle", "operations", "hubs", "edges", "pool", "job", "next", "at", "every", "expect"}

func (p *parser) readNextLine() {
	text := p.lines[p.number]
	p.number++
	words := splitWords(text, p.number)
	if len(words) == 0 {
		return
	}
	last := words[len(words)-1]
	r := &reader{
		words: words, report: p.addDiagnostic,
		end: token{line: p.number, column: last.column + utf8.RuneCountInString(last.text)},
	}
	first := r.nextWord("")
	switch first.text {
	case "seed", "length", "settle", "operations", "hubs":
		p.readSetting(first, r)
	case "edges":
		p.readEdgesLine(first, r)
	case "pool":
		p.readPoolLine(first, r)
	case "next":
		p.readNextJobFile(r)
	case "job":
		p.readJobLine(first, r)
	case "at":
		p.readAtLine(first, r)
	case "every":
		p.readEveryLine(first, r)
	case "expect":
		if e := readExpectation(r); !r.failed {
			p.s.Expect = append(p.s.Expect, e)
			p.places[PartExpect] = append(p.places[PartExpect], first)
		}
	default:
		r.failWithError(first, newUnknownError("line", first.text, directives))
	}
	r.expectEndOfLine("")
}

// readSetting reads what stands in a scenario once.
func (p *parser) readSetting(first token, r *reader) {
	if before, twice := p.seen[first.text]; twice {
		r.failAtToken(first, "", "%s is there twice: it stands in line %d already", first.text, before.line)
		return
	}
	p.seen[first.text] = first
	switch first.text {
	case "seed":
		t := r.nextWord("the seed")
		n, err := strconv.ParseUint(t.text, 10, 64)
		if err != nil {
			r.failAtToken(t, "", "a seed is a number, not %q", t.text)
		}
		p.s.Seed = n
	case "length":
		p.s.Length = r.nextDuration("the length")
	case "settle":
		p.s.Settle = r.nextDuration("the time to settle")
	case "operations":
		t := r.nextWord("how many operations a minute")
		n, err := parseCount(strings.TrimSuffix(t.text, "/m"), 0, MaxOperations)
		if err != nil || !strings.HasSuffix(t.text, "/m") {
			r.failAtToken(t, "operations 6/m", "operations are so many a minute, not %q", t.text)
		}
		p.s.Operations = n
	case "hubs":
		for i := range r.nextCount("the number of hubs", MaxHubs) {
			p.s.Topology.Hubs = append(p.s.Topology.Hubs, HubName(i+1))
		}
	}
}

func (p *parser) readEdgesLine(first token, r *reader) {
	n := r.nextCount("the number of edges", MaxEdges)
	e := readAttributes(r, edgeAttributes, Edge{})
	if r.failed || len(p.s.Topology.Edges)+n > MaxEdges {
		r.failAtToken(first, "", "more than %d edges", MaxEdges)
		return
	}
	p.s.Topology = p.s.Topology.With(n, e)
	for range n {
		p.places[PartEdge] = append(p.places[PartEdge], first)
	}
}

func (p *parser) readPoolLine(first token, r *reader) {
	name := r.nextLabel("the name of the pool")
	pool := readAttributes(r, poolAttributes, Pool{Name: name.text})
	if r.failed {
		return
	}
	p.s.Topology.Pools = append(p.s.Topology.Pools, pool)
	p.places[PartPool] = append(p.places[PartPool], first)
}

// readAttributes reads the rest of a line.
func readAttributes[T any](r *reader, attributes []attribute[T], t T) T {
	seen := map[string]bool{}
	for !r.isAtEnd() {
		word := r.nextWord("an attribute")
		name, _, _ := strings.Cut(word.text, "=")
		if seen[name] {
			r.failAtToken(word, "", "%s is there twice", name)
		}
		seen[name] = true
		if err := setAttribute(attributes, &t, word.text); err != nil {
			r.failWithError(word, err)
		}
	}
	return t
}

// failWithError is fail with an error, of which the hint is told apart.
func (r *reader) failWithError(t token, err error) {
	var u *unknownError
	if errors.As(err, &u) && error(u) == err {
		r.failAtToken(t, u.hint, "%s", u.message)
		return
	}
	r.failAtToken(t, "", "%s", err)
}

func (p *parser) readJobLine(first token, r *reader) {
	j := Job{ID: fleet.JobID(r.nextLabel("the name of the job").text)}
	if n := len(r.words); n > 0 && strings.HasPrefix(r.words[n-1].text, "<<") {
		heredoc := r.words[n-1]
		r.words = r.words[:n-1]
		j = readAttributes(r, []attribute[Job]{startAttribute}, j)
		j.HCL = p.readHeredoc(heredoc, r)
	} else {
		j.Type = r.nextWord("service, batch or system").text
		j = readAttributes(r, jobAttributes, j)
	}
	if r.failed {
		return
	}
	p.s.Jobs = append(p.s.Jobs, j)
	p.places[PartJob] = append(p.places[PartJob], first)
}

// readNextJobFile reads the job file that an update of a job registers.
func (p *parser) readNextJobFile(r *reader) {
	name := r.nextLabel("the name of the job")
	i := slices.IndexFunc(p.s.Jobs, func(j Job) bool { return string(j.ID) == name.text })
	heredoc := r.nextWord("<<EOF")
	switch {
	case r.failed:
		return
	case i < 0 || p.s.Jobs[i].HCL == "":
		r.failAtToken(name, "job shop <<EOF", "there is no job file %q above", name.text)
	case p.s.Jobs[i].Next != "":
		r.failAtToken(name, "", "job %s has a next file already", name.text)
	case !strings.HasPrefix(heredoc.text, "<<"):
		r.failAtToken(heredoc, "next shop <<EOF", "a job file stands between <<EOF and EOF")
	default:
		p.s.Jobs[i].Next = p.readHeredoc(heredoc, r)
	}
}

// readHeredoc reads the lines up to the one that has the mark alone.
func (p *parser) readHeredoc(t token, r *reader) string {
	mark := strings.TrimPrefix(t.text, "<<")
	if err := checkLabel(mark); err != nil {
		r.failAtToken(t, "job shop <<EOF", "a job file stands between <<EOF and EOF")
		return ""
	}
	var text strings.Builder
	for p.number < len(p.lines) {
		line := strings.TrimSuffix(p.lines[p.number], "\r")
		p.number++
		if strings.TrimSpace(line) == mark {
			if strings.TrimSpace(text.String()) == "" {
				r.failAtToken(t, "", "the job file is empty")
			}
			return text.String()
		}
		text.WriteString(line + "\n")
	}
	r.failAtToken(t, "a line that has "+mark+" alone", "the job file has no end")
	return ""
}
