package history

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"skerry/chaos/check"
)

// Campaign is many runs, one after another or side by side.
type Campaign struct {
	Format   int
	Name     string
	Start    time.Time
	Repeat   string // the command that repeats it
	Versions map[string]string
	Cores    int           // that it used
	Wall     time.Duration // from its start to its end
	// Expected are the kinds of faults that it shall hit, of all the program knows.
	Expected []string
	// Branches are what it shall come to, of all that the checkers know.
	Branches []string
	Runs     []Run
}

// Totals are a campaign's sums.
type Totals struct {
	Histories  int
	Outcomes   map[Outcome]int
	Virtual    time.Duration // by the runs' own clocks, where these are virtual
	Real       time.Duration // by the runs' own clocks, where these are real
	Work       time.Duration // wall time of all runs, which may have gone side by side
	Records    uint64
	Operations uint64
	Refused    uint64
	Faults     []FaultTotal     // by kind, in order; also what was expected and never came
	Times      uint64           // of all faults
	Violations []ViolationCount // by invariant, in order
	Sometimes  []SometimesTotal
}

// FaultTotal is a FaultCount over all runs.
type FaultTotal struct {
	FaultCount
	Runs int // with a hit
}

// SometimesTotal is a Sometimes over all runs.
type SometimesTotal struct {
	Name  string
	Count uint64
	Runs  int // that reached it at least once
}

// Totals sums up the campaign's runs.
func (c Campaign) Totals() Totals {
	t := Totals{Histories: len(c.Runs), Outcomes: map[Outcome]int{}}
	faults, violations, sometimes := map[string]FaultTotal{}, map[check.Invariant]uint64{}, map[string]SometimesTotal{}
	for _, kind := range c.Expected {
		faults[kind] = FaultTotal{FaultCount: FaultCount{Fault: kind}}
	}
	for _, name := range c.Branches {
		sometimes[name] = SometimesTotal{Name: name}
	}
	for _, r := range c.Runs {
		t.Outcomes[r.Outcome]++
		if r.Clock == Virtual {
			t.Virtual += r.Lasted
		} else {
			t.Real += r.Lasted
		}
		t.Work, t.Records = t.Work+r.Wall, t.Records+r.Records
		t.Operations, t.Refused = t.Operations+r.Operations, t.Refused+r.Refused
		for _, f := range r.Faults {
			t.Times += f.Times
			sum := faults[f.Fault]
			sum.Fault, sum.Times, sum.Hits, sum.Missed = f.Fault, sum.Times+f.Times, sum.Hits+f.Hits, sum.Missed+f.Missed
			if f.Hits > 0 {
				sum.Runs++
			}
			faults[f.Fault] = sum
		}
		for _, v := range r.Violations {
			violations[v.Invariant] += v.Count
		}
		for _, s := range r.Sometimes {
			sum := sometimes[s.Name]
			sum.Name, sum.Count = s.Name, sum.Count+s.Count
			if s.Count > 0 {
				sum.Runs++
			}
			sometimes[s.Name] = sum
		}
	}
	byFault := func(a, b FaultTotal) int { return cmp.Compare(a.Fault, b.Fault) }
	t.Faults = slices.SortedFunc(maps.Values(faults), byFault)
	bySometimes := func(a, b SometimesTotal) int { return cmp.Compare(a.Name, b.Name) }
	t.Sometimes = slices.SortedFunc(maps.Values(sometimes), bySometimes)
	for _, i := range slices.Sorted(maps.Keys(violations)) {
		t.Violations = append(t.Violations, ViolationCount{i, violations[i]})
	}
	return t
}

// Shortcomings are the reasons why the campaign as a whole is no pass; none: it
// is one. Void runs are shown, but leave the others' word standing, as long as
// there are others.
func (c Campaign) Shortcomings() []string {
	t := c.Totals()
	var why []string
	if t.Outcomes[Pass] == 0 {
		why = append(why, "no run passed")
	}
	for _, o := range []Outcome{Violated, Broken} {
		if n := t.Outcomes[o]; n > 0 {
			why = append(why, fmt.Sprintf("%s: %s", o, Plural(n, "run")))
		}
	}
	for _, f := range t.Faults {
		if f.Hits == 0 && slices.Contains(c.Expected, f.Fault) {
			why = append(why, fmt.Sprintf("fault %s never hit", f.Fault))
		}
	}
	for _, s := range t.Sometimes {
		if s.Count == 0 && slices.Contains(c.Branches, s.Name) {
			why = append(why, fmt.Sprintf("never reached: %s", s.Name))
		}
	}
	return why
}

// Outcome is what the campaign as a whole showed: void where nothing failed, and
// something that it was to reach never came.
func (c Campaign) Outcome() Outcome {
	t := c.Totals()
	switch {
	case t.Outcomes[Violated] > 0:
		return Violated
	case t.Outcomes[Broken] > 0:
		return Broken
	case len(c.Shortcomings()) > 0:
		return Void
	}
	return Pass
}

// Write writes the campaign as indented JSON.
func (c Campaign) Write(w io.Writer) error {
	c.Format = Format
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(c); err != nil {
		return fmt.Errorf("write campaign %s: %w", c.Name, err)
	}
	return nil
}

// checkFormat checks the version that a value names, before its shape is relied on.
func checkFormat(text []byte) error {
	var version struct {
		Format *int
	}
	if err := json.Unmarshal(text, &version); err != nil || version.Format == nil {
		return errors.New("it names no version of its format")
	}
	if *version.Format != Format {
		return fmt.Errorf("its format is version %d, this program reads version %d", *version.Format, Format)
	}
	return nil
}

// Plural is a number of things: "1 run", "2 runs".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
