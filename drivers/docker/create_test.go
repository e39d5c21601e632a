package docker_test

import (
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/drivers/docker"
	"skerry/fleet"
)

// taskMounts are the mounts of each container, without the brackets of the list.
const taskMounts = `{"Source":"/d/alloc","Target":"/alloc","Type":"bind"},{"Source":"/d/web/local","Target":"/local","Type":"bind"},{"Source":"/d/web/secrets","Target":"/secrets","Type":"bind"}`

// createCase is a task, and what differs in its container from that of a task with an image alone.
type createCase struct {
	name   string
	driver string // "": both
	config string // a config block without an image
	task   func(cfg *drivers.TaskConfig)
	want   map[string]string // JSON by the path of the field; "": the field is not set
}

// createCases have each key of a config block that the daemon gets, and each field of a task.
var createCases = []createCase{
	// The process.
	{name: "command", config: `{"command": "sh", "args": ["-c", 1]}`, want: map[string]string{"Config.Cmd": `["sh","-c","1"]`}},
	{name: "arguments alone", config: `{"args": ["-v"]}`, want: map[string]string{"Config.Cmd": `["-v"]`}},
	{name: "entrypoint", config: `{"entrypoint": ["/init", "-x"]}`, want: map[string]string{"Config.Entrypoint": `["/init","-x"]`}},
	{name: "entrypoint as text", config: `{"entrypoint": "/init"}`, want: map[string]string{"Config.Entrypoint": `["/init"]`}},
	{name: "working directory", config: `{"work_dir": "/srv"}`, want: map[string]string{"Config.WorkingDir": `"/srv"`}},
	{name: "terminal", config: `{"tty": true, "interactive": true}`, want: map[string]string{"Config.Tty": `true`, "Config.OpenStdin": `true`}},
	{name: "init", config: `{"init": true}`, want: map[string]string{"HostConfig.Init": `true`}},
	{name: "labels", config: `{"labels": {"team": "shop", "io.skerry.task": "forged"}}`, want: map[string]string{"Config.Labels.team": `"shop"`}},
	{name: "health check", config: `{"healthchecks": {"disable": true}}`, want: map[string]string{"Config.Healthcheck.Test": `["NONE"]`}},
	{
		name: "fields of the task", config: `{}`,
		task: func(cfg *drivers.TaskConfig) {
			cfg.User, cfg.KillSignal, cfg.KillTimeout, cfg.Network.Hostname = "www", "quit", 1500*time.Millisecond, "shop"
			cfg.Env = map[string]string{"B": "2", "A": "1", "NOMAD_CPU_CORES": "1,3"}
		},
		want: map[string]string{
			"Config.User": `"www"`, "Config.StopSignal": `"SIGQUIT"`, "Config.StopTimeout": `2`, "Config.Hostname": `"shop"`,
			"Config.Env": `["A=1","B=2","NOMAD_CPU_CORES=1,3"]`, "HostConfig.CpusetCpus": `"1,3"`,
		},
	},

	// Logs.
	{name: "log driver", config: `{"logging": {"type": "syslog", "config": {"tag": "x"}}}`, want: map[string]string{
		"HostConfig.LogConfig.Type": `"syslog"`, "HostConfig.LogConfig.Config.tag": `"x"`, "HostConfig.LogConfig.Config.max-size": "", "HostConfig.LogConfig.Config.max-file": "",
	}},
	{name: "log driver as podman's jobs write it", config: `{"logging": [{"driver": "journald", "options": [{"tag": "x"}]}]}`, want: map[string]string{
		"HostConfig.LogConfig.Type": `"journald"`, "HostConfig.LogConfig.Config.tag": `"x"`, "HostConfig.LogConfig.Config.max-size": "", "HostConfig.LogConfig.Config.max-file": "",
	}},
	{name: "size of the daemon's log", config: `{"logging": {"type": "json-file", "config": {"max-size": "2m", "labels": "team"}}}`, want: map[string]string{
		"HostConfig.LogConfig.Config.max-size": `"2m"`, "HostConfig.LogConfig.Config.labels": `"team"`,
	}},
	{name: "disabled logs", config: `{}`, task: disableLogs, want: map[string]string{
		"HostConfig.LogConfig.Type": `"none"`, "HostConfig.LogConfig.Config.max-size": "", "HostConfig.LogConfig.Config.max-file": "",
	}},
	{name: "disabled logs and a log driver", config: `{"logging": {"type": "journald"}}`, task: disableLogs, want: map[string]string{
		"HostConfig.LogConfig.Type": `"journald"`, "HostConfig.LogConfig.Config.max-size": "", "HostConfig.LogConfig.Config.max-file": "",
	}},
	{name: "disabled logs and a size of the daemon's log", config: `{"logging": {"config": {"max-size": "2m"}}}`, task: disableLogs, want: map[string]string{
		"HostConfig.LogConfig.Config.max-size": `"2m"`,
	}},

	// The network.
	{name: "network of the host", config: `{"network_mode": "host", "hostname": "h"}`, want: map[string]string{"HostConfig.NetworkMode": `"host"`, "Config.Hostname": `"h"`}},
	{
		name:   "network of the daemon",
		config: `{"network_mode": "shop", "network_aliases": ["web", "www"], "ipv4_address": "10.9.0.2", "ipv6_address": "fd00::2"}`,
		want: map[string]string{
			"HostConfig.NetworkMode": `"shop"`, "Networking.EndpointsConfig.shop.Aliases": `["web","www"]`,
			"Networking.EndpointsConfig.shop.IPAMConfig.IPv4Address": `"10.9.0.2"`, "Networking.EndpointsConfig.shop.IPAMConfig.IPv6Address": `"fd00::2"`,
		},
	},
	{
		name:   "names",
		config: `{"dns_servers": ["10.0.0.53"], "dns_search_domains": ["a"], "dns_options": ["ndots:1"], "extra_hosts": ["db:10.0.0.3"]}`,
		task: func(cfg *drivers.TaskConfig) {
			cfg.Network.DNS = &fleet.DNSConfig{Servers: []string{"10.0.0.54"}, Searches: []string{"b"}, Options: []string{"rotate"}}
			cfg.Network.Hosts = []string{"10.0.0.4 cache"}
		},
		want: map[string]string{
			"HostConfig.Dns": `["10.0.0.53","10.0.0.54"]`, "HostConfig.DnsSearch": `["a","b"]`, "HostConfig.DnsOptions": `["ndots:1","rotate"]`,
			"HostConfig.ExtraHosts": `["db:10.0.0.3","cache:10.0.0.4"]`,
		},
	},
	{
		name: "ports", config: `{"ports": ["http"], "port_map": {"db": 5432}}`,
		task: func(cfg *drivers.TaskConfig) {
			cfg.Network.Ports = []fleet.AssignedPort{{Label: "http", Value: 20001, To: 80, HostIP: "10.0.0.1"}, {Label: "db", Value: 20002}, {Label: "other", Value: 20003}}
		},
		want: map[string]string{
			"HostConfig.PortBindings.80/tcp": `[{"HostIp":"10.0.0.1","HostPort":"20001"}]`, "HostConfig.PortBindings.80/udp": `[{"HostIp":"10.0.0.1","HostPort":"20001"}]`,
			"HostConfig.PortBindings.5432/tcp": `[{"HostIp":"","HostPort":"20002"}]`, "HostConfig.PortBindings.5432/udp": `[{"HostIp":"","HostPort":"20002"}]`,
			"Config.ExposedPorts.80/tcp": `{}`, "Config.ExposedPorts.80/udp": `{}`, "Config.ExposedPorts.5432/tcp": `{}`, "Config.ExposedPorts.5432/udp": `{}`,
		},
	},

	// Rights and isolation.
	{name: "more capabilities", config: `{"cap_add": ["cap_sys_time", "NET_ADMIN", "net_admin"]}`, want: map[string]string{"HostConfig.CapAdd": `["NET_ADMIN","SYS_TIME"]`}},
	{name: "raw sockets", config: `{"cap_add": ["net_raw"]}`, want: map[string]string{"HostConfig.CapAdd": `["NET_RAW"]`, "HostConfig.CapDrop": ""}},
	{name: "all capabilities", config: `{"cap_add": ["all"]}`, want: map[string]string{"HostConfig.CapAdd": `["ALL"]`, "HostConfig.CapDrop": ""}},
	{name: "fewer capabilities", config: `{"cap_drop": ["mknod"]}`, want: map[string]string{"HostConfig.CapDrop": `["MKNOD","NET_RAW"]`}},
	{name: "no raw sockets, once", config: `{"cap_drop": ["net_raw"]}`, want: map[string]string{}},
	{name: "privileged", config: `{"privileged": true}`, want: map[string]string{"HostConfig.Privileged": `true`, "HostConfig.CapDrop": ""}},
	{name: "security options", config: `{"security_opt": ["no-new-privileges", "label=disable"]}`, want: map[string]string{"HostConfig.SecurityOpt": `["no-new-privileges","label=disable"]`}},
	{name: "groups", config: `{"group_add": ["video", 44]}`, want: map[string]string{"HostConfig.GroupAdd": `["video","44"]`}},
	{name: "read-only root", config: `{"readonly_rootfs": true}`, want: map[string]string{"HostConfig.ReadonlyRootfs": `true`}},
	{name: "runtime", config: `{"runtime": "runsc"}`, want: map[string]string{"HostConfig.Runtime": `"runsc"`}},
	{
		name:   "namespaces of the host",
		config: `{"ipc_mode": "host", "pid_mode": "host", "uts_mode": "host", "userns_mode": "host", "cgroupns": "host"}`,
		want: map[string]string{
			"HostConfig.IpcMode": `"host"`, "HostConfig.PidMode": `"host"`, "HostConfig.UTSMode": `"host"`, "HostConfig.UsernsMode": `"host"`, "HostConfig.CgroupnsMode": `"host"`,
		},
	},
	{name: "sysctl", config: `{"sysctl": {"net.core.somaxconn": 128}}`, want: map[string]string{"HostConfig.Sysctls.net.core.somaxconn": `"128"`}},
	{name: "storage options", config: `{"storage_opt": {"size": "1G"}}`, want: map[string]string{"HostConfig.StorageOpt.size": `"1G"`}},
	{name: "user namespace", driver: docker.Podman, config: `{"userns": "keep-id"}`, want: map[string]string{"HostConfig.UsernsMode": `"keep-id"`}},
	{
		name: "security options of podman", driver: docker.Podman, config: `{"selinux_opts": ["type:x_t"], "apparmor_profile": "shop", "security_opt": ["no-new-privileges"]}`,
		want: map[string]string{"HostConfig.SecurityOpt": `["apparmor=shop","no-new-privileges","label=type:x_t"]`},
	},

	// Limits.
	{name: "shared memory", config: `{"shm_size": 1048576}`, want: map[string]string{"HostConfig.ShmSize": `1048576`}},
	{name: "processes", config: `{"pids_limit": 64}`, want: map[string]string{"HostConfig.PidsLimit": `64`}},
	{name: "ulimit", config: `{"ulimit": {"nofile": "1024:2048", "core": -1}}`, want: map[string]string{"HostConfig.Ulimits": `[{"Hard":-1,"Name":"core","Soft":-1},{"Hard":2048,"Name":"nofile","Soft":1024}]`}},
	{name: "out of memory", config: `{"oom_score_adj": 500}`, want: map[string]string{"HostConfig.OomScoreAdj": `500`}},
	{name: "limit of the processor", config: `{"cpu_hard_limit": true}`, want: map[string]string{"HostConfig.CpuPeriod": `100000`, "HostConfig.CpuQuota": `50000`}},
	{name: "period of the processor", config: `{"cpu_hard_limit": true, "cpu_cfs_period": 20000}`, want: map[string]string{"HostConfig.CpuPeriod": `20000`, "HostConfig.CpuQuota": `10000`}},
	{name: "limit of the memory", config: `{"memory_hard_limit": 512}`, want: map[string]string{
		"HostConfig.Memory": `536870912`, "HostConfig.MemorySwap": `536870912`, "HostConfig.MemoryReservation": `268435456`,
	}},
	{
		name: "memory_max", config: `{}`, task: func(cfg *drivers.TaskConfig) { cfg.Resources.MemoryMaxMB = 512 },
		want: map[string]string{"HostConfig.Memory": `536870912`, "HostConfig.MemorySwap": `536870912`, "HostConfig.MemoryReservation": `268435456`},
	},
	{
		name: "memory of podman", driver: docker.Podman, config: `{"memory_reservation": "64m", "memory_swap": "1G", "memory_swappiness": 10}`,
		want: map[string]string{"HostConfig.MemoryReservation": `67108864`, "HostConfig.MemorySwap": `1073741824`, "HostConfig.MemorySwappiness": `10`},
	},

	// Devices and mounts.
	{
		name:   "devices",
		config: `{"devices": [{"host_path": "/dev/a", "container_path": "/dev/b", "cgroup_permissions": "r"}, {"host_path": "/dev/c"}]}`,
		task: func(cfg *drivers.TaskConfig) {
			cfg.Devices = []fleet.DeviceNode{{HostPath: "/dev/gpu0", TaskPath: "/dev/gpu", Permissions: "rw"}}
		},
		want: map[string]string{"HostConfig.Devices": `[{"CgroupPermissions":"r","PathInContainer":"/dev/b","PathOnHost":"/dev/a"},` +
			`{"CgroupPermissions":"rwm","PathInContainer":"/dev/c","PathOnHost":"/dev/c"},{"CgroupPermissions":"rw","PathInContainer":"/dev/gpu","PathOnHost":"/dev/gpu0"}]`},
	},
	{
		name: "devices of podman", driver: docker.Podman, config: `{"devices": ["/dev/a:/dev/b:r", "/dev/c"]}`,
		want: map[string]string{"HostConfig.Devices": `[{"CgroupPermissions":"r","PathInContainer":"/dev/b","PathOnHost":"/dev/a"},` +
			`{"CgroupPermissions":"rwm","PathInContainer":"/dev/c","PathOnHost":"/dev/c"}]`},
	},
	{name: "volumes", config: `{"volumes": ["local/x:/srv:ro", "data:rel", "/opt:/opt2"]}`, want: map[string]string{
		"HostConfig.Binds": `["/d/web/local/x:/srv:ro","/d/web/data:/rel","/opt:/opt2"]`,
	}},
	{name: "volume driver", config: `{"volumes": ["data:/srv"], "volume_driver": "nfs"}`, want: map[string]string{
		"HostConfig.Binds": `["data:/srv"]`, "HostConfig.VolumeDriver": `"nfs"`,
	}},
	{
		name: "mount of a folder", config: `{"mount": {"type": "bind", "source": "local/x", "target": "x", "readonly": true, "bind_options": {"propagation": "rslave"}}}`,
		want: map[string]string{"HostConfig.Mounts": `[` + taskMounts + `,{"BindOptions":{"Propagation":"rslave"},"ReadOnly":true,"Source":"/d/web/local/x","Target":"/x","Type":"bind"}]`},
	},
	{
		name: "mount of a volume", config: `{"mounts": [{"source": "v", "target": "/x", "volume_options": {"no_copy": true, "labels": {"a": "b"}, "driver_config": {"name": "nfs", "options": {"o": "ro"}}}}]}`,
		want: map[string]string{"HostConfig.Mounts": `[` + taskMounts +
			`,{"Source":"v","Target":"/x","Type":"volume","VolumeOptions":{"DriverConfig":{"Name":"nfs","Options":{"o":"ro"}},"Labels":{"a":"b"},"NoCopy":true}}]`},
	},
	{
		name: "mount of memory", config: `{"mount": {"type": "tmpfs", "target": "/x", "tmpfs_options": {"size": 4096, "mode": 448}}}`,
		want: map[string]string{"HostConfig.Mounts": `[` + taskMounts + `,{"Target":"/x","TmpfsOptions":{"Mode":448,"SizeBytes":4096},"Type":"tmpfs"}]`},
	},
	{name: "memory of podman's jobs", driver: docker.Podman, config: `{"tmpfs": ["/x:size=1m", "/y"]}`, want: map[string]string{
		"HostConfig.Tmpfs./x": `"size=1m"`, "HostConfig.Tmpfs./y": `""`,
	}},
	{name: "working directory of podman's jobs", driver: docker.Podman, config: `{"working_dir": "/srv"}`, want: map[string]string{"Config.WorkingDir": `"/srv"`}},
	{
		name: "volumes of the group", config: `{}`,
		task: func(cfg *drivers.TaskConfig) {
			cfg.Mounts = []drivers.Mount{{Source: "/v", Target: "/data", ReadOnly: true, Propagation: "bidirectional"}, {Source: "/w", Target: "/w"}}
		},
		want: map[string]string{"HostConfig.Mounts": `[` + taskMounts +
			`,{"BindOptions":{"Propagation":"rshared"},"ReadOnly":true,"Source":"/v","Target":"/data","Type":"bind"},{"Source":"/w","Target":"/w","Type":"bind"}]`},
	},
}

// testedElsewhere names the test of each key that says how the image is fetched.
var testedElsewhere = map[string]string{
	"image": "TestPull", "force_pull": "TestPull", "load": "TestLoad", "image_pull_timeout": "TestPullTimeout", "auth": "TestAuth", "auth_soft_fail": "TestAuth",
}

func disableLogs(cfg *drivers.TaskConfig) { cfg.Logs.Disabled = true }

// TestTheContainerHasEachKey compares the container of a task, as the daemon gets it, with that of a task without the keys.
func TestTheContainerHasEachKey(t *testing.T) {
	for _, driver := range []string{docker.Docker, docker.Podman} {
		plain := mustCreateFields(t, driver, createCase{config: `{}`})
		for _, c := range createCases {
			if c.driver != "" && c.driver != driver {
				continue
			}
			got := map[string]string{}
			with := mustCreateFields(t, driver, c)
			for path := range plain {
				if _, set := with[path]; !set {
					got[path] = ""
				}
			}
			for path, value := range with {
				if value != plain[path] {
					got[path] = value
				}
			}
			want := maps.Clone(c.want)
			maps.DeleteFunc(want, func(path, value string) bool { return value == "" && plain[path] == "" }) // Podman has one log file
			if !maps.Equal(got, want) {
				t.Errorf("%s, %s: the container differs in\n%v, want\n%v", driver, c.name, got, want)
			}
		}
	}
}

// TestPlainContainer has all that each container gets.
func TestPlainContainer(t *testing.T) {
	want := map[string]string{
		"Config.StopTimeout": `5`, "Config.Labels.io.skerry.task_id": `"alloc-1/web/1"`, "Config.Labels.io.skerry.alloc_id": `"alloc-1"`,
		"Config.Labels.io.skerry.task": `"web"`, "Config.Labels.io.skerry.boot_id": `"boot"`, "Config.Labels.io.skerry.state_folder": `"folder"`,
		"Config.Labels.com.hashicorp.nomad.alloc_id": `"alloc-1"`,
		"HostConfig.CapDrop":                         `["NET_RAW"]`, "HostConfig.RestartPolicy.Name": `"no"`, "HostConfig.NetworkMode": `"default"`,
		"HostConfig.CpuShares": `500`, "HostConfig.Memory": `268435456`, "HostConfig.MemorySwap": `268435456`,
		"HostConfig.Mounts": `[` + taskMounts + `]`, "HostConfig.LogConfig.Type": `"json-file"`,
	}
	for driver, sizes := range map[string]map[string]string{
		docker.Docker: {"HostConfig.LogConfig.Config.max-size": `"8m"`, "HostConfig.LogConfig.Config.max-file": `"3"`},
		docker.Podman: {"HostConfig.LogConfig.Config.max-size": `"16m"`},
	} {
		all := maps.Clone(want)
		maps.Copy(all, sizes)
		if got := mustCreateFields(t, driver, createCase{config: `{}`}); !maps.Equal(got, all) {
			t.Errorf("%s: %v\nwant %v", driver, got, all)
		}
	}
}

// TestEachKeyIsTested compares the keys that the drivers know with those of the tests.
func TestEachKeyIsTested(t *testing.T) {
	var tests strings.Builder
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(b)
	}
	for driver, known := range map[string][]string{docker.Docker: docker.Keys(), docker.Podman: docker.PodmanKeys()} {
		tested := map[string]bool{}
		for key, name := range testedElsewhere {
			tested[key] = strings.Contains(tests.String(), "func "+name+"(t *testing.T)")
		}
		for _, c := range createCases {
			if c.driver == "" || c.driver == driver {
				for key := range mustDecodeConfig(t, c.config) {
					tested[key] = true
				}
			}
		}
		for _, key := range known {
			if !tested[key] {
				t.Errorf("%s: no test shows what the key %q does", driver, key)
			}
		}
		for key := range tested {
			if !slices.Contains(known, key) {
				t.Errorf("%s: the tests have the key %q, which the driver does not know", driver, key)
			}
		}
	}
}

// mustDecodeConfig decodes a config block.
func mustDecodeConfig(tb testing.TB, text string) map[string]any {
	tb.Helper()
	var config map[string]any
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return config
}

// mustCreateFields returns the fields of a task's container as the daemon gets them: JSON by path. Fields that are not set are left out.
func mustCreateFields(tb testing.TB, driver string, c createCase) map[string]string {
	tb.Helper()
	d, err := docker.New(docker.Config{
		Name: driver, Socket: filepath.Join(tb.TempDir(), "none"), BootID: "boot", Log: slog.New(slog.DiscardHandler),
		TotalMHz: func() int { return 1000 * runtime.NumCPU() }, Permissions: docker.Permissions{AllowVolumes: true},
	})
	if err != nil {
		tb.Fatal(err)
	}
	cfg := drivers.TaskConfig{
		ID: "alloc-1/web/1", AllocID: "alloc-1", Task: "web", Resources: fleet.Resources{CPU: 500, MemoryMB: 256}, KillTimeout: 5 * time.Second,
		Dir: "/d/web", AllocDir: "/d/alloc", LocalDir: "/d/web/local", SecretsDir: "/d/web/secrets", Config: mustDecodeConfig(tb, c.config),
	}
	cfg.Config["image"] = "a"
	if c.task != nil {
		c.task(&cfg)
	}
	create, err := d.CreateOptions(tb.Context(), cfg)
	if err != nil {
		tb.Fatalf("%s, %s: %v", driver, c.name, err)
	}
	b, err := json.Marshal(map[string]any{"Config": create.Config, "HostConfig": create.HostConfig, "Networking": create.NetworkingConfig})
	if err != nil {
		tb.Fatal(err)
	}
	fields := map[string]string{}
	addFields(fields, "", mustDecodeConfig(tb, string(b)))
	return fields
}

// addFields adds the values of an object by their paths. An empty object counts as set only if it is an element of a set, such as a port.
func addFields(fields map[string]string, path string, object map[string]any) {
	for key, value := range object {
		at := strings.TrimPrefix(path+"."+key, ".")
		nested, isObject := value.(map[string]any)
		b, err := json.Marshal(value)
		switch text := string(b); {
		case err != nil:
			panic(err)
		case isObject && len(nested) > 0:
			addFields(fields, at, nested)
		case isObject && strings.Contains(at, "ExposedPorts."), text == `""` && strings.Contains(at, "Tmpfs."):
			fields[at] = text
		case !isObject && !slices.Contains([]string{"null", `""`, "0", "false", "[]", "[0,0]"}, text):
			fields[at] = text
		}
	}
}

// TestNamesInTheGroupsNetwork: a container in the network namespace of its allocation gets files with names, unless the job mounts its own.
func TestNamesInTheGroupsNetwork(t *testing.T) {
	d, err := docker.New(docker.Config{
		Name: docker.Podman, BootID: "boot", Log: slog.New(slog.DiscardHandler),
		Socket: mustServeDaemon(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }),
	})
	if err != nil {
		t.Fatal(err)
	}
	for config, want := range map[string][]string{
		`{"image": "a"}`: {"/etc/resolv.conf", "/etc/hosts"},
		`{"image": "a", "mount": {"type": "bind", "source": "local/hosts", "target": "/etc/hosts"}}`: {"/etc/hosts", "/etc/resolv.conf"},
		`{"image": "a", "volumes": ["local/resolv.conf:/etc/resolv.conf:ro"]}`:                       {"/etc/hosts"},
		`{"image": "a", "extra_hosts": ["gateway:host-gateway"]}`:                                    nil,
	} {
		dir := t.TempDir()
		create, err := d.CreateOptions(t.Context(), drivers.TaskConfig{
			ID: "alloc-1/web/1", AllocID: "alloc-1", Task: "web", Dir: dir, LocalDir: filepath.Join(dir, "local"), StateDir: dir, Config: mustDecodeConfig(t, config),
			Network: drivers.Network{Mode: fleet.NetworkBridge, Namespace: "/run/netns/n"},
		})
		if want == nil {
			if fleet.CodeOf(err) != fleet.CodeInvalid || !strings.Contains(err.Error(), "write NAME:IP") {
				t.Errorf("%s: %v", config, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range create.HostConfig.Mounts {
			if m.Target != drivers.LocalPath {
				got = append(got, m.Target)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: mounts at %v, want %v", config, got, want)
		}
	}
}
