// Package jobspec turns job files into fleet.Job: HCL in Nomad's shape, HCL's own
// JSON syntax, and the JSON of the HTTP API. The command line and the hub's parse
// endpoint call it.
//
// It reads HCL into the tree of the API's JSON and keeps the position of every value. Package
// validate fills in the defaults and checks the job by the same rules for all formats; the
// problems are shown with line and column. Variables, locals, functions and dynamic blocks are
// evaluated here. Properties of a node (${attr.…}, ${meta.…}, ${NOMAD_…}) stay as they are.
//
// The package starts no goroutine and persists nothing. It reads files only through
// Options.Files, and the size and the nesting of what it parses are bounded.
package jobspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/fleet/cron"
	"skerry/fleet/placement"
	"skerry/fleet/syntax"
	"skerry/fleet/validate"
)

// Options are the inputs of a job file beside its text.
type Options struct {
	// Vars are values of variables as NAME=VALUE, as of -var. The last one wins.
	Vars []string
	// VarFiles are files of NAME = value, as of -var-file; Vars win over them.
	VarFiles []File
	// Environ is searched for NOMAD_VAR_NAME and SKERRY_VAR_NAME, which both of the
	// others win over.
	Environ []string
	// Files serve the functions file, fileset and their like; nil: these are refused.
	Files Files
	// Configs read the config blocks of tasks by their driver.
	Configs validate.ConfigChecks
	// ForRegistration refuses too what nothing acts on yet.
	ForRegistration bool
	// WithoutGroups takes a job that has no group yet: who registers it adds one.
	WithoutGroups bool
	// Now is behind what launches and windows of updates must have a time. Zero: any will
	// do, also one that is over.
	Now time.Time
}

// File is a file's name and content.
type File struct {
	Name string
	Src  []byte
}

// Diagnostic is one thing that is wrong with a job file. Line and Column count from
// 1; 0 where there is no position, as in the API's JSON.
type Diagnostic struct {
	File         string
	Line, Column int
	Message      string
	Hint         string
}

// String returns file:line:column, the message, and the hint in parentheses.
func (d Diagnostic) String() string {
	s := d.Message
	if d.Hint != "" {
		s += " (" + d.Hint + ")"
	}
	if d.Line == 0 {
		return d.File + ": " + s
	}
	return fmt.Sprintf("%s:%d:%d: %s", d.File, d.Line, d.Column, s)
}

// Diagnostics are all that is wrong, by position. They are the error of Parse, and
// unwrap to a fleet.Error of CodeInvalid.
type Diagnostics []Diagnostic

// Error returns one diagnostic a line.
func (ds Diagnostics) Error() string {
	lines := make([]string, len(ds))
	for i, d := range ds {
		lines[i] = d.String()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns all diagnostics as one fleet.Error.
func (ds Diagnostics) Unwrap() error {
	return &fleet.Error{Code: fleet.CodeInvalid, Message: ds.Error()}
}

// Parse reads a job file and returns the job with its defaults filled in, validated.
// filename is for messages, and a name ending in .json says JSON; so does content
// that begins with a brace. The error is Diagnostics: everything that is wrong, not
// the first thing alone.
func Parse(filename string, src []byte, opts Options) (*fleet.Job, error) {
	p := &parser{filename: filename, opts: opts, meter: newMeter()}
	tree := p.parseFileTree(src)
	if len(p.diags) > 0 && tree == nil {
		return nil, p.sortedDiagnostics()
	}
	if opts.Now.IsZero() {
		opts.Now = time.Unix(0, 0).UTC() // what comes at all comes after that
	}
	job, problems := validate.JobFromTree(tree)
	problems = slices.Concat(problems, placement.Problems(job), validate.Job(job), cron.Problems(job, opts.Now))
	if opts.WithoutGroups {
		problems = slices.DeleteFunc(problems, func(p fleet.Problem) bool { return p.Path == "TaskGroups" && len(job.TaskGroups) == 0 })
	}
	if opts.ForRegistration {
		problems = append(problems, validate.Unsupported(job)...)
	}
	for _, problem := range slices.Concat(problems, opts.Configs.Problems(job)) {
		p.addJobProblem(problem)
	}
	if len(p.diags) > 0 {
		return nil, p.sortedDiagnostics()
	}
	return job, nil
}

// parseFileTree reads the file into the API's shape; nil where that failed.
func (p *parser) parseFileTree(src []byte) map[string]any {
	if len(src) > fleet.MaxJobSize {
		p.addDiagnostic(Diagnostic{File: p.filename,
			Message: fmt.Sprintf("a job file of %d bytes: at most %d are allowed", len(src), fleet.MaxJobSize), Hint: splitHint})
		return nil
	}
	src, ok := p.readableText(src)
	if !ok {
		return nil
	}
	if strings.HasSuffix(p.filename, ".json") || bytes.HasPrefix(bytes.TrimSpace(src), []byte("{")) {
		return p.jsonTree(src)
	}
	return p.nativeTree(src)
}

// splitHint is the hint for a file that is too large.
const splitHint = "split it into several jobs, or let its tasks fetch what is large"

// jsonTree tells the API's JSON from HCL's JSON syntax: in the latter, the object
// below "job" has the job's name as its only key.
func (p *parser) jsonTree(src []byte) map[string]any {
	if syntax.JSONDepth(src) > fleet.MaxJobDepth {
		p.addDiagnostic(Diagnostic{File: p.filename, Message: fmt.Sprintf("nested more than %d deep", fleet.MaxJobDepth)})
		return nil
	}
	var outer map[string]json.RawMessage
	if err := json.Unmarshal(src, &outer); err != nil {
		p.jsonError(src, err)
		return nil
	}
	body, outside := json.RawMessage(src), ""
	for _, key := range []string{"Job", "job"} {
		if inner, ok := outer[key]; ok {
			body, outside = inner, key
			break
		}
	}
	var job map[string]json.RawMessage
	if json.Unmarshal(body, &job) == nil && !isAPIShape(job) {
		return p.jsonSyntaxTree(src)
	}
	if key := syntax.RepeatedKey(src); key != "" {
		p.addDiagnostic(Diagnostic{File: p.filename, Message: fmt.Sprintf("the key %s is there twice", key), Hint: "leave one of them out"})
	}
	delete(outer, outside)
	maps.DeleteFunc(outer, func(_ string, value json.RawMessage) bool { // a saved request has the other keys, without a value
		return slices.Contains([]string{"null", `""`, "false", "0", "[]", "{}"}, string(value))
	})
	if outside != "" && len(outer) > 0 {
		p.addDiagnostic(Diagnostic{
			File: p.filename, Message: fmt.Sprintf("not expected beside %s: %s", outside, strings.Join(slices.Sorted(maps.Keys(outer)), ", ")),
			Hint: "a file has the job alone; options of its registration are flags",
		})
	}
	var tree map[string]any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil || tree == nil {
		p.addDiagnostic(Diagnostic{File: p.filename, Message: "not a job in JSON: an object is needed below \"Job\""})
		return nil
	}
	return tree
}

func isAPIShape(job map[string]json.RawMessage) bool {
	for key := range job {
		if slices.ContainsFunc([]string{"ID", "Name", "TaskGroups", "Type", "Datacenters"},
			func(known string) bool { return strings.EqualFold(known, key) }) {
			return true
		}
	}
	return false
}

func (p *parser) jsonError(src []byte, err error) {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		p.addDiagnostic(Diagnostic{File: p.filename, Line: 1, Column: 1, Message: fmt.Sprintf("a job in JSON is an object, not %s", kind.Value),
			Hint: `write {"Job": {"ID": …}} as the API has it, or {"job": {"NAME": {…}}} as HCL does`})
		return
	}
	d := Diagnostic{File: p.filename, Message: "not JSON: " + err.Error()}
	if wrong, ok := err.(*json.SyntaxError); ok && wrong.Offset > 0 && wrong.Offset <= int64(len(src)) {
		before := src[:wrong.Offset-1]
		d.Line = bytes.Count(before, []byte("\n")) + 1
		d.Column = len(before) - bytes.LastIndexByte(before, '\n')
	}
	p.addDiagnostic(d)
}
