package docker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"skerry/drivers"
	"skerry/drivers/docker"
	"skerry/fleet"
)

func itoa(i int) string { return strconv.Itoa(i) }

// noInput is a standard input without bytes.
func noInput() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// TestTaskSeesItsFolders checks the mounts, the environment, the user and the variables of a container.
func TestTaskSeesItsFolders(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		cfg := newTaskConfig(t, "web",
			"echo $GREETING", "cat /local/in", "cat /volume/in", "cat /bound/in", "id -u", "echo out > /alloc/out", "echo x > /volume/in || echo read-only")
		volume := t.TempDir()
		for dir, text := range map[string]string{cfg.LocalDir: "from local\n", volume: "from volume\n"} {
			if err := os.WriteFile(filepath.Join(dir, "in"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range []string{cfg.AllocDir, volume, filepath.Dir(cfg.LocalDir)} {
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		cfg.User = "nobody"
		cfg.Mounts = []drivers.Mount{{Source: volume, Target: "/volume", ReadOnly: true}}
		cfg.Config["volumes"] = []any{"local:/bound"}
		_, task := mustStart(t, d.mustDriver(t, "boot"), cfg)
		exit := mustWait(t, task)
		want := "hello\nfrom local\nfrom volume\nfrom local\n65534\nread-only\n"
		if got := readLogs(cfg); got != want {
			t.Errorf("%+v, output %q, want %q", exit, got, want)
		}
		if b, err := os.ReadFile(filepath.Join(cfg.AllocDir, "out")); err != nil || string(b) != "out\n" {
			t.Errorf("alloc/out: %q, %v", b, err)
		}
	})
}

// TestDisabledLogs: the daemon keeps no output of a task whose logs are disabled. With a logging block it does, and the agent copies none.
func TestDisabledLogs(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		driver := d.mustDriver(t, "boot")
		for _, keeps := range []bool{false, true} {
			cfg := newTaskConfig(t, "web", "echo out; exit 3")
			cfg.Logs.Disabled = true
			if keeps {
				cfg.Config["logging"] = map[string]any{"type": "json-file"}
			}
			h, task := mustStart(t, driver, cfg)
			if exit := mustWait(t, task); exit.Code != 3 {
				t.Errorf("%+v, want the code 3", exit)
			}
			if files, err := os.ReadDir(cfg.LogDir); err != nil || len(files) > 0 {
				t.Errorf("files in the folder of logs: %v, %v", files, err)
			}
			var state struct {
				ContainerID string `json:"container_id"`
			}
			err := json.Unmarshal(h.State, &state)
			if err != nil {
				t.Fatal(err)
			}
			logged, err := d.mustClient(t).ContainerInspect(t.Context(), state.ContainerID, client.ContainerInspectOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if kind := logged.Container.HostConfig.LogConfig.Type; (kind == "none") == keeps {
				t.Errorf("the daemon's log is of type %s, with logging: %v", kind, keeps)
			}
		}
	})
}

// TestForeignFoldersAreRefused checks that no folder from outside of the allocation is mounted, also by a link.
func TestForeignFoldersAreRefused(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		for _, source := range []string{"/etc", "../../../etc", "local/link", "local/link/below"} {
			cfg := newTaskConfig(t, "web", "true")
			if err := os.Symlink("/etc", filepath.Join(cfg.LocalDir, "link")); err != nil {
				t.Fatal(err)
			}
			for key, value := range map[string]any{
				"volumes": []any{source + ":/x"}, "mount": []any{map[string]any{"type": "bind", "source": source, "target": "/x"}},
			} {
				delete(cfg.Config, "volumes")
				delete(cfg.Config, "mount")
				cfg.Config[key] = value
				if _, err := d.mustDriver(t, "boot").Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "--docker-volumes") || drivers.IsRecoverable(err) {
					t.Errorf("%s of %s: %v, want it refused", key, source, err)
				}
			}
		}
	})
}

// TestExec runs commands beside a task.
func TestExec(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		cfg := newTaskConfig(t, "web", "while :; do sleep 100 & wait $!; done")
		_, task := mustStart(t, d.mustDriver(t, "boot"), cfg)
		run := func(ctx context.Context, x fleet.Exec) (int, string, string, error) {
			var out, err bytes.Buffer
			x.Stdout, x.Stderr = &out, &err
			code, failed := task.(drivers.Execer).Exec(ctx, x)
			return code, out.String(), err.String(), failed
		}
		code, out, said, err := run(t.Context(), fleet.Exec{
			Command: []string{"sh", "-c", "cat; echo $GREETING >&2; exit 5"}, Stdin: io.NopCloser(strings.NewReader("typed")),
		})
		if code != 5 || out != "typed" || said != "hello\n" || err != nil {
			t.Errorf("%d, %q, %q, %v", code, out, said, err)
		}
		sizes := make(chan fleet.TerminalSize, 1)
		sizes <- fleet.TerminalSize{Width: 91, Height: 37}
		code, out, _, err = run(t.Context(), fleet.Exec{
			Command: []string{"sh", "-c", "while [ \"$(stty size)\" != '37 91' ]; do sleep 0.05; done; stty size"}, TTY: true, Stdin: noInput(), Sizes: sizes,
		})
		if code != 0 || !strings.Contains(out, "37 91") || err != nil {
			t.Errorf("terminal: %d, %q, %v", code, out, err)
		}
		for _, moment := range []time.Duration{20, 60, 100, 150, 200, 300, 500} { // also before the daemon has started it
			ctx, cancel := context.WithTimeout(t.Context(), moment*time.Millisecond)
			if _, _, _, err = run(ctx, fleet.Exec{Command: []string{"sleep", "777"}, Stdin: noInput()}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("with an ended context: %v", err)
			}
			cancel()
		}
		// One command looks until none is left: each command of Podman leaves processes for five minutes.
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		code, _, said, err = run(ctx, fleet.Exec{
			Command: []string{"sh", "-c", "while grep -q '77[7]' /proc/[0-9]*/cmdline 2>/dev/null; do sleep 0.1; done"}, Stdin: noInput(),
		})
		if code != 0 || said != "" || err != nil {
			t.Errorf("a command outlives its caller: %d, %q, %v", code, said, err)
		}
	})
}

// TestConsumed measures a task that computes.
func TestConsumed(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		cfg := newTaskConfig(t, "web", "while :; do :; done")
		_, task := mustStart(t, d.mustDriver(t, "boot"), cfg)
		pollUntil(t, func() (bool, string) {
			used, err := task.(drivers.Meter).Consumed(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return len(used) == 1 && used[0].User+used[0].System > 50*time.Millisecond && used[0].RSS > 1000 && used[0].PID > 1, itoa(int(used[0].User))
		})
		if err := task.Stop(t.Context(), "SIGKILL", 0); err != nil {
			t.Fatal(err)
		}
		if _, err := task.(drivers.Meter).Consumed(t.Context()); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Errorf("an ended task: %v, want a conflict", err)
		}
	})
}

// TestEarlierAttemptIsRemoved has the container of an attempt run whose start is taken for failed. The next attempt removes
// it, and no container of a copied data directory.
func TestEarlierAttemptIsRemoved(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		of := func(dir string) *docker.Driver {
			return d.mustDriver(t, "boot", func(c *docker.Config) { c.DataDir = dir })
		}
		const script = "while :; do sleep 100 & wait $!; done"
		here := t.TempDir()
		_, copied := mustStart(t, of(t.TempDir()), newTaskConfig(t, "web", script))
		_, first := mustStart(t, of(here), newTaskConfig(t, "web", script))
		next := newTaskConfig(t, "web", script)
		next.ID = "alloc-1/web/2"
		_, second := mustStart(t, of(here), next)
		if copied.Ended() || !first.Ended() || second.Ended() {
			t.Errorf("ended: the copied one %t, the first %t, the second %t", copied.Ended(), first.Ended(), second.Ended())
		}
	})
}

// TestOrphans removes the containers of allocations that the edge does not know, and no others.
func TestOrphans(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		of := func(dir string) *docker.Driver {
			return d.mustDriver(t, "boot", func(c *docker.Config) { c.DataDir = dir })
		}
		here, copied := t.TempDir(), t.TempDir()
		cfg := newTaskConfig(t, "web", "while :; do sleep 100 & wait $!; done")
		_, task := mustStart(t, of(here), cfg)
		nobody := func(fleet.AllocID) bool { return false }
		if removed, err := of(copied).RemoveOrphans(t.Context(), nobody); len(removed) != 0 || err != nil {
			t.Errorf("another data directory removed %v, %v", removed, err)
		}
		if removed, err := of(here).RemoveOrphans(t.Context(), func(id fleet.AllocID) bool { return id == cfg.AllocID }); len(removed) != 0 || err != nil {
			t.Errorf("a known allocation's removed: %v, %v", removed, err)
		}
		if task.Ended() {
			t.Fatal("ended")
		}
		if removed, err := of(here).RemoveOrphans(t.Context(), nobody); len(removed) != 1 || err != nil {
			t.Errorf("removed %v, %v; want one", removed, err)
		}
		if !task.Ended() {
			t.Error("it runs")
		}
	})
}

// TestNetwork makes the namespace of an allocation, which its tasks join.
func TestNetwork(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		driver := d.mustDriver(t, "boot")
		path, err := driver.CreateNetwork(t.Context(), "alloc-1", "shop")
		if err != nil {
			t.Fatal(err)
		}
		again, err := driver.CreateNetwork(t.Context(), "alloc-1", "shop")
		if err != nil || again != path {
			t.Errorf("again: %q, %v, want %q", again, err, path)
		}
		cfg := newTaskConfig(t, "web", "ls -l /proc/self/ns/net", "cat /etc/resolv.conf /etc/hosts", "hostname")
		delete(cfg.Config, "network_mode")
		cfg.Config["dns_servers"], cfg.Config["extra_hosts"] = []any{"192.0.2.54"}, []any{"db:192.0.2.3"}
		cfg.Network = drivers.Network{
			Mode: fleet.NetworkBridge, Namespace: path, Hostname: "shop", IP: "192.0.2.9", Hosts: []string{"192.0.2.4 cache"},
			DNS: &fleet.DNSConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"lan"}, Options: []string{"ndots:1"}},
		}
		_, task := mustStart(t, driver, cfg)
		exit := mustWait(t, task)
		out := readLogs(cfg)
		if !exit.Success() || !strings.Contains(out, mustNamespace(t, path)) || !strings.HasSuffix(out, "shop\n") {
			t.Errorf("%+v, output %q, want namespace %s", exit, out, mustNamespace(t, path))
		}
		if !strings.Contains(out, "nameserver 192.0.2.54\nnameserver 192.0.2.53\nsearch lan\noptions ndots:1\n") {
			t.Errorf("resolv.conf has not the resolvers of the task and the group: %q", out)
		}
		if !strings.Contains(out, "192.0.2.9 shop\n192.0.2.3 db\n192.0.2.4 cache\n") {
			t.Errorf("hosts has not the names of the task and the group: %q", out)
		}
		if err := task.Forget(t.Context()); err != nil { // Podman removes no container that others depend on
			t.Error(err)
		}
		for range 2 {
			if err := driver.DestroyNetwork(t.Context(), "alloc-1"); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestNetworkOfAnotherDriver: a container of Podman joins a namespace that another driver made for the allocation.
func TestNetworkOfAnotherDriver(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		driver := d.mustDriver(t, "boot")
		path, err := driver.CreateNetwork(t.Context(), "alloc-of-another", "shop")
		if err != nil {
			t.Fatal(err)
		}
		cfg := newTaskConfig(t, "web", "ls -l /proc/self/ns/net", "cat /etc/resolv.conf", "hostname")
		delete(cfg.Config, "network_mode")
		cfg.Config["ports"] = []any{"http"}
		cfg.Network = drivers.Network{
			Mode: fleet.NetworkBridge, Namespace: path, Hostname: "shop", DNS: &fleet.DNSConfig{Servers: []string{"192.0.2.53"}},
			Ports: []fleet.AssignedPort{{Label: "http", Value: 20001, To: 80}},
		}
		if d.name == docker.Docker {
			if _, err := driver.Start(t.Context(), cfg); err == nil || !drivers.IsRecoverable(err) || !strings.Contains(err.Error(), "does not exist") {
				t.Errorf("Start: %v, want a recoverable error", err)
			}
		} else {
			_, task := mustStart(t, driver, cfg)
			exit := mustWait(t, task)
			if out := readLogs(cfg); !exit.Success() || !strings.Contains(out, mustNamespace(t, path)+"\nnameserver 192.0.2.53\n") || !strings.HasSuffix(out, "shop\n") {
				t.Errorf("%+v, output %q, want namespace %s", exit, out, mustNamespace(t, path))
			}
			if err := task.Forget(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := driver.DestroyNetwork(t.Context(), "alloc-of-another"); err != nil {
			t.Error(err)
		}
	})
}

// TestSeccompProfile: security_opt names the file of a profile, in the task's folder or of the machine, as with docker run.
func TestSeccompProfile(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		const profile = `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}`
		cfg := newTaskConfig(t, "web", "mkdir /made || echo denied")
		file := filepath.Join(cfg.LocalDir, "profile.json")
		if err := os.WriteFile(file, []byte(profile), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"local/profile.json", file} {
			cfg.ID += "0"
			cfg.StateDir += "0"
			cfg.Config["security_opt"] = []any{"seccomp=" + name}
			_, task := mustStart(t, d.mustDriver(t, "boot"), cfg)
			if exit := mustWait(t, task); !exit.Success() || !strings.HasSuffix(readLogs(cfg), "denied\n") {
				t.Errorf("%s: %+v, output %q, want mkdir denied", name, exit, readLogs(cfg))
			}
		}
		for name, text := range map[string]string{"local/absent.json": "no such file", "local": "no file", "local/bad.json": "not JSON"} {
			if err := os.WriteFile(filepath.Join(cfg.LocalDir, "bad.json"), []byte("mkdir"), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg.Config["security_opt"] = []any{"seccomp=" + name}
			cfg.ID += "0"
			cfg.StateDir += "0"
			if _, err := d.mustDriver(t, "boot").Start(t.Context(), cfg); fleet.CodeOf(err) != fleet.CodeInvalid || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want %q", name, err, text)
			}
		}
	})
}

// TestUndetected checks that a driver without a daemon costs nothing.
func TestUndetected(t *testing.T) {
	d := &daemon{name: docker.Docker, socket: filepath.Join(t.TempDir(), "none")}
	driver := d.mustDriver(t, "boot", func(c *docker.Config) { c.DataDir = t.TempDir() })
	if info := driver.Fingerprint(t.Context()); info.Detected || info.Healthy || info.HealthDescription == "" {
		t.Errorf("%+v", info)
	}
	if removed, err := driver.RemoveOrphans(t.Context(), func(fleet.AllocID) bool { return false }); removed != nil || err != nil {
		t.Errorf("%v, %v", removed, err)
	}
}

// TestHealth reads the result of an image's own health check.
func TestHealth(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		if d.name == docker.Podman {
			t.Skip("Podman needs systemd to run health checks")
		}
		cfg := newTaskConfig(t, "web", "while :; do sleep 100 & wait $!; done")
		cfg.Config["image"] = mustCheckedImage(t, d)
		driver := d.mustDriver(t, "boot")
		mustStart(t, driver, cfg)
		health := func() drivers.TaskHealth {
			h, err := driver.TaskHealth(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		pollUntil(t, func() (bool, string) {
			h := health()
			return h.Status == drivers.HealthBad && strings.Contains(h.Output, "not well"), h.Status + " " + h.Output
		})
		if err := os.WriteFile(filepath.Join(cfg.LocalDir, "well"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		pollUntil(t, func() (bool, string) { return health().Status == drivers.HealthGood, health().Status })
		other := newTaskConfig(t, "plain", "while :; do sleep 100 & wait $!; done")
		mustStart(t, driver, other)
		if h, err := driver.TaskHealth(t.Context(), other); err != nil || h.Status != drivers.HealthUnknown {
			t.Errorf("a task without a check: %+v, %v", h, err)
		}
	})
}

// TestTaskAddress: a container without a network has no address, and one with several has that of the first.
func TestTaskAddress(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		cfg := newTaskConfig(t, "web", "sleep 1000")
		driver := d.mustDriver(t, "boot")
		mustStart(t, driver, cfg)
		if got, err := driver.TaskAddress(t.Context(), cfg); got != "" || err != nil {
			t.Errorf("address %q, %v", got, err)
		}
	})
	networks := map[string]*network.EndpointSettings{
		"a": nil, "b": {}, "c": {IPAddress: netip.MustParseAddr("172.18.0.2")}, "d": {IPAddress: netip.MustParseAddr("172.19.0.2")},
	}
	if got := docker.AddressIn(networks); got != "172.18.0.2" {
		t.Errorf("address %q", got)
	}
}
