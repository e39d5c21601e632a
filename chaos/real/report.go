package real

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"skerry/chaos/engine"
	"skerry/chaos/history"
	"skerry/chaos/report"
)

// Files in the directory of a report.
const (
	historyFile = "history.jsonl.gz"
	reportFile  = "report.html"
)

// createHistory makes the directory and begins a history in it; it returns nil if dir is "".
func createHistory(dir string, h history.Header) (*history.Writer, error) {
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the report: %w", err)
	}
	return history.Create(filepath.Join(dir, historyFile), h)
}

// finishReport ends the history with the run's verdict and writes the report page. It returns the
// verdict, joined with errors of writing. Without a history it only returns the verdict.
func (g Ground) finishReport(dir string, rec *engine.Recorder, verdict error) error {
	if rec.History == nil {
		return verdict
	}
	e := history.End{Outcome: outcomeOf(verdict), Wall: rec.Clock()}
	if verdict != nil {
		e.Reasons, e.Kept = []string{verdict.Error()}, []string{g.Dir}
	}
	rec.Write(history.Record{End: &e})
	if err := errors.Join(rec.Err(), rec.History.Close()); err != nil {
		return errors.Join(verdict, err)
	}
	page := filepath.Join(dir, reportFile)
	g.printLine("report: %s", page)
	return errors.Join(verdict, report.DrawRun(filepath.Join(dir, historyFile), page, ""))
}

// outcomeOf returns the outcome of a run that ended with the error; nil: passed.
func outcomeOf(verdict error) history.Outcome {
	switch {
	case verdict == nil:
		return history.Pass
	case errors.Is(verdict, ErrViolated):
		return history.Violated
	case errors.Is(verdict, ErrVoid):
		return history.Void
	}
	return history.Broken
}
