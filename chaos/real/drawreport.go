package real

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"skerry/chaos/history"
	"skerry/chaos/report"
)

// drawReport draws the closed history in a folder of a report.
func drawReport(g Ground, dir string) (err error) {
	r, err := history.Open(filepath.Join(dir, historyFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	out, err := os.Create(filepath.Join(dir, reportFile))
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	g.printLine("report: %s", out.Name())
	return report.WriteRun(out, r, report.PageLinks{History: historyFile})
}
