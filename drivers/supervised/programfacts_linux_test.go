package supervised_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"skerry/drivers/supervised"
)

// A program runs once, and again after its file has changed or it has failed.
func TestProgramFacts(t *testing.T) {
	program, runs := filepath.Join(t.TempDir(), "program"), filepath.Join(t.TempDir(), "runs")
	write := func(script string) {
		t.Helper()
		next := program + ".next"
		if err := os.WriteFile(next, []byte("#!/bin/sh\necho >> "+runs+"\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, program); err != nil {
			t.Fatal(err)
		}
	}
	var v supervised.ProgramFacts[string]
	read := func(want string, fails bool, wantRuns int64) {
		t.Helper()
		got, err := v.Read(program, func() (string, error) {
			out, err := exec.Command(program, "--version").CombinedOutput()
			return string(out), err
		})
		if got != want || (err != nil) != fails {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
		if n := size(runs); n != wantRuns { // a line for each run
			t.Errorf("it ran %d times, want %d", n, wantRuns)
		}
	}
	read("", true, 0)
	write(`echo "$1 1.0"`)
	read("--version 1.0\n", false, 1)
	read("--version 1.0\n", false, 1)
	write("exit 3")
	read("", true, 2)
	read("", true, 3)
	write(`echo "$1 of 2.0" >&2`)
	read("--version of 2.0\n", false, 4)
	read("--version of 2.0\n", false, 4)
}
