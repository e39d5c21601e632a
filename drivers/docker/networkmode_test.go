package docker_test

import (
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry/drivers"
	"skerry/drivers/docker"
	"skerry/fleet"
)

// networkKeys are the keys of the network, each with a value, and the network modes in which it has no effect. "*" stands for each mode but
// the name of a network.
var networkKeys = map[string]struct {
	value any
	idle  []string
}{
	"dns_servers":        {[]any{"192.0.2.54"}, []string{"container:web", "task:web"}},
	"dns_search_domains": {[]any{"shop"}, []string{"container:web", "task:web"}},
	"dns_options":        {[]any{"ndots:1"}, []string{"container:web", "task:web"}},
	"extra_hosts":        {[]any{"db:192.0.2.3"}, []string{"container:web", "task:web"}},
	"ports":              {[]any{"http"}, []string{"container:web", "task:web", "none"}},
	"port_map":           {map[string]any{"http": 80}, []string{"container:web", "task:web", "none"}},
	"hostname":           {"till", []string{"container:web", "task:web"}},
	"network_aliases":    {[]any{"till"}, []string{"*"}},
	"ipv4_address":       {"192.0.2.9", []string{"*"}},
	"ipv6_address":       {"2001:db8::9", []string{"*"}},
}

// TestKeysWithoutEffect: a hub refuses a key of the network that has no effect in the network mode by its name. Podman's
// containers have a host name of their own in each mode, and no resolvers without a network.
func TestKeysWithoutEffect(t *testing.T) {
	for driver, check := range map[string]func(map[string]any) error{docker.Docker: docker.CheckDocker, docker.Podman: docker.CheckPodman} {
		for key, k := range networkKeys {
			for _, mode := range []string{"", "bridge", "default", "host", "none", "container:web", "task:web", "shop", "${meta.network}"} {
				refused := slices.Contains(k.idle, mode) || slices.Contains(k.idle, "*") && mode != "shop" && mode != "${meta.network}"
				if driver == docker.Podman {
					refused = refused && key != "hostname" || mode == "none" && strings.HasPrefix(key, "dns_")
				}
				config := map[string]any{"image": "a", key: k.value}
				if mode != "" {
					config["network_mode"] = mode
				}
				switch err := check(config); {
				case !refused && err != nil:
					t.Errorf("%s: %s with network_mode %q: %v", driver, key, mode, err)
				case refused && (fleet.CodeOf(err) != fleet.CodeInvalid || !strings.Contains(err.Error(), key)):
					t.Errorf("%s: %s with network_mode %q: %v, want it refused by name", driver, key, mode, err)
				}
			}
		}
		for _, mode := range []string{"none", "container:web"} { // as good as left out
			if err := check(map[string]any{"image": "a", "network_mode": mode, "ports": []any{}, "dns_servers": []any{}, "hostname": ""}); err != nil {
				t.Errorf("%s: empty keys: %v", driver, err)
			}
		}
	}
}

// TestWarningsOfKeysWithoutEffect: an edge starts the task all the same, which an earlier release may have taken, and warns of each key or
// port that has no effect in the network of the container. So does Docker of ports in the network of the machine.
func TestWarningsOfKeysWithoutEffect(t *testing.T) {
	const bridge, none = fleet.NetworkBridge, fleet.NetworkNone
	for _, tc := range []struct {
		driver, group, config string
		want                  []string
	}{
		{docker.Docker, bridge, `{"hostname": "till"}`, []string{"write it in the network block of the group"}},
		{docker.Docker, bridge, `{"hostname": "shop"}`, nil}, // that of the group
		{docker.Podman, bridge, `{"hostname": "till"}`, nil},
		{docker.Docker, bridge, `{"port_map": {"http": 8080}}`, []string{"write to = 8080 in the group's port block"}},
		{docker.Podman, bridge, `{"port_map": {"http": 8080}}`, []string{"write to = 8080 in the group's port block"}},
		{docker.Docker, bridge, `{"port_map": {"http": 80}, "ports": ["plain"]}`, nil}, // as the group maps it
		{docker.Docker, none, `{"ports": ["http"], "dns_servers": ["192.0.2.54"]}`, []string{"ports has no effect"}},
		{docker.Podman, none, `{"dns_servers": ["192.0.2.54"]}`, []string{"dns_servers has no effect"}},
		{docker.Docker, "", `{"network_mode": "container:x", "hostname": "till", "dns_options": ["ndots:1"]}`, []string{"hostname has no effect", "dns_options has no effect"}},
		{docker.Docker, "", `{"port_map": {"http": 8080}, "hostname": "till"}`, nil}, // in the daemon's network
		{docker.Docker, "", `{"network_mode": "shop", "port_map": {"http": 8080}}`, nil},
		{docker.Docker, "", `{"network_mode": "host", "ports": ["http"]}`, []string{`the port \"http\" is not mapped to 80`}},
		{docker.Docker, "", `{"network_mode": "host", "port_map": {"plain": 53}}`, []string{`the port \"plain\" is not mapped to 53`}},
		{docker.Docker, "", `{"network_mode": "host", "ports": ["plain"], "port_map": {"http": 20001}}`, nil},
		{docker.Docker, "own", `{"network_mode": "none"}`, []string{`the port \"plain\" of the task's network block`}},
		{docker.Docker, "own", `{"network_mode": "container:x"}`, []string{`the port \"plain\" of the task's network block`}},
		{docker.Docker, "own", `{"network_mode": "host"}`, nil},
		{docker.Docker, "own", `{}`, nil},
	} {
		var said strings.Builder
		d, err := docker.New(docker.Config{
			Name: tc.driver, BootID: "boot", Log: slog.New(slog.NewTextHandler(&said, nil)),
			Socket: mustServeDaemon(t, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"Id": "0a", "State": {"Status": "running", "Running": true}, "Config": {}}`))
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		cfg := drivers.TaskConfig{
			ID: "alloc-1/web/1", AllocID: "alloc-1", Task: "web", Dir: dir, LocalDir: filepath.Join(dir, "local"), StateDir: dir, Config: mustDecodeConfig(t, tc.config),
			Network: drivers.Network{Mode: tc.group, Hostname: "shop", Ports: []fleet.AssignedPort{{Label: "http", Value: 20001, To: 80}, {Label: "plain", Value: 20002}}},
		}
		if tc.group == "own" { // the task has a network block of its own
			cfg.Network.Mode, cfg.Network.TaskPorts = "", []string{"plain"}
		}
		cfg.Config["image"] = "a"
		if _, err := d.CreateOptions(t.Context(), cfg); err != nil {
			t.Fatalf("%s: %v", tc.config, err)
		}
		missing := func(text string) bool { return !strings.Contains(said.String(), text) }
		if strings.Count(said.String(), "\n") != len(tc.want) || slices.ContainsFunc(tc.want, missing) {
			t.Errorf("%s in a group with %q: %s warned %q, want %q", tc.config, tc.group, tc.driver, said.String(), tc.want)
		}
	}
}

// TestNamesInOtherModes: a container has the names of its config block also in the network of the machine, and without a network.
func TestNamesInOtherModes(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		driver := d.mustDriver(t, "boot")
		for _, mode := range []string{"host", "none"} {
			cfg := newTaskConfig(t, "names", "cat /etc/resolv.conf /etc/hosts", "hostname")
			cfg.ID = "alloc-1/names-" + mode + "/1"
			wanted := map[string]string{"extra_hosts": "192.0.2.3\tdb", "hostname": "till\n"}
			if mode == "host" || d.name == docker.Docker { // else they have no effect
				wanted["dns_servers"], wanted["dns_search_domains"], wanted["dns_options"] = "nameserver 192.0.2.54", "search shop", "ndots:1"
			}
			for key := range wanted {
				cfg.Config[key] = networkKeys[key].value
			}
			cfg.Config["network_mode"] = mode
			_, task := mustStart(t, driver, cfg)
			exit, out := mustWait(t, task), readLogs(cfg)
			for _, want := range wanted {
				if !strings.Contains(out, want) {
					t.Errorf("network_mode %s: %+v, output %q, want %q", mode, exit, out, want)
				}
			}
		}
	})
}
