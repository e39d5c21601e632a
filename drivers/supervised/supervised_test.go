package supervised_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/drivers/drivertest"
	"skerry/drivers/options"
	"skerry/drivers/supervised"
)

func TestMain(m *testing.M) {
	supervised.Supervise()
	os.Exit(m.Run())
}

// driverName is the name of the tests' driver. Its tasks have a command and args.
const driverName = "shell"

func check(config map[string]any) error {
	r := options.Read(config)
	r.RequiredText("command")
	r.Texts("args")
	return r.Err(driverName, "it takes command and args")
}

func build(_ context.Context, cfg drivers.TaskConfig) (supervised.Process, error) {
	r := options.Read(cfg.Config)
	command, args := r.Text("command"), r.Texts("args")
	env := supervised.Environment(os.Environ(), cfg.Env)
	path, err := supervised.FindProgram(command, cfg.Dir, env)
	return supervised.Process{Path: path, Argv: append([]string{command}, args...), Env: env, Dir: cfg.Dir}, err
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, newHarness)
}

func newHarness(tb testing.TB) drivertest.Harness {
	bootID := ""
	return drivertest.Harness{
		Name:      driverName,
		NewDriver: func() drivers.Driver { return mustDriver(tb, bootID) },
		Reboot:    func() { bootID = "11111111-2222-3333-4444-555555555555" },
		Config:    script,
		Starts:    starts,
		Logs:      true,
		BadConfigs: map[string]map[string]any{
			"command is required":               {"args": []any{"a"}},
			"command must be a string":          {"command": []any{"a"}},
			`unknown key "commmand"`:            {"command": "/bin/true", "commmand": "x"},
			"args must be a list of strings, b": {"command": "/bin/true", "args": []any{"a", nil}},
			"args must be a list of strings, n": {"command": "/bin/true", "args": "a"},
			"NUL":                               {"command": "/bin/tr\x00ue"},
		},
	}
}

func mustDriver(tb testing.TB, bootID string) *supervised.Driver {
	tb.Helper()
	d, err := supervised.New(supervised.Config{
		Name: driverName, BootID: bootID, Log: slog.New(slog.DiscardHandler), Check: check, Build: build,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// script returns a shell script with the behaviour b. It records its start after its traps are set.
func script(cfg drivers.TaskConfig, b drivertest.Behaviour) map[string]any {
	var lines []string
	if b.Ignore != "" {
		lines = append(lines, fmt.Sprintf("trap '' %s", strings.TrimPrefix(b.Ignore, "SIG")))
	}
	if b.Print != "" {
		lines = append(lines, fmt.Sprintf("echo '%s'", b.Print))
	}
	if b.PrintErr != "" {
		lines = append(lines, fmt.Sprintf("echo '%s' >&2", b.PrintErr))
	}
	lines = append(lines, "echo started >> starts")
	switch {
	case b.RunFor == drivertest.Forever:
		lines = append(lines, "while :; do sleep 1; done")
	case b.RunFor > 0:
		lines = append(lines, fmt.Sprintf("sleep %.3f", b.RunFor.Seconds()))
	}
	lines = append(lines, fmt.Sprintf("exit %d", b.ExitCode))
	return map[string]any{"command": "/bin/sh", "args": []any{"-c", strings.Join(lines, "\n")}}
}

func starts(cfg drivers.TaskConfig) int {
	b, err := os.ReadFile(filepath.Join(cfg.Dir, "starts"))
	if err != nil {
		return 0
	}
	return strings.Count(string(b), "started")
}

// eventually polls until ok, or fails with the last state.
func eventually(tb testing.TB, ok func() (bool, string)) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(30 * time.Second)
	for {
		done, state := ok()
		if done {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("did not happen within 30 s: %s", state)
		}
		<-tick.C
	}
}
