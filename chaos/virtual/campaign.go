package virtual

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/chaos/report"
	"skerry/chaos/schedule"
)

// Files of a campaign, in its directory.
const (
	sumFile   = "campaign.json"
	indexFile = "index.html"
)

// Files of a run, in its directory, beside those of its job.
const (
	reportFile   = "report.html"
	shortestFile = "shortest.yaml"
	dataDir      = "data"
)

// Campaign configures a campaign: many schedules, each played in a process of its own. So a
// panic, a leak or a hang ends only one run, and runs share no garbage collector.
type Campaign struct {
	Program []string // command line of a program that calls Work
	Name    string
	Repeat  string
	Dir     string // the directory of reports and of kept runs
	Memory  string // a directory on a file system in memory, for data directories; "": below Dir
	// Scenarios are played first. Then Seeds schedules of the Shape are drawn, from the seed
	// First on. No run begins after the Budget is over.
	Scenarios []Scenario
	First     uint64
	Seeds     int
	Shape     schedule.Shape
	Budget    time.Duration // 0: none
	Workers   int           // number of concurrent runs; 0: number of cores + 1, as one often waits for a process
	Times     int           // how often RunRepeatedly plays each schedule
	Stop      bool          // begin no run after the first one that fails
	Shrink    time.Duration // maximum time to shorten a failing schedule; 0: do not shorten it
	Record    bool          // keep histories and reports of passed runs, too
	Debug     bool
	// Coverage makes the campaign fail unless each kind of fault had an effect and each
	// branch of the checkers was reached.
	Coverage bool
	Out      io.Writer
}

// Scenario is a schedule with a name.
type Scenario struct {
	Name     string
	Schedule schedule.Schedule
}

// ErrNotPassed is the error of a campaign that did not pass. Its reasons were printed to Out.
var ErrNotPassed = errors.New("the campaign does not pass")

// campaign is the state of a running Campaign.
type campaign struct {
	Campaign
	began  time.Time
	played atomic.Uint64 // number of played schedules, with those of shrinking

	mu   sync.Mutex
	runs []history.Run
	next int // index of the next schedule: scenarios first, then seeds
	// failed is set after a run failed.
	failed bool
}

// Run plays the campaign with Workers runs at a time, prints a line for each run and a summary, and
// writes the summary to Dir. The error is ErrNotPassed if a run did not pass or, with Coverage,
// something was not reached.
func (cfg Campaign) Run(ctx context.Context) error {
	c, err := cfg.beginCampaign()
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for range c.Workers {
		g.Go(func() error { return c.playUntilDone(ctx) })
	}
	err = g.Wait()
	return errors.Join(err, c.writeSummary(c.summarizeRuns()))
}

// beginCampaign applies the defaults and makes the campaign's directory. It plays nothing.
func (cfg Campaign) beginCampaign() (*campaign, error) {
	cfg.Workers = cmp.Or(cfg.Workers, runtime.NumCPU()+1)
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the campaign's folder: %w", err)
	}
	return &campaign{Campaign: cfg, began: time.Now()}, nil
}

// playUntilDone plays schedules one after the other until none is left or ctx is done. Workers
// call it concurrently.
func (c *campaign) playUntilDone(ctx context.Context) error {
	for ctx.Err() == nil {
		s, ok := c.takeNextScenario()
		if !ok {
			return nil
		}
		run, err := c.playScenario(ctx, s)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.runs = append(c.runs, run)
		n := len(c.runs)
		c.failed = c.failed || isFailedRun(run)
		c.mu.Unlock()
		fmt.Fprintln(c.Out, formatRunLine(n, run))
	}
	return nil
}

// takeNextScenario returns the next schedule and advances c.next. ok is false if none is left, the
// budget is over, or the campaign stops after a failure.
func (c *campaign) takeNextScenario() (Scenario, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.next
	if c.Stop && c.failed || n >= len(c.Scenarios)+c.Seeds || c.Budget > 0 && time.Since(c.began) > c.Budget {
		return Scenario{}, false
	}
	c.next++
	if n < len(c.Scenarios) {
		return c.Scenarios[n], true
	}
	seed := c.First + uint64(n-len(c.Scenarios))
	return Scenario{Name: fmt.Sprintf("seed %d", seed), Schedule: schedule.Draw(seed, c.Shape)}, true
}

// playScenario plays one schedule. It deletes the directory of a passed run unless c.Record is
// set; for a failed run it shortens the schedule and writes the report page.
func (c *campaign) playScenario(ctx context.Context, s Scenario) (history.Run, error) {
	folder := filepath.Join(c.Dir, strings.ReplaceAll(s.Name, " ", "-"))
	p := player{c: c, s: s, folder: folder, record: true}
	r, err := p.playRun(ctx)
	if err != nil {
		return history.Run{}, err
	}
	good := !isFailedRun(r.Run)
	if good && !c.Record {
		return r.Run, os.RemoveAll(folder)
	}
	if !good && c.Shrink > 0 {
		c.shrinkSchedule(ctx, p, r)
	}
	err = report.DrawRun(filepath.Join(folder, HistoryFile), filepath.Join(folder, reportFile), "../"+indexFile)
	if err != nil { // a run that died early has no history
		r.Run.Reasons = append(r.Run.Reasons, err.Error())
		return r.Run, nil
	}
	r.Run.History = filepath.Join(filepath.Base(folder), HistoryFile)
	r.Run.Report = filepath.Join(filepath.Base(folder), reportFile)
	return r.Run, nil
}

// isFailedRun reports whether a run neither passed nor was void.
func isFailedRun(r history.Run) bool { return r.Outcome != history.Pass && r.Outcome != history.Void }

// shrinkSchedule searches for c.Shrink for a shorter schedule that violates one of the same
// invariants, writes it to shortestFile, and prints its path.
func (c *campaign) shrinkSchedule(ctx context.Context, p player, r Result) {
	ctx, cancel := context.WithTimeout(ctx, c.Shrink)
	defer cancel()
	broken := map[check.Invariant]bool{}
	for _, v := range r.Found {
		broken[v.Invariant] = true
	}
	p.record = false
	tries := 0
	shortest := schedule.Shrink(ctx, p.s.Schedule, schedule.Shrinking{Fails: func(ctx context.Context, s schedule.Schedule) bool {
		tries++
		q := p
		q.s.Schedule, q.folder = s, filepath.Join(p.folder, "shrinking")
		got, err := q.playRun(ctx)
		if err != nil {
			return false
		}
		for _, v := range got.Found {
			if broken[v.Invariant] {
				return true
			}
		}
		return len(broken) == 0 && got.Run.Outcome == history.Broken
	}})
	if err := os.RemoveAll(filepath.Join(p.folder, "shrinking")); err != nil {
		fmt.Fprintf(c.Out, "%v\n", err)
	}
	path := filepath.Join(p.folder, shortestFile)
	if err := os.WriteFile(path, []byte(shortest.String()), 0o600); err != nil {
		fmt.Fprintf(c.Out, "keep the shortest schedule: %v\n", err)
		return
	}
	fmt.Fprintf(c.Out, "%s: shortest schedule after %d runs: %s\n", p.s.Name, tries, path)
}

// summarizeRuns returns the summary of all runs, with the expected coverage if c.Coverage is set.
func (c *campaign) summarizeRuns() history.Campaign {
	sum := history.Campaign{
		Name: c.Name, Start: c.began, Repeat: c.Repeat, Cores: runtime.NumCPU(), Wall: time.Since(c.began), Runs: c.runs,
		Versions: map[string]string{"go": runtime.Version()},
	}
	if c.Coverage {
		for _, k := range schedule.Kinds() {
			if info, _ := k.Info(); info.Clock&schedule.Virtual != 0 {
				sum.Expected = append(sum.Expected, string(k))
			}
		}
		for _, b := range check.Branches() {
			sum.Branches = append(sum.Branches, string(b))
		}
	}
	return sum
}

// writeSummary writes the summary to the campaign's directory, as JSON and as a page, and prints
// it, then again the lines of failed runs: who reads only the end sees why. It returns ErrNotPassed if the summary has
// shortcomings.
func (c *campaign) writeSummary(sum history.Campaign) error {
	if err := writeFileWith(filepath.Join(c.Dir, sumFile), sum.Write); err != nil {
		return fmt.Errorf("keep the campaign: %w", err)
	}
	page := func(w io.Writer) error { return report.WriteCampaign(w, sum) }
	if err := writeFileWith(filepath.Join(c.Dir, indexFile), page); err != nil {
		return fmt.Errorf("keep the campaign's page: %w", err)
	}
	fmt.Fprintln(c.Out)
	if err := report.PrintCampaign(c.Out, sum); err != nil {
		return err
	}
	if len(sum.Shortcomings()) == 0 {
		return nil
	}
	fmt.Fprintln(c.Out)
	for n, run := range sum.Runs {
		if isFailedRun(run) {
			fmt.Fprintln(c.Out, formatRunLine(n+1, run))
		}
	}
	return ErrNotPassed
}

// writeFileWith creates or truncates the file and has write fill it.
func writeFileWith(path string, write func(io.Writer) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f)
}

// formatRunLine returns the line that is printed for run number n.
func formatRunLine(n int, r history.Run) string {
	var faults, hits uint64
	for _, f := range r.Faults {
		faults += f.Times
		if f.Hits > 0 {
			hits += f.Times - f.Missed
		}
	}
	s := fmt.Sprintf("%4d  %-12s %-10s %8s in %6s  %2d faults, %2d hit", n, r.Name, r.Outcome,
		r.Lasted.Round(time.Second), r.Wall.Round(100*time.Millisecond), faults, hits)
	for _, v := range r.Violations {
		s += fmt.Sprintf("  %s ×%d", v.Invariant, v.Count)
	}
	if r.Outcome != history.Pass && len(r.Reasons) > 0 {
		s += "  " + strings.Join(r.Reasons[:1], "")
	}
	return s
}
