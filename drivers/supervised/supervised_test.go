package supervised_test

import (
	"context"
	"log/slog"
	"os"
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
		Name:           driverName,
		NewDriver:      func() drivers.Driver { return mustDriver(tb, bootID) },
		Reboot:         func() { bootID = "11111111-2222-3333-4444-555555555555" },
		Config:         drivertest.Shell,
		Starts:         drivertest.ShellStarts,
		NoOOM:          "the tasks of this driver have no cgroup",
		KillSupervisor: drivertest.KillSupervisor,
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
