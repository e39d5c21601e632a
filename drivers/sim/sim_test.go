package sim_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/drivers"
	"skerry/drivers/drivertest"
	"skerry/drivers/sim"
	"skerry/fleet"
)

func TestConformance(t *testing.T) {
	drivertest.RunVirtual(t, func(testing.TB) drivertest.Harness {
		world := sim.NewSimMachine()
		return drivertest.Harness{
			Name:      sim.Name,
			NewDriver: func() drivers.Driver { return sim.New(world) },
			Reboot:    world.Reboot,
			Config:    script,
			Starts:    func(cfg drivers.TaskConfig) int { return world.Starts()[cfg.ID] },

			NoLogs: "a simulated task has no output", NoOOM: "it uses no memory", NoSupervisor: "it has no process",
			BadConfigs: map[string]map[string]any{
				`unknown key "runfor"`:            {"runfor": "1s"},
				"run_for must be a duration":      {"run_for": "soon"},
				"run_for must be string":          {"run_for": 5},
				"exit_code must be 0 to 255":      {"exit_code": 256},
				"exit_code must be a whole":       {"exit_code": 1.5},
				`exit_signal unknown signal "X"`:  {"exit_signal": "X"},
				"ignore_signals must be true or":  {"ignore_signals": "SIGTERM"},
				"start_error_recoverable must be": {"start_error_recoverable": "yes"},
			},
		}
	})
}

func script(_ drivers.TaskConfig, b drivertest.Behaviour) map[string]any {
	config := map[string]any{"exit_code": b.ExitCode}
	if b.RunFor != drivertest.Forever {
		config["run_for"] = b.RunFor.String()
	}
	if b.Ignore != "" {
		config["ignore_signals"] = []any{b.Ignore}
	}
	return config
}

func TestScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := sim.NewSimMachine()
		d := sim.New(world)
		run := func(id string, config map[string]any) (drivers.Task, time.Duration) {
			t.Helper()
			begin := time.Now()
			cfg := drivers.TaskConfig{ID: id, Config: config}
			h, err := d.Start(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(begin)
			task, err := d.Recover(t.Context(), cfg, h)
			if err != nil {
				t.Fatal(err)
			}
			return task, took
		}

		task, took := run("slow", map[string]any{"start_delay": "3s", "run_for": "1h", "exit_signal": "SIGSYS"})
		if took != 3*time.Second {
			t.Errorf("started after %v, want 3s", took)
		}
		begin := time.Now()
		exit, err := task.Wait(t.Context())
		if err != nil || exit.Signal != 31 || time.Since(begin) != time.Hour {
			t.Errorf("%+v, %v after %v, want signal 31 after 1h", exit, err, time.Since(begin))
		}

		task, _ = run("lingers", map[string]any{"kill_after": "10s"})
		begin = time.Now()
		if err := task.Stop(t.Context(), "", time.Minute); err != nil || time.Since(begin) != 10*time.Second {
			t.Errorf("stopped after %v, %v, want 10s", time.Since(begin), err)
		}

		task, _ = run("deaf", map[string]any{"ignore_signals": true})
		begin = time.Now()
		if err := task.Stop(t.Context(), "", time.Minute); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("stopped after %v, %v, want 1m", time.Since(begin), err)
		}

		task, _ = run("ended", nil)
		if running := world.Running(); len(running) != 1 || running[0] != "ended" {
			t.Errorf("running: %v", running)
		}
		if !world.End("ended", drivers.Exit{Code: 9}) || world.End("ended", drivers.Exit{Code: 8}) {
			t.Error("End: want true the first time alone")
		}
		if exit, err := task.Wait(t.Context()); err != nil || exit.Code != 9 {
			t.Errorf("%+v, %v, want code 9", exit, err)
		}
	})
}

func TestStartErrors(t *testing.T) {
	d := sim.New(sim.NewSimMachine())
	for _, recoverable := range []bool{false, true} {
		_, err := d.Start(t.Context(), drivers.TaskConfig{ID: "a", Config: map[string]any{
			"start_error": "no room", "start_error_recoverable": recoverable,
		}})
		if err == nil || !strings.Contains(err.Error(), "no room") || drivers.IsRecoverable(err) != recoverable {
			t.Errorf("recoverable %v: got %v", recoverable, err)
		}
		if errors.Is(err, drivers.ErrTaskGone) {
			t.Errorf("%v is ErrTaskGone", err)
		}
	}
}

// Every script is either accepted or rejected as invalid.
func FuzzScript(f *testing.F) {
	f.Add([]byte(`{"run_for": "1s", "exit_code": 3, "ignore_signals": ["SIGTERM", 2]}`))
	f.Add([]byte(`{"exit_signal": 9, "start_delay": "-1h", "kill_after": 1e300}`))
	f.Add([]byte(`{"start_error": null, "start_error_recoverable": "x", "more": [[]]}`))
	d := sim.New(sim.NewSimMachine())
	f.Fuzz(func(t *testing.T, b []byte) {
		var config map[string]any
		if json.Unmarshal(b, &config) != nil {
			return
		}
		err := d.Validate(config)
		if err != nil && fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Fatalf("refused with %v", err)
		}
		if _, known := config["more"]; known && err == nil {
			t.Fatalf("an unknown key was taken: %s", b)
		}
	})
}

func TestAWatchedWorldTells(t *testing.T) {
	var told []string
	world := sim.NewWatchedSimMachine(func(e sim.Event) { told = append(told, e.ID+" "+e.What) })
	d := sim.New(world)
	for _, id := range []string{"a", "b", "c"} {
		if _, err := d.Start(t.Context(), drivers.TaskConfig{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	world.End("a", drivers.Exit{Code: 3})
	b, err := d.Recover(t.Context(), drivers.TaskConfig{ID: "b"}, drivers.Handle{Driver: sim.Name, TaskID: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(t.Context(), "", 0); err != nil {
		t.Fatal(err)
	}
	world.Reboot()
	want := []string{"a started", "b started", "c started", "a exited", "b stopped", "c vanished"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// A task can be started again as soon as its end is known. The watcher hears of the end before.
func TestAnEndIsToldBeforeWaitersGoOn(t *testing.T) {
	var task drivers.Task
	told := false
	world := sim.NewWatchedSimMachine(func(e sim.Event) {
		if e.What == sim.Stopped {
			if told = true; task.Ended() {
				t.Error("the task could be started again before the watcher heard of its end")
			}
		}
	})
	d := sim.New(world)
	if _, err := d.Start(t.Context(), drivers.TaskConfig{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	var err error
	if task, err = d.Recover(t.Context(), drivers.TaskConfig{ID: "a"}, drivers.Handle{Driver: sim.Name, TaskID: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := task.Stop(t.Context(), "", 0); err != nil || !told || !task.Ended() {
		t.Fatalf("%v, told %t, ended %t", err, told, task.Ended())
	}
}
