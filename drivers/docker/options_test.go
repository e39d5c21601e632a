package docker_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"skerry/drivers"
	"skerry/drivers/docker"
	"skerry/fleet"
)

// TestEveryKeyIsInTheDocumentation compares the keys of the config block with the table of docs/drivers.md.
func TestEveryKeyIsInTheDocumentation(t *testing.T) {
	b, err := os.ReadFile("../../docs/drivers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(b), "## docker and podman")
	section, _, _ = strings.Cut(section, "\n## ")
	var written []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(section, -1) {
		for _, key := range regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(row[1], -1) {
			written = append(written, key[1])
		}
	}
	slices.Sort(written)
	if known := docker.Keys(); !slices.Equal(written, known) {
		t.Errorf("the table has %v\nthe driver knows %v", written, known)
	}
}

// TestConfigs checks usual config blocks, and the errors of wrong ones.
func TestConfigs(t *testing.T) {
	for _, tc := range []struct {
		name, config string
		wrong        string // "": nothing
	}{
		{"small", `{"image": "redis:7", "ports": ["db"]}`, ""},
		{"digest", `{"image": "redis@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}`, ""},
		{"file", `{"load": "local/image.tar"}`, ""},
		{"blocks as lists", `{"image": "a", "labels": [{"a": 1}, {"b": true}], "auth": [{"username": "u", "password": "p"}], "logging": [{"type": "journald", "config": [{"tag": "x"}]}]}`, ""},
		{"blocks as maps", `{"image": "a", "labels": {"a": "b"}, "ulimit": {"nofile": "1024:2048", "nproc": 10}, "sysctl": {"net.core.somaxconn": 128}}`, ""},
		{"mounts", `{"image": "a", "mount": [{"type": "bind", "source": "local/x", "target": "/x", "readonly": true}, {"type": "tmpfs", "target": "/t", "tmpfs_options": {"size": 1000}}]}`, ""},
		{"variables", `{"image": "a:${meta.version}", "privileged": "${meta.p}", "shm_size": "${meta.s}", "dns_servers": ["${attr.unique.network.ip-address}"]}`, ""},
		{"old ports", `{"image": "a", "port_map": [{"db": 1234}]}`, ""},

		{"no image", `{"command": "x"}`, "image is required"},
		{"bad image", `{"image": "NO Image"}`, `image "NO Image"`},
		{"unknown key", `{"image": "a", "isolation": "hyperv"}`, `unknown key "isolation"`},
		{"unknown key of a block", `{"image": "a", "auth": {"token": "x"}}`, `unknown key "auth.token"`},
		{"unknown key of a mount", `{"image": "a", "mount": [{"target": "/a", "consistency": "x"}]}`, `unknown key "mount.consistency"`},
		{"mount without target", `{"image": "a", "mount": [{"type": "volume"}]}`, "mount.target is required"},
		{"kind of mount", `{"image": "a", "mount": [{"type": "npipe", "target": "/a"}]}`, "mount.type"},
		{"list", `{"image": "a", "args": "x"}`, "args must be a list of strings"},
		{"flag", `{"image": "a", "tty": "maybe"}`, "tty must be true or false"},
		{"number", `{"image": "a", "pids_limit": "many"}`, "pids_limit must be a whole number"},
		{"range", `{"image": "a", "oom_score_adj": -1000}`, "oom_score_adj is -1000"},
		{"address", `{"image": "a", "dns_servers": ["nowhere"]}`, "dns_servers[0] must be an IP address"},
		{"host", `{"image": "a", "extra_hosts": ["nowhere"]}`, "NAME:IP"},
		{"volume", `{"image": "a", "volumes": ["/a"]}`, "SOURCE:TARGET"},
		{"timeout", `{"image": "a", "image_pull_timeout": "soon"}`, "image_pull_timeout"},
		{"block twice", `{"image": "a", "auth": [{"username": "a"}, {"username": "b"}]}`, "auth is written more than once"},
		{"port", `{"image": "a", "port_map": {"db": 99999}}`, "port_map.db is 99999"},
		{"NUL", `{"image": "a", "command": "x\u0000"}`, "NUL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var config map[string]any
			if err := json.Unmarshal([]byte(tc.config), &config); err != nil {
				t.Fatal(err)
			}
			err := docker.CheckDocker(config)
			if tc.wrong == "" && err != nil || tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)) {
				t.Errorf("%v, want %q", err, tc.wrong)
			}
		})
	}
}

// TestPodmanKeys has the keys that only Podman's jobs may write.
func TestPodmanKeys(t *testing.T) {
	config := map[string]any{
		"image": "docker://docker.io/library/redis:7", "working_dir": "/", "tmpfs": []any{"/x:size=1m"},
		"devices": []any{"/dev/a:/dev/b:r", "/dev/c"}, "logging": []any{map[string]any{"driver": "journald"}},
	}
	if err := docker.CheckPodman(config); err != nil {
		t.Error(err)
	}
	if err := docker.CheckDocker(config); err == nil || !strings.Contains(err.Error(), `unknown key "tmpfs"`) {
		t.Errorf("docker: %v", err)
	}
	config["socket"] = "app1"
	if err := docker.CheckPodman(config); err == nil || !strings.Contains(err.Error(), `unknown key "socket"`) {
		t.Errorf("podman: %v", err)
	}
}

// Every config block is either accepted with an image or rejected as invalid.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"image": "a", "args": [1, "x"], "mount": [{"type": "bind", "source": "x", "target": "y"}]}`))
	f.Add([]byte(`{"image": "a", "devices": [{"host_path": "/dev/x"}], "ulimit": {"a": "1:2"}, "volumes": ["a:b:c"]}`))
	f.Add([]byte(`{"load": "${x}", "port_map": {"a": "1"}, "auth": {}, "logging": {"type": null}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var config map[string]any
		if json.Unmarshal(b, &config) != nil {
			return
		}
		for _, check := range []func(map[string]any) error{docker.CheckDocker, docker.CheckPodman} {
			if err := check(config); err != nil && fleet.CodeOf(err) != fleet.CodeInvalid {
				t.Fatalf("refused with %v", err)
			}
		}
	})
}

// FuzzLogLine decodes lines of the daemons' logs.
func FuzzLogLine(f *testing.F) {
	f.Add(`{"log":"out 0\n","stream":"stdout","time":"2026-11-27T20:50:12Z"}`)
	f.Add("2026-11-27T20:51:30.133917594+00:00 stdout F out 0")
	f.Add("2026-11-27T20:51:30.133917594+00:00 stderr P ")
	f.Add("x stdout")
	f.Fuzz(func(t *testing.T, line string) {
		for _, podman := range []bool{false, true} {
			if stream, text, ok := docker.ParseLogLine(podman, []byte(line)); ok && (stream < 0 || stream > 1 || len(text) > 3*len(line)+1) {
				t.Fatalf("stream %d, %d bytes of %d", stream, len(text), len(line))
			}
		}
	})
}

// FuzzRecords decodes the records of a state folder.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"version":1,"code":3,"finished_at":12}`))
	f.Add([]byte(`{"version":1,"folder":"a-1","images":[{"name":"web:1","id":"0a","unneeded":3}]}`))
	f.Add([]byte(`{"version":1,"inode":3,"offset":12,"streams":[{"number":1,"size":2},{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) { docker.DecodeRecords(b) })
}

// TestPublishedPorts: a container publishes the ports that it names, and those of a network block of its own task.
func TestPublishedPorts(t *testing.T) {
	got, err := docker.PublishedPorts(drivers.TaskConfig{
		Config: map[string]any{"image": "a", "ports": []any{"named"}, "port_map": map[string]any{"mapped": 53}},
		Network: drivers.Network{TaskPorts: []string{"own", "mapped"}, Ports: []fleet.AssignedPort{
			{Label: "named", Value: 20001, To: 80}, {Label: "mapped", Value: 20002}, {Label: "own", Value: 20003}, {Label: "of another task", Value: 20004},
		}},
	})
	want := map[string]string{}
	for inside, outside := range map[string]string{"80": "20001", "53": "20002", "20003": "20003"} {
		want[inside+"/tcp"], want[inside+"/udp"] = outside, outside
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

// TestPodmanLimits: a Podman task may set its reservation, its swap and its labels.
func TestPodmanLimits(t *testing.T) {
	config := map[string]any{
		"image": "a", "memory_reservation": "64m", "memory_swap": "1G", "memory_swappiness": 10, "selinux_opts": []any{"type:x_t"},
	}
	got, err := docker.PodmanLimits(config, fleet.Resources{MemoryMB: 256, MemoryMaxMB: 512})
	if err != nil || got.Memory != 512<<20 || got.MemoryReservation != 64<<20 || got.MemorySwap != 1<<30 ||
		got.MemorySwappiness == nil || *got.MemorySwappiness != 10 || !slices.Equal(got.SecurityOpt, []string{"label=type:x_t"}) {
		t.Errorf("%+v, %v", got, err)
	}
	plain, err := docker.PodmanLimits(map[string]any{"image": "a"}, fleet.Resources{MemoryMB: 256, MemoryMaxMB: 512})
	if err != nil || plain.MemoryReservation != 256<<20 || plain.MemorySwap != 512<<20 {
		t.Errorf("without the keys: %+v, %v", plain, err)
	}
	for _, wrong := range []map[string]any{
		{"image": "a", "memory_swap": "100m"}, {"image": "a", "memory_reservation": "much"}, {"image": "a", "memory_reservation": "-1m"},
		{"image": "a", "memory_swap": "9999999999g"}, {"image": "a", "memory_swappiness": 101},
	} {
		if _, err := docker.PodmanLimits(wrong, fleet.Resources{MemoryMB: 256}); err == nil {
			t.Errorf("%v is accepted", wrong)
		}
	}
}
