package fleet

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong with a job. Path says where in Nomad's JSON
// shape, without the outer "Job" (TaskGroups[0].Tasks[1].Driver); "" is the job as
// a whole. Hint says what to do and may be empty.
type Problem struct {
	Path    string
	Message string
	Hint    string `json:",omitempty"`
}

// String returns the problem as one line: path, message, hint.
func (p Problem) String() string {
	s := p.Message
	if p.Path != "" {
		s = p.Path + ": " + s
	}
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// Problems are all that is wrong with a job, in the order of the job.
type Problems []Problem

// Err returns nil where there are none, and else an Error of CodeInvalid with one
// line a problem.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return &Error{Code: CodeInvalid, Message: strings.Join(ps.Lines(), "\n")}
}

// Lines returns one line a problem.
func (ps Problems) Lines() []string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return lines
}

// Add appends a problem at a path.
func (ps *Problems) Add(path, format string, args ...any) {
	*ps = append(*ps, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}

// AddHint appends a problem at a path, with what to do about it.
func (ps *Problems) AddHint(path, hint, format string, args ...any) {
	*ps = append(*ps, Problem{Path: path, Message: fmt.Sprintf(format, args...), Hint: hint})
}
