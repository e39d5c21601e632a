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

// Campaign is a number of runs, made one after another or at the same time, with the faults and branches that
// they have to cover.
type Campaign struct {
	Format   int
	Name     string
	Start    time.Time
	Repeat   string // the command that runs the campaign again
	Versions map[string]string
	Cores    int           // number of processor cores that it used
	Wall     time.Duration // from its start to its end
	// Expected are the kinds of faults that at least one run has to hit with.
	Expected []string
	// Branches are the branches of the checkers that at least one run has to reach.
	Branches []string
	Runs     []Run
}

// Totals are the sums over a campaign's runs.
type Totals struct {
	Histories  int // number of runs
	Outcomes   map[Outcome]int
	Virtual    time.Duration // length of the runs in virtual time
	Real       time.Duration // length of the runs in real time
	Work       time.Duration // sum of the runs' wall times; runs may overlap
	Records    uint64
	Operations uint64
	Refused    uint64
	Faults     []FaultTotal     // sorted by kind; expected kinds that never began are in it
	Times      uint64           // number of faults that began
	Violations []ViolationCount // sorted by invariant
	Sometimes  []SometimesTotal // sorted by name; branches that were never reached are in it
}

// FaultTotal is the sum of a kind's FaultCounts over all runs.
type FaultTotal struct {
	FaultCount
	Runs int // number of runs with a hit
}

// SometimesTotal is how often all runs together reached a branch.
type SometimesTotal struct {
	Name  string
	Count uint64
	Runs  int // number of runs that reached it
}

// Totals returns the sums over the campaign's runs.
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

// Shortcomings returns the reasons why the campaign as a whole did not pass; none: it passed. Void runs are no
// reason while at least one run passed.
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

// Outcome returns the result of the campaign as a whole: the worst of its runs. It is Void where nothing
// failed, but an expected fault or branch is missing or no run passed.
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

// Write writes the campaign to w as indented JSON, with the present Format.
func (c Campaign) Write(w io.Writer) error {
	c.Format = Format
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(c); err != nil {
		return fmt.Errorf("write campaign %s: %w", c.Name, err)
	}
	return nil
}

// checkFormat checks that a JSON value has the Format that this program reads, before its other fields are
// decoded.
func checkFormat(text []byte) error {
	var version struct {
		Format *int
	}
	if err := json.Unmarshal(text, &version); err != nil || version.Format == nil {
		return errors.New("it has no version of its format")
	}
	if *version.Format != Format {
		return fmt.Errorf("its format is version %d, this program reads only version %d", *version.Format, Format)
	}
	return nil
}

// Plural returns a number with a noun, which gets an "s" unless n is 1: "1 run", "2 runs".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
