package real_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry/chaos/real"
)

// TestRegistrations registers jobs without and with access control, and checks the printed lines and the table.
func TestRegistrations(t *testing.T) {
	t.Parallel()
	g, _ := mustGround(t)
	var said bytes.Buffer
	g.Out = &said
	table := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := os.WriteFile(table, []byte("<!-- registrations -->\n<!-- /registrations -->\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (real.Registrations{Ground: g, Hubs: 3, Rate: 20, Duration: time.Second, Rounds: 1, Table: table}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"access control off: ", "access control on : "} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, said.String())
		}
	}
	if rows := strings.Count(string(text), " ms |"); rows != 6 || strings.Contains(string(text), " 0.00 ms |") {
		t.Errorf("the table has %d times, want 6 that are not zero:\n%s", rows, text)
	}
	if err := (real.Registrations{Ground: g, Hubs: 3, Rate: 20, Duration: time.Millisecond, Rounds: 1}).Run(t.Context()); err == nil {
		t.Error("rounds without a second are taken")
	}
}
