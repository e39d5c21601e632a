package job

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/follow"
	"skerry/fleet"
	"skerry/fleet/diff"
)

func planCommand(s *command.Session) *cobra.Command {
	var file fileFlags
	c := &cobra.Command{
		Use: "plan FILE", Short: "Show what the registration of a job would change", Args: cobra.ExactArgs(1),
		Example: `  skerry job plan shop.hcl
  skerry job plan --var-file shop.vars.hcl shop.hcl`,
		Long: "Show which fields the registration of a job would change, and what the scheduler would do. Nothing is\n" +
			"changed. The exit code is 0 if no allocation would be created or stopped, 1 if some would, and 255 if the\n" +
			"plan failed.",
		Annotations: map[string]string{console.FailsWith: "255"},
		RunE: s.Run(func(c *command.Call) error {
			job, err := file.parseJob(c, c.Args[0])
			if err != nil {
				return err
			}
			c.AskForJob(job)
			answer, err := c.Hub.PlanJob(c.Context(), job)
			if err != nil {
				return err
			}
			c.Out.Show(answer, func() {
				c.Out.Marked(func(out *console.Output) { writePlan(out, answer) })
				c.Warn(allWarnings(answer.Warnings, job))
				c.Out.Line("")
				c.Out.Hint("to register exactly this: skerry job run --check-index %d %s", answer.JobModifyIndex, file.repeatArgs(c.Args[0]))
			})
			return planExitError(answer)
		}),
	}
	file.addJobFileFlags(c)
	return c
}

// planExitError ends a plan as its exit code says: 1 where allocations would be made or stopped.
func planExitError(p api.PlanAnswer) error {
	for _, u := range p.Annotations.DesiredTGUpdates {
		if u.Place+u.Stop+u.DestructiveUpdate+u.Canary > 0 {
			return &console.ExitError{Code: 1, Err: errors.New("allocations would be made or stopped"), Silent: true}
		}
	}
	return nil
}

func writePlan(out *console.Output, p api.PlanAnswer) {
	if p.Diff != nil {
		writeDiff(out, *p.Diff, "")
	}
	out.Line("")
	for _, name := range slices.Sorted(maps.Keys(p.Annotations.DesiredTGUpdates)) {
		u := p.Annotations.DesiredTGUpdates[name]
		out.Line("Group %q: %s%s", name, console.Counts(u.Place, "to place", u.Canary, "to place as canaries", u.InPlaceUpdate, "to update in place",
			u.DestructiveUpdate, "to replace", u.Stop, "to stop", u.Disconnect, "to be unknown", u.Reconnect, "to take back",
			u.Ignore, "left alone"), unplacedText(u, p.FailedTGAllocs[name]))
		if m := p.FailedTGAllocs[name]; m != nil {
			for _, line := range follow.PlacementReasons(m) {
				out.Line("  %s", line)
			}
		}
	}
	for _, reason := range p.Reasons {
		out.Line("  %s", reason)
	}
	if at := p.NextPeriodicLaunch; !at.IsZero() {
		out.Line("Registered now, it is launched next at %s", at.Local().Format("2006-01-02 15:04:05 MST"))
	}
}

// unplacedText says how many placements and replacements must wait, or found no node.
func unplacedText(u fleet.DesiredUpdates, failed *fleet.AllocMetric) string {
	text := ""
	if u.AwaitsRoom > 0 {
		text = fmt.Sprintf("; %d of them once the allocations that make room have stopped", u.AwaitsRoom)
	}
	switch {
	case u.NoNode > 0:
		text += fmt.Sprintf("; for %d of them there is no node now:", u.NoNode)
	case failed != nil:
		text += "; no node suits it:"
	}
	return text
}

var diffMarks = map[diff.Type]string{
	diff.Added: "+", diff.Deleted: "-", diff.Edited: "~", diff.None: " ",
}

// writeDiff writes the changes of a job version, one on each line.
func writeDiff(out *console.Output, d diff.Job, indent string) {
	if d.Type == diff.None {
		out.Line("%sNothing changes.", indent)
		return
	}
	out.Line("%s%s job %q", indent, diffMarks[d.Type], d.ID)
	writeFields(out, d.Fields, d.Objects, indent+"  ")
	for _, g := range d.TaskGroups {
		if g.Type == diff.None {
			continue
		}
		note := ""
		if g.Change == diff.GroupInPlace || g.Change == diff.GroupDestructive && g.Type == diff.Edited {
			note = " (" + string(g.Change) + ")"
		}
		out.Line("%s%s group %q%s", indent+"  ", diffMarks[g.Type], g.Name, note)
		writeFields(out, g.Fields, g.Objects, indent+"    ")
		for _, t := range g.Tasks {
			note := ""
			if len(t.Annotations) > 0 {
				note = " (" + strings.Join(t.Annotations, ", ") + ")"
			}
			out.Line("%s%s task %q%s", indent+"    ", diffMarks[t.Type], t.Name, note)
			writeFields(out, t.Fields, t.Objects, indent+"      ")
		}
	}
}

func writeFields(out *console.Output, fields []diff.Field, objects []diff.Object, indent string) {
	for _, f := range fields {
		was, is := diffValue(f.Name, f.Old), diffValue(f.Name, f.New)
		switch f.Type {
		case diff.Added:
			out.Line("%s+ %s: %q", indent, f.Name, is)
		case diff.Deleted:
			out.Line("%s- %s: %q", indent, f.Name, was)
		default:
			out.Line("%s~ %s: %q => %q", indent, f.Name, was, is)
		}
	}
	for _, o := range objects {
		out.Line("%s%s %s", indent, diffMarks[o.Type], o.Name)
		writeFields(out, o.Fields, nil, indent+"  ")
	}
}

// durationFields are the names of a job's fields that are durations wherever they stand.
var durationFields = durationNames(reflect.TypeFor[fleet.Job]())

// durationNames finds them by their types, so that none that comes later is forgotten. Min
// and Max are of templates' waits, and of counts as well: they are left as they are.
func durationNames(root reflect.Type) map[string]bool {
	names, seen := map[string]bool{}, map[reflect.Type]bool{}
	other := map[string]bool{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		t = element(t)
		if t.Kind() != reflect.Struct || seen[t] {
			return
		}
		seen[t] = true
		for i := range t.NumField() {
			f := t.Field(i)
			if element(f.Type) == reflect.TypeFor[time.Duration]() {
				names[f.Name] = true
				continue
			}
			other[f.Name] = true
			walk(f.Type)
		}
	}
	walk(root)
	for name := range other {
		delete(names, name)
	}
	return names
}

// element returns the element type of a pointer, a list or a map.
func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

// diffValue is a value of a diff for people: the API has durations in nanoseconds.
func diffValue(name, value string) string {
	if !durationFields[name[strings.LastIndexByte(name, '.')+1:]] {
		return value
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return value
	}
	return time.Duration(n).String()
}
