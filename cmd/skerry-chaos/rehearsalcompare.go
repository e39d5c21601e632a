package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"skerry/chaos/real"
	"skerry/chaos/report"
)

// fact is one observation about an allocation that is comparable between runs.
type fact struct {
	// Of names the allocation independent of the run: by its group, its edge, and the
	// allocation that it replaced.
	Of string
	// What is the kind of observation, and Answer its value, if it has one.
	What, Answer string
	At           time.Duration // time of an event; meaningful only if Timed
	Timed        bool
}

// factsOf returns the facts of all allocations, in the order of the rehearsal's places.
func factsOf(r *report.Rehearsal) []fact {
	var facts []fact
	named := map[string]int{}
	for _, p := range r.Places {
		edges := map[any]string{}
		for i, a := range p.Allocs {
			group, _, _ := strings.Cut(p.Name, "[")
			of := group + " on " + a.Edge
			if before, ok := edges[a.Replaces]; ok {
				of += ", in place of " + before + "'s"
			}
			edges[a.ID] = a.Edge
			if named[of]++; named[of] > 1 {
				of += fmt.Sprintf(" (%d)", named[of])
			}
			if i == 0 {
				facts = append(facts, fact{Of: of, What: "becomes", Answer: string(p.Fate(r.Lasted))})
			} else {
				facts = append(facts, fact{Of: of, What: "is placed", At: a.Placed, Timed: true})
			}
			facts = append(facts, allocFacts(of, a, r.Lasted)...)
		}
	}
	return facts
}

// allocFacts returns the facts about when an allocation ran, which status it showed, and how it ended.
func allocFacts(of string, a report.RehearsedAlloc, lasted time.Duration) []fact {
	var facts []fact
	span := func(what string, w report.Window) {
		facts = append(facts, fact{Of: of, What: what, Answer: "from", At: w.From, Timed: true})
		if w.To < lasted {
			facts = append(facts, fact{Of: of, What: what, Answer: "until", At: w.To, Timed: true})
		}
	}
	for _, w := range a.Ran {
		span("runs", w)
	}
	for _, s := range a.Showed {
		span("is shown as "+s.Status, s.Window)
	}
	if a.End != "" {
		facts = append(facts, fact{Of: of, What: "ends", Answer: a.End, At: a.Ended, Timed: true})
	}
	return facts
}

// comparedLine compares one fact of the rehearsal with the same fact of the real run.
type comparedLine struct {
	Of, What        string
	Rehearsed, Real string // "": that run lacks the fact
	Apart           time.Duration
	Agree           bool
}

// comparison is the result of comparing a rehearsal with a real run.
type comparison struct {
	Tolerance time.Duration
	Lines     []comparedLine
}

// compareRehearsals compares a rehearsal with a real run. They agree if the same facts hold for the
// same groups on the same edges, in the same order, and at times that differ by at most the tolerance.
func compareRehearsals(rehearsed, was *report.Rehearsal, tolerance time.Duration) comparison {
	c := comparison{Tolerance: tolerance}
	left := factsOf(was)
	for _, f := range factsOf(rehearsed) {
		l := comparedLine{Of: f.Of, What: f.What, Rehearsed: f.answerAndTime()}
		for i, g := range left {
			if g.Of != f.Of || g.What != f.What || f.Timed && g.Answer != f.Answer {
				continue
			}
			l.Real, l.Apart = g.answerAndTime(), (g.At - f.At).Abs()
			l.Agree = g.Answer == f.Answer && g.Timed == f.Timed && (!f.Timed || l.Apart <= tolerance)
			left = append(left[:i:i], left[i+1:]...)
			break
		}
		c.Lines = append(c.Lines, l)
	}
	for _, g := range left {
		c.Lines = append(c.Lines, comparedLine{Of: g.Of, What: g.What, Real: g.answerAndTime()})
	}
	return c
}

// answerAndTime formats the fact's answer and, if it has one, its time.
func (f fact) answerAndTime() string {
	if !f.Timed {
		return f.Answer
	}
	return strings.TrimSpace(f.Answer + " " + f.At.Round(100*time.Millisecond).String())
}

// differingLines returns the lines that do not agree.
func (c comparison) differingLines() []comparedLine {
	var out []comparedLine
	for _, l := range c.Lines {
		if !l.Agree {
			out = append(out, l)
		}
	}
	return out
}

// writeTable writes the comparison as a table.
func (c comparison) writeTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "OF\tWHAT\tREHEARSED\tREALLY\tAPART")
	for _, l := range c.Lines {
		apart := ""
		switch {
		case !l.Agree:
			apart = "NO"
		case l.Apart > 0:
			apart = l.Apart.Round(100 * time.Millisecond).String()
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", l.Of, l.What, valueOrDash(l.Rehearsed), valueOrDash(l.Real), apart)
	}
	return t.Flush()
}

func valueOrDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// String formats the line for messages.
func (l comparedLine) String() string {
	return fmt.Sprintf("%s %s: rehearsed %s, really %s", l.Of, l.What, valueOrDash(l.Rehearsed), valueOrDash(l.Real))
}

// defaultTolerance is the default tolerance of times: a lost link is detected between the heartbeat's
// TTL and the grace after it, and real machines are busy.
const defaultTolerance = 10 * time.Second

// errDiffers is the error of a rehearsal that differs from the real run.
var errDiffers = errors.New("the rehearsal does not match the real run")

// compareWithReal plays the rehearsal in virtual time and on real processes, and prints the
// comparison. The error is errDiffers if the two differ.
func (c rehearsal) compareWithReal(ctx context.Context, program []string, g real.Ground, tolerance time.Duration) error {
	plan, err := c.buildSchedule()
	if err != nil {
		return err
	}
	fmt.Fprintf(g.Out, "rehearsing %s of %s in virtual time\n", plan.Length, c.Name)
	rehearsed, err := c.playRehearsal(ctx, program)
	if err != nil {
		return err
	}
	was, err := real.Rehearsal{
		Ground: g, Name: c.Name, Repeat: c.Repeat, Jobs: c.Jobs, Plan: plan, Meta: c.Fleet.Meta,
		MinTTL: c.MinTTL, Grace: c.Grace, BackoffCap: c.BackoffCap,
	}.Run(ctx)
	if err != nil {
		return err
	}
	both := compareRehearsals(rehearsed, was, tolerance)
	if err := both.writeTable(g.Out); err != nil {
		return err
	}
	if apart := both.differingLines(); len(apart) > 0 {
		return fmt.Errorf("%w: %d of %d facts differ: %s", errDiffers, len(apart), len(both.Lines), apart[0])
	}
	_, err = fmt.Fprintf(g.Out, "all %d facts agree, times within %s\n", len(both.Lines), tolerance)
	return err
}
