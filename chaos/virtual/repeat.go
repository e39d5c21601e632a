package virtual

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"skerry/chaos/history"
)

// RunRepeatedly plays each schedule Times times and compares the histories. It prints how many runs
// had the same history, and the first difference of each other one. The error is ErrNotPassed if
// histories of a schedule differ.
func (cfg Campaign) RunRepeatedly(ctx context.Context) error {
	cfg.Workers, cfg.Budget = cmp.Or(cfg.Workers, runtime.NumCPU()), 0
	c, err := cfg.beginCampaign()
	if err != nil {
		return err
	}
	same := true
	for {
		s, ok := c.takeNextScenario()
		if !ok {
			break
		}
		runs, err := c.playRepeatedly(ctx, s)
		if err != nil {
			return err
		}
		groups := groupByHistory(runs)
		same = same && len(groups) == 1
		if err := c.printRepeats(s, groups); err != nil {
			return err
		}
	}
	if !same {
		return ErrNotPassed
	}
	return nil
}

// repeatedRun is one of several runs of a schedule, with the digest of its history.
type repeatedRun struct {
	number  int
	path    string // path of its history
	digest  [sha256.Size]byte
	records int
	outcome string
}

// playRepeatedly plays a schedule c.Times times, c.Workers at a time, and keeps the histories.
func (c *campaign) playRepeatedly(ctx context.Context, s Scenario) ([]repeatedRun, error) {
	runs := make([]repeatedRun, c.Times)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(c.Workers)
	for i := range runs {
		g.Go(func() error {
			// All names have one length, as those of data directories have.
			folder := filepath.Join(c.Dir, strings.ReplaceAll(s.Name, " ", "-"), fmt.Sprintf("run-%04d", i+1))
			r, err := player{c: c, s: s, folder: folder, record: true}.playRun(ctx)
			if err != nil {
				return err
			}
			runs[i] = repeatedRun{number: i + 1, path: filepath.Join(folder, HistoryFile), outcome: outcomeOf(r.Run)}
			return errors.Join(runs[i].digestHistory(), os.RemoveAll(filepath.Join(folder, dataDir)))
		})
	}
	return runs, g.Wait()
}

// outcomeOf returns the outcome of a run and the invariants that it violated, as words.
func outcomeOf(r history.Run) string {
	words := []string{string(r.Outcome)}
	for _, v := range r.Violations {
		words = append(words, v.Invariant.Slug())
	}
	return strings.Join(words, " ")
}

// digestHistory reads the history at r.path and sets r.records and r.digest.
func (r *repeatedRun) digestHistory() error {
	records, err := readRecords(r.path)
	r.records, r.digest = len(records), sha256.Sum256(bytes.Join(records, nil))
	return err
}

// readRecords returns the lines of a history without the last record, which has the real time of
// the run. A missing file has none.
func readRecords(path string) (records [][]byte, err error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("compare histories: %w", err)
	}
	for line := range bytes.Lines(text) {
		if bytes.Contains(line, []byte(`"End":{"Outcome"`)) {
			break
		}
		records = append(records, line)
	}
	return records, nil
}

// groupByHistory groups runs with equal histories, the largest group first.
func groupByHistory(runs []repeatedRun) [][]repeatedRun {
	var groups [][]repeatedRun
	for _, r := range runs {
		i := slices.IndexFunc(groups, func(g []repeatedRun) bool { return g[0].digest == r.digest })
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], r)
	}
	slices.SortStableFunc(groups, func(a, b []repeatedRun) int { return cmp.Compare(len(b), len(a)) })
	return groups
}

// printRepeats prints the number of runs in each group and where its history differs from the first.
func (c *campaign) printRepeats(s Scenario, groups [][]repeatedRun) error {
	first := groups[0]
	fmt.Fprintf(c.Out, "%s: %d of %d runs have the same history of %d records: %s\n",
		s.Name, len(first), c.Times, first[0].records, first[0].outcome)
	for _, g := range groups[1:] {
		at, a, b, err := firstDifference(first[0].path, g[0].path)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.Out, "  %d runs (the first is run %d) have another one of %d records: %s\n  they differ from record %d on:\n    run %d: %s\n    run %d: %s\n",
			len(g), g[0].number, g[0].records, g[0].outcome, at, first[0].number, a, g[0].number, b)
	}
	return nil
}

// firstDifference returns the number, from 1, of the first record that differs in two histories,
// and an excerpt of that record in each.
func firstDifference(a, b string) (at int, inA, inB string, err error) {
	first, err1 := readRecords(a)
	second, err2 := readRecords(b)
	for at < min(len(first), len(second)) && bytes.Equal(first[at], second[at]) {
		at++
	}
	if at < len(first) {
		inA = strings.TrimSpace(string(first[at]))
	}
	if at < len(second) {
		inB = strings.TrimSpace(string(second[at]))
	}
	inA, inB = excerptAtDifference(inA, inB)
	return at + 1, inA, inB, errors.Join(err1, err2)
}

// excerptAtDifference cuts two texts to the part around their first difference.
func excerptAtDifference(a, b string) (string, string) {
	const before, after = 120, 280
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	cut := func(s string) string {
		if s == "" {
			return "(it has ended)"
		}
		return s[max(0, min(i-before, len(s))):min(len(s), i+after)]
	}
	return cut(a), cut(b)
}
