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

// What a run leaves in the folder of its report.
const (
	historyFile = "history.jsonl.gz"
	reportFile  = "report.html"
)

// createHistory begins the history in the folder of a report; nil where there is none.
func createHistory(dir string, h history.Header) (*history.Writer, error) {
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the report: %w", err)
	}
	return history.Create(filepath.Join(dir, historyFile), h)
}

// finishReport ends the history with the run's verdict, and draws the report.
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
