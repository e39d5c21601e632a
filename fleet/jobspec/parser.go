package jobspec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"skerry/fleet"
)

// parser holds what one call of Parse gathers.
type parser struct {
	filename string
	opts     Options
	diags    Diagnostics
	meter    *meter
	// positions says where in the file the value of a path of the tree stands.
	positions map[string]hcl.Range
	// failed are paths that the file gives a value which could not be read: what the
	// job lacks there is no news.
	failed []string
}

func (p *parser) addDiagnostic(d Diagnostic) { p.diags = append(p.diags, d) }

// addDiagnosticAt adds a diagnostic at a range.
func (p *parser) addDiagnosticAt(r hcl.Range, message, hint string) {
	p.addDiagnostic(Diagnostic{File: r.Filename, Line: r.Start.Line, Column: r.Start.Column, Message: message, Hint: hint})
}

// unterminatedText is HCL's message for a quoted text that continues on another line.
const unterminatedText = "Invalid multi-line string"

// addHCLDiagnostics adds HCL's own diagnostics and reports whether there was an error.
func (p *parser) addHCLDiagnostics(diags hcl.Diagnostics) bool {
	open := false
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		// A text without its end is said of each line that follows.
		if d.Summary == unterminatedText {
			if open {
				continue
			}
			open = true
		} else if open && d.Summary == "Unterminated template string" {
			continue
		}
		message := d.Summary
		if d.Detail != "" && d.Detail != d.Summary {
			message += ": " + d.Detail
		}
		r := hcl.Range{Filename: p.filename}
		if d.Subject != nil {
			r = *d.Subject
		}
		p.addDiagnosticAt(r, strings.TrimSuffix(message, "."), callHint(d))
	}
	return diags.HasErrors()
}

// callHint names a function to call instead of an unknown one.
func callHint(d *hcl.Diagnostic) string {
	call, ok := hcl.DiagnosticExtra[hclsyntax.FunctionCallUnknownDiagExtra](d)
	if !ok {
		return ""
	}
	switch call.CalledFunctionName() {
	case "timestamp", "uuidv4", "bcrypt":
		return "it gives another value each time, and the same file is the same job: give the value in a variable"
	}
	return ""
}

// recordPosition remembers where the value of a path stands.
func (p *parser) recordPosition(path string, r hcl.Range) {
	if p.positions == nil {
		p.positions = map[string]hcl.Range{}
	}
	p.positions[path] = r
}

func (p *parser) recordFailedPath(path string) { p.failed = append(p.failed, path) }

// addJobProblem shows a problem of the job at the innermost thing that it is about and
// that stands in the file.
func (p *parser) addJobProblem(problem fleet.Problem) {
	if slices.ContainsFunc(p.failed, func(path string) bool {
		return path == problem.Path || parentPath(path) == problem.Path
	}) {
		return
	}
	for path := problem.Path; ; path = parentPath(path) {
		if r, ok := p.positions[path]; ok {
			p.addDiagnosticAt(r, problem.Message, problem.Hint)
			return
		}
		if path == "" {
			break
		}
	}
	message := problem.Message
	if problem.Path != "" {
		message = problem.Path + ": " + message
	}
	p.addDiagnostic(Diagnostic{File: p.filename, Message: message, Hint: problem.Hint})
}

// parentPath drops the last key or index of a path.
func parentPath(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

// maxDiagnostics bounds the diagnostics of one file.
const maxDiagnostics = 100

// sortedDiagnostics returns the diagnostics by position, each once.
func (p *parser) sortedDiagnostics() error {
	slices.SortStableFunc(p.diags, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	said := slices.Compact(p.diags)
	if more := len(said) - maxDiagnostics; more > 0 {
		said = append(said[:maxDiagnostics:maxDiagnostics], Diagnostic{File: p.filename, Message: fmt.Sprintf("and %d more like these", more)})
	}
	return said
}
