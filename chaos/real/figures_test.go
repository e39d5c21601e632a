package real_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/chaos/real"
)

// TestFootprintAboveALimit has two figures above their limits. The error names these and no others, and the table has all.
func TestFootprintAboveALimit(t *testing.T) {
	table := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := os.WriteFile(table, []byte("<!-- footprint -->\n<!-- /footprint -->\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := real.Footprint{Ground: real.Ground{Out: logWriter{t}}, Table: table}
	err := f.ReportFigures([]real.Figure{
		real.InMiB("at its limit", 40<<20, 40), real.InMiB("just above", 40<<20+1<<10, 40),
		real.InMiB("far above", 100<<20, 5), real.InMiB("without a limit", 900<<20, 0),
	})
	if !errors.Is(err, real.ErrViolated) {
		t.Fatalf("reported with %v, want ErrViolated", err)
	}
	for _, want := range []string{": just above: 40.00098 MiB, at most 40 MiB is allowed", ": far above: 100 MiB, at most 5 MiB is allowed"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error has no %q: %v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "is allowed"); n != 2 {
		t.Errorf("the error names %d figures, want 2: %v", n, err)
	}
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| at its limit | 40.0 | 40 |\n", "| just above | 40.0 | 40 |\n", "| far above | 100.0 | 5 |\n", "| without a limit | 900.0 | - |\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the table has no %q:\n%s", want, text)
		}
	}
	if err := f.ReportFigures([]real.Figure{real.InMiB("below", 1<<20, 2)}); err != nil {
		t.Errorf("a figure below its limit: %v", err)
	}
}
