package real_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/chaos/faultnet"
	"skerry/chaos/proc"
	"skerry/chaos/real"
	"skerry/chaos/virtual"
	"skerry/drivers/docker"
	"skerry/drivers/docker/dockertest"
)

// bin is the folder of the three programs, which are built when a test first wants
// them.
var (
	bin   string
	build = sync.OnceValue(func() error {
		cmd := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "skerry/cmd/skerry", "skerry/cmd/skerry-edge", "skerry/cmd/skerry-chaos")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		return cmd.Run()
	})
)

// sideBySide is the number of tests that run at once. They mostly wait, so that there may be more of them than
// processors, the default of go test.
const sideBySide = "4"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	var err error
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		err = p.Value.Set(sideBySide)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if bin, err = os.MkdirTemp("", "skerry-bin-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(bin) }()
	return m.Run()
}

// mustPrograms is the folder of the three programs. Tests that need it are left out with -short.
func mustPrograms(tb testing.TB) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip("it runs real processes: make test-real")
	}
	if err := build(); err != nil {
		tb.Fatalf("build the programs: %v", err)
	}
	return bin
}

// mustRunFolder makes a folder for the files of a run, which stays if the test fails. Its path is short, since unix sockets
// lie below it.
func mustRunFolder(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "sk-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the run's files are in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	return dir
}

// mustGround gives a run real programs, a folder, and a network of proxies.
func mustGround(tb testing.TB) (real.Ground, *faultnet.Proxy) {
	tb.Helper()
	bin := mustPrograms(tb)
	dir := mustRunFolder(tb)
	net := faultnet.NewProxy()
	return real.Ground{
		Net: net, Dir: dir, Out: logWriter{tb},
		HubBinary: filepath.Join(bin, "skerry"), EdgeBinary: filepath.Join(bin, "skerry-edge"),
	}, net
}

// logWriter writes lines to a test's log.
type logWriter struct{ tb testing.TB }

func (w logWriter) Write(b []byte) (int, error) {
	w.tb.Logf("%s", b)
	return len(b), nil
}

func TestPartition(t *testing.T) {
	t.Parallel()
	g, _ := mustGround(t)
	if err := (real.Campaign{Ground: g, CampaignConfig: real.CampaignConfig{Hubs: 3, Edges: 3, Rounds: 3, Seed: 1}}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestRebootWithoutALink reboots a machine with tasks of each driver, those of exec with secrets. How long that may take
// is for `run reboot` on a quiet machine to judge.
func TestRebootWithoutALink(t *testing.T) {
	for _, driver := range real.Drivers() {
		t.Run(driver, func(t *testing.T) {
			g, _ := mustGround(t)
			if why := missingFor(driver); why != "" {
				t.Skip(why)
			}
			results, err := (real.Reboot{Ground: g, Drivers: []string{driver}, Boots: 2, Tasks: 3, Secrets: driver == "exec"}).Measure(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			secrets := 0
			if driver == "exec" {
				secrets = 6
			}
			if len(results) != 1 || len(results[0].Tasks) != 6 || len(results[0].Secrets) != secrets {
				t.Errorf("measured %v, want 3 tasks twice, and %d with secrets", results, secrets)
			}
		})
	}
}

// missingFor says why a driver cannot run tasks on this machine; "": it can.
func missingFor(driver string) string {
	programs := map[string][]string{"exec": {"crun", "runc"}, "java": {"java"}, "qemu": {"qemu-system-x86_64"}}[driver]
	switch {
	case driver == docker.Docker || driver == docker.Podman:
		if err := dockertest.Missing(driver); err != nil {
			return err.Error()
		}
	case driver == "exec" && os.Getuid() != 0:
		return "exec needs root"
	case driver == "qemu" && runtime.GOARCH != "amd64":
		return "the machine of the tasks of qemu is a PC"
	case len(programs) > 0 && !slices.ContainsFunc(programs, func(p string) bool { _, err := exec.LookPath(p); return err == nil }):
		return strings.Join(programs, " or ") + " is not installed"
	}
	return ""
}

// TestFootprint measures an edge, and checks that each figure is in the table. Whether the figures are within their limits is
// for `footprint` on a quiet machine to judge.
func TestFootprint(t *testing.T) {
	g, _ := mustGround(t)
	table := filepath.Join(g.Dir, "table.md")
	if err := os.WriteFile(table, []byte("before\n<!-- footprint -->\nold\n<!-- /footprint -->\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := real.Footprint{Ground: g, Drivers: []string{"raw_exec", "wasm"}, Rest: time.Second, Idle: 2 * time.Second, Table: table}
	if err := f.Run(t.Context()); err != nil && !errors.Is(err, real.ErrViolated) {
		t.Fatal(err)
	}
	made, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"before\n<!-- footprint -->\n20 tasks of the drivers raw_exec, wasm", "| hub, idle, resident | ", "| edge agent with 20 idle tasks of 2 drivers, resident | ",
		"| supervisor of a task of `raw_exec`", "| a whole task of `wasm` ", "| written by an idle edge ", " | - |\n<!-- /footprint -->\nafter\n",
	} {
		if !strings.Contains(string(made), want) {
			t.Errorf("the file has no %q:\n%s", want, made)
		}
	}
}

func TestHealedLinkIsCheap(t *testing.T) {
	g, net := mustGround(t)
	h := real.Healed{Ground: g, Proxy: net, Cut: 6 * time.Second, Allocs: 10, Cap: 2 * time.Second}
	if err := h.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestHubKilledWhileJobsAreRegistered(t *testing.T) {
	g, _ := mustGround(t)
	if err := (real.HubKill{Ground: g, Rate: 50, Duration: 8 * time.Second}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestScenarios plays scenarios that are short enough for real processes.
func TestScenarios(t *testing.T) {
	for _, name := range []string{"quick-clone", "quick-damage", "quick-restore"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := virtual.ReadSchedule(filepath.Join("..", "scenarios", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			g, _ := mustGround(t)
			if err := (real.Campaign{Ground: g, CampaignConfig: real.CampaignConfig{Scenario: &plan}}).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestRunEndsWithItsContext checks that a run which is given up leaves no process.
func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	g, _ := mustGround(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := (real.Reboot{Ground: g, Drivers: []string{"raw_exec"}, Boots: 1000, Tasks: 1}).Run(ctx); err == nil {
		t.Fatal("a run of a thousand rounds ended well within three seconds")
	}
	left, err := proc.Below(g.Dir)
	if err != nil || len(left) > 0 {
		t.Fatalf("processes are left: %v, %v", left, err)
	}
}
