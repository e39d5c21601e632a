//go:build amd64 || arm64

package deterministic_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry/chaos/deterministic"
)

// mustBuild builds a program of testdata without cgo.
func mustBuild(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	build := exec.Command("go", "build", "-o", path, "./testdata/"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return path
}

// mustRun returns the output and the error of a command.
func mustRun(t *testing.T, ctx context.Context, c deterministic.Command) (string, error) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c.Output = out
	failed := deterministic.Run(ctx, c)
	said, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(said), failed
}

func TestRunLeavesNothingToChance(t *testing.T) {
	program := mustBuild(t, "chance")
	run := func(seed uint64) string {
		said, err := mustRun(t, t.Context(), deterministic.Command{Path: program, Args: []string{program}, Env: deterministic.Environ(), Seed: seed})
		if err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		return said
	}
	first := run(1)
	for n := range 9 {
		if again := run(1); again != first {
			t.Fatalf("run %d differs from the first:\n%s\n%s", n+2, first, again)
		}
	}
	if run(2) == first {
		t.Error("another seed draws the same")
	}
}

func TestRunTellsHowAProgramEnds(t *testing.T) {
	var exit *deterministic.ExitError
	said, err := mustRun(t, t.Context(), deterministic.Command{Path: "/bin/sh", Args: []string{"sh", "-c", "cat; exit 3"}, Input: []byte("read me")})
	if !errors.As(err, &exit) || exit.Status != "exit status 3" || said != "read me" {
		t.Errorf("it ended with %v and said %q", err, said)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	said, err = mustRun(t, ctx, deterministic.Command{Path: "/bin/sh", Args: []string{"sh", "-c", "exec sleep 60"}})
	if !errors.As(err, &exit) || !strings.HasPrefix(exit.Status, "signal: quit") {
		t.Errorf("one that was to end ended with %v and said %q", err, said)
	}
	busy := deterministic.Command{Path: "/bin/sh", Args: []string{"sh", "-c", "while :; do :; done"}, MaxProcessorTime: 100 * time.Millisecond}
	if _, err = mustRun(t, t.Context(), busy); !errors.As(err, &exit) || exit.Status != "used more than 100ms of processor time" {
		t.Errorf("one that used too much ended with %v", err)
	}
	if _, err := mustRun(t, t.Context(), deterministic.Command{Path: "/no/such/program"}); err == nil {
		t.Error("a program that is not there runs")
	}
}
