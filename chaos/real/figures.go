package real

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// percentile returns the p-th percentile of sorted durations.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*p+99)/100-1].Round(time.Millisecond)
}

// seconds formats a duration.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// figure is a measured figure beside its limit.
type figure struct {
	name  string
	value float64
	limit float64 // 0: none
	unit  string
}

// inMiB returns a figure of bytes, with a limit in MiB.
func inMiB(name string, bytes int64, limit float64) figure {
	return figure{name, float64(bytes) / (1 << 20), limit, " MiB"}
}

// inSeconds returns the figure of a duration.
func inSeconds(name string, took, limit time.Duration) figure {
	return figure{name, took.Seconds(), limit.Seconds(), " s"}
}

// judgeFigures returns an error that names each figure above its limit; it is ErrViolated. nil: none is above.
func judgeFigures(all []figure) error {
	var errs []error
	for _, f := range all {
		if f.limit > 0 && f.value > f.limit {
			errs = append(errs, fmt.Errorf("%w: %s: %.7g%s, at most %g%s is allowed", ErrViolated, f.name, f.value, f.unit, f.limit, f.unit))
		}
	}
	return errors.Join(errs...)
}

// figureTable is a table of measured figures, in Markdown, with the load of the machine meanwhile.
type figureTable struct {
	rows  []string
	began string // load at the beginning
}

// newTable begins a table with the names of its columns.
func (g Ground) newTable(columns ...string) *figureTable {
	t := &figureTable{began: load()}
	t.addRow(columns...)
	t.rows = append(t.rows, strings.Repeat("|---", len(columns))+"|")
	return t
}

// addRow adds a row.
func (t *figureTable) addRow(cells ...string) {
	t.rows = append(t.rows, "| "+strings.Join(cells, " | ")+" |")
}

// replaceIn replaces the part of a file between the comments <!-- NAME --> and <!-- /NAME --> by the table and a line
// about the machine. It does nothing if path is "".
func (t *figureTable) replaceIn(path, name, about string) error {
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the file of a table: %w", err)
	}
	open, end := []byte("<!-- "+name+" -->\n"), []byte("<!-- /"+name+" -->")
	head, rest, found := bytes.Cut(text, open)
	_, tail, closed := bytes.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("write a table into %s: it has no part between %s and %s", path, bytes.TrimSpace(open), end)
	}
	about += fmt.Sprintf("; %s, %s/%s with %d processors, load average %s at the beginning and %s at the end.",
		time.Now().UTC().Format("2 January 2006"), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), t.began, load())
	made := strings.ToUpper(about[:1]) + about[1:] + "\n\n" + strings.Join(t.rows, "\n") + "\n"
	if err := os.WriteFile(path, bytes.Join([][]byte{head, open, []byte(made), end, tail}, nil), 0o644); err != nil {
		return fmt.Errorf("write a table: %w", err)
	}
	return nil
}

// load returns the load average of the last minute; "unknown": there is none.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	first, _, found := strings.Cut(string(b), " ")
	if err != nil || !found {
		return "unknown"
	}
	return first
}

// measuringGCPercent is the percentage of garbage collection of a process that measures hubs. Its clients and edges take processor
// time from the hubs, which on machines of their own they would not.
const measuringGCPercent = 400

// collectLessGarbage sets measuringGCPercent, unless GOGC is set. What it returns sets back the former percentage.
func collectLessGarbage() (restore func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	former := debug.SetGCPercent(measuringGCPercent)
	return func() { debug.SetGCPercent(former) }
}
