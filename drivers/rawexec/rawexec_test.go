package rawexec_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"testing"

	"skerry/drivers"
	"skerry/drivers/drivertest"
	"skerry/drivers/rawexec"
	"skerry/drivers/supervised"
	"skerry/fleet"
)

func TestMain(m *testing.M) {
	supervised.Supervise()
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, newHarness)
}

func newHarness(tb testing.TB) drivertest.Harness {
	bootID := ""
	return drivertest.Harness{
		Name:           rawexec.Name,
		NewDriver:      func() drivers.Driver { return mustDriver(tb, bootID) },
		Reboot:         func() { bootID = "11111111-2222-3333-4444-555555555555" },
		Config:         drivertest.Shell,
		Starts:         drivertest.ShellStarts,
		NoOOM:          drivertest.NoCgroups(),
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
	d, err := rawexec.New(rawexec.Config{BootID: bootID, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// Every config block is either accepted with a command or rejected as invalid.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"command": "/bin/sleep", "args": ["1"]}`))
	f.Add([]byte(`{"command": "", "args": null}`))
	f.Add([]byte(`{"command": "a\u0000b", "args": ["x", 1]}`))
	f.Add([]byte(`{"command": ["x"], "more": {"y": [1, 2]}}`))
	d := mustDriver(f, "boot")
	f.Fuzz(func(t *testing.T, b []byte) {
		var config map[string]any
		if json.Unmarshal(b, &config) != nil {
			return
		}
		if err := d.Validate(config); err != nil {
			if fleet.CodeOf(err) != fleet.CodeInvalid {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if command, ok := config["command"].(string); !ok || command == "" {
			t.Fatalf("taken without a command: %s", b)
		}
	})
}

// TestNumbersAreText accepts numbers and booleans as text, in every type that they have after the file,
// the API, the hub's log and the link.
func TestNumbersAreText(t *testing.T) {
	args := []any{"--port", 8080, int64(-1), uint64(7), 8080.0, 1.5, 1e21, json.Number("443"), json.Number("1e3"), json.Number("0.25"), true}
	command, got, err := rawexec.Settings(map[string]any{"command": 7, "args": args})
	want := []string{"--port", "8080", "-1", "7", "8080", "1.5", "1000000000000000000000", "443", "1000", "0.25", "true"}
	if err != nil || command != "7" || !slices.Equal(got, want) {
		t.Errorf("%q %q, %v: want %q", command, got, err, want)
	}
}
