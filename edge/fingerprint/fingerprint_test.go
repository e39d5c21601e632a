package fingerprint_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/devices"
	"skerry/devices/sysfs"
	"skerry/devices/usb"
	"skerry/drivers"
	"skerry/drivers/rawexec"
	"skerry/drivers/sim"
	"skerry/edge/fingerprint"
	"skerry/fleet"
)

// mustTree makes a file system of paths and contents, and returns its root.
func mustTree(tb testing.TB, files map[string]string) string {
	tb.Helper()
	root := tb.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	return root
}

var board = map[string]string{
	"proc/cpuinfo":              "processor\t: 0\nBogoMIPS\t: 108.00\n\nprocessor\t: 1\n\nprocessor\t: 2\n\nprocessor\t: 3\n\nModel\t\t: Small Board 4\n",
	"proc/meminfo":              "MemTotal:        3884576 kB\nMemFree:  1 kB\n",
	"proc/sys/kernel/osrelease": "6.6.31-v8\n",
	"proc/sys/kernel/hostname":  "till-17\n",
	"etc/os-release":            "NAME=\"Board OS\"\nID=boardos\nVERSION_ID=\"12\"\n",
	"sys/fs/cgroup/memory.max":  "max\n",
	"sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "1800000\n",
	"sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq": "1800000\n",
	"sys/devices/system/cpu/cpu2/cpufreq/cpuinfo_max_freq": "600000\n",
	"sys/devices/system/cpu/cpu3/cpufreq/cpuinfo_max_freq": "600000\n",
	"sys/devices/system/cpu/cpufreq/policy0/x":             "",
}

func mustNew(tb testing.TB, change func(cfg *fingerprint.Config)) *fingerprint.Fingerprinter {
	tb.Helper()
	cfg := fingerprint.Config{
		Node:    fleet.Node{ID: "n1", Name: "till-17", Datacenter: "shop-3", NodePool: "default", Meta: map[string]string{"floor": "1"}},
		DataDir: tb.TempDir(),
		Drivers: map[string]drivers.Driver{sim.Name: sim.New(sim.NewSimMachine())},
		Log:     slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	f, err := fingerprint.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func mustRead(tb testing.TB, f *fingerprint.Fingerprinter) fleet.Node {
	tb.Helper()
	n, err := f.Read(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func TestBoard(t *testing.T) {
	n := mustRead(t, mustNew(t, func(cfg *fingerprint.Config) { cfg.Root = mustTree(t, board) }))
	want := map[string]string{
		"cpu.arch": runtime.GOARCH, "cpu.numcores": "4", "cpu.frequency": "1200", "cpu.totalcompute": "4800",
		"cpu.modelname": "Small Board 4", "memory.totalbytes": "3977805824",
		"kernel.name": "linux", "kernel.arch": runtime.GOARCH, "kernel.version": "6.6.31-v8",
		"os.name": "boardos", "os.version": "12", "unique.hostname": "till-17", "driver.sim": "1",
		"plugins.host_volume.mkdir.version": "0.0.1",
		"skerry.identities":                 "2",

		"unique.storage.bytestotal": n.Attributes["unique.storage.bytestotal"], // the real disk of this machine
	}
	if !maps.Equal(n.Attributes, want) {
		t.Errorf("attributes %v, want %v", n.Attributes, want)
	}
	if n.Resources.CPU != 4800 || n.Resources.MemoryMB != 3793 || n.Resources.DiskMB <= 0 {
		t.Errorf("resources %+v", n.Resources)
	}
	if n.Name != "till-17" || n.Datacenter != "shop-3" || n.Meta["floor"] != "1" {
		t.Errorf("what is configured is lost: %+v", n)
	}
	if info := n.Drivers[sim.Name]; !info.Detected || !info.Healthy {
		t.Errorf("drivers %+v", n.Drivers)
	}
	if n.DescriptionHash != hex.EncodeToString(fingerprint.Hash(n)) {
		t.Errorf("hash %s", n.DescriptionHash)
	}
}

func TestFallbacks(t *testing.T) {
	for _, tc := range []struct {
		name      string
		files     map[string]string
		configure fleet.Resources
		want      fleet.Resources // DiskMB is not compared if it is not configured
	}{
		{"rate that the processor shows", map[string]string{
			"proc/cpuinfo": "processor : 0\ncpu MHz : 2596.122\nprocessor : 1\ncpu MHz : 2400.5\n", "proc/meminfo": "MemTotal: 1048576 kB\n",
		}, fleet.Resources{}, fleet.Resources{CPU: 2 * 2596, MemoryMB: 1024}},
		{"nothing known", nil, fleet.Resources{}, fleet.Resources{CPU: runtime.NumCPU() * 1000}},
		{"nonsense", map[string]string{
			"proc/cpuinfo": "processor : ARMv7\ncpu MHz : -1\n", "proc/meminfo": "MemTotal: lots\n",
			"sys/devices/system/cpu/cpu0/cpufreq/base_frequency": "0\n",
		}, fleet.Resources{}, fleet.Resources{CPU: runtime.NumCPU() * 1000}},
		{"in a container", map[string]string{
			"proc/cpuinfo": "processor : 0\n", "proc/meminfo": "MemTotal: 1048576 kB\n", "sys/fs/cgroup/memory.max": "268435456\n",
		}, fleet.Resources{}, fleet.Resources{CPU: 1000, MemoryMB: 256}},
		{"configured", map[string]string{"proc/cpuinfo": "processor : 0\n"},
			fleet.Resources{CPU: 500, MemoryMB: 64, DiskMB: 10}, fleet.Resources{CPU: 500, MemoryMB: 64, DiskMB: 10}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := mustRead(t, mustNew(t, func(cfg *fingerprint.Config) {
				cfg.Root, cfg.Node.Resources = mustTree(t, tc.files), tc.configure
			}))
			if tc.configure.DiskMB == 0 {
				n.Resources.DiskMB = 0
			}
			if n.Resources != tc.want {
				t.Errorf("resources %+v, want %+v", n.Resources, tc.want)
			}
		})
	}
}

func TestVolume(t *testing.T) {
	lines := []string{
		"22 1 8:1 / / rw - ext4 /dev/root rw",
		"23 22 8:2 / /var rw - ext4 /dev/sda2 rw",
		"24 22 8:3 / /var/lib rw - ext4 /dev/sda3 rw",
		"25 22 8:4 / /var/lib rw - ext4 /dev/sda4 rw", // mounted over the one before
		`26 22 8:5 / /mnt/a\040disk rw - vfat /dev/sdb1 rw`,
		"27 22 8:6 / /var/library rw - ext4 /dev/sda6 rw",
		"nonsense", "1 2 - 3",
	}
	for path, want := range map[string]string{
		"/home/x": "/dev/root", "/var/log": "/dev/sda2", "/var/lib/skerry": "/dev/sda4", "/var/lib": "/dev/sda4",
		"/mnt/a disk/x": "/dev/sdb1", "/var/libra": "/dev/sda2",
	} {
		if got := fingerprint.VolumeOf(lines, path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// This machine is described with everything that constraints use, fast, in few bytes, and the same each time.
func TestThisMachine(t *testing.T) {
	raw, err := rawexec.New(rawexec.Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	make := func() *fingerprint.Fingerprinter {
		return mustNew(t, func(cfg *fingerprint.Config) {
			cfg.DataDir = dir
			cfg.Drivers[rawexec.Name] = raw
			cfg.Finders = []devices.Finder{usb.New(sysfs.Roots{})}
		})
	}
	begin := time.Now()
	n := mustRead(t, make())
	if took := time.Since(begin); took > 100*time.Millisecond {
		t.Errorf("took %v", took)
	}
	for _, name := range []string{
		"cpu.arch", "cpu.numcores", "cpu.frequency", "cpu.totalcompute", "memory.totalbytes", "kernel.name", "kernel.version",
		"os.name", "unique.hostname", "unique.storage.bytestotal", "unique.storage.volume", "driver.raw_exec", "driver.sim",
	} {
		if n.Attributes[name] == "" {
			t.Errorf("%s is missing of %v", name, n.Attributes)
		}
	}
	if b, err := json.Marshal(n); err != nil || len(b) > 8<<10 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if again := mustRead(t, make()); again.DescriptionHash != n.DescriptionHash {
		t.Errorf("another hash: %+v, then %+v", n, again)
	}
}

func TestHash(t *testing.T) {
	node := func() fleet.Node {
		return fleet.Node{
			ID: "n", Name: "n", Attributes: map[string]string{"a": "1", "b": "2", "c": "3"}, Meta: map[string]string{"m": "1"},
			Drivers: map[string]fleet.DriverInfo{"sim": {Detected: true}}, Devices: []fleet.Device{{ID: "d"}},
			Resources: fleet.Resources{CPU: 1}, Version: "1",
		}
	}
	hash := func(change func(n *fleet.Node)) string {
		n := node()
		change(&n)
		return string(fingerprint.Hash(n))
	}
	plain := hash(func(*fleet.Node) {})
	for name, change := range map[string]func(n *fleet.Node){
		"of the hub: status":      func(n *fleet.Node) { n.Status = fleet.NodeReady },
		"of the hub: indexes":     func(n *fleet.Node) { n.ModifyIndex, n.Epoch, n.Applied = 1, 2, 3 },
		"of the hub: its hash":    func(n *fleet.Node) { n.DescriptionHash = "x" },
		"of the hub: eligibility": func(n *fleet.Node) { n.SchedulingEligibility = fleet.NodeIneligible },
		"a copied map":            func(n *fleet.Node) { n.Attributes = maps.Clone(n.Attributes) },
		"an empty device list":    func(n *fleet.Node) { n.Devices = append(n.Devices, []fleet.Device{}...) },
	} {
		if hash(change) != plain {
			t.Errorf("%s changes the hash", name)
		}
	}
	for name, change := range map[string]func(n *fleet.Node){
		"name":           func(n *fleet.Node) { n.Name = "m" },
		"attribute":      func(n *fleet.Node) { n.Attributes["a"] = "2" },
		"meta":           func(n *fleet.Node) { n.Meta["x"] = "" },
		"resources":      func(n *fleet.Node) { n.Resources.DiskMB = 1 },
		"reserved":       func(n *fleet.Node) { n.Reserved.CPU = 1 },
		"driver":         func(n *fleet.Node) { n.Drivers["sim"] = fleet.DriverInfo{Detected: true, Healthy: true} },
		"device":         func(n *fleet.Node) { n.Devices = nil },
		"version":        func(n *fleet.Node) { n.Version = "2" },
		"pool":           func(n *fleet.Node) { n.NodePool = "p" },
		"class":          func(n *fleet.Node) { n.NodeClass = "c" },
		"datacenter":     func(n *fleet.Node) { n.Datacenter = "d" },
		"site":           func(n *fleet.Node) { n.Site = "s" },
		"host volumes":   func(n *fleet.Node) { n.HostVolumes = map[string]fleet.HostVolume{"data": {Path: "/srv"}} },
		"networks":       func(n *fleet.Node) { n.HostNetworks = []fleet.HostNetwork{{Name: "lan", IP: "10.0.0.5"}} },
		"reserved ports": func(n *fleet.Node) { n.ReservedPorts = "22" },
		"dynamic ports":  func(n *fleet.Node) { n.MaxDynamicPort = 21_000 },
		"first dynamic":  func(n *fleet.Node) { n.MinDynamicPort = 21_000 },
		"allocations":    func(n *fleet.Node) { n.MaxAllocs = 3 },
	} {
		if hash(change) == plain {
			t.Errorf("%s does not change the hash", name)
		}
	}
}

// fakeFinder finds devices that a test adds and removes.
type fakeFinder struct {
	mu  sync.Mutex
	ids []string
	err error
}

func (p *fakeFinder) setDeviceIDs(ids ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ids = ids
}

func (p *fakeFinder) Kind() string { return "plug" }

func (p *fakeFinder) Find(context.Context) ([]fleet.Device, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []fleet.Device
	for _, id := range p.ids {
		found = append(found, fleet.Device{Kind: "plug", ID: id})
	}
	return found, p.err
}

func (p *fakeFinder) Reserve(context.Context, []string) (devices.Reservation, error) {
	return devices.Reservation{}, nil
}

func ids(n fleet.Node) string {
	var list []string
	for _, d := range n.Devices {
		list = append(list, d.ID)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestChangesAreSeenTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeFinder{ids: []string{"a"}, err: errors.New("one cannot be read")}
		f := mustNew(t, func(cfg *fingerprint.Config) {
			cfg.Finders, cfg.Interval = []devices.Finder{p}, time.Minute
		})
		mustRead(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		after := func(minutes int, want string) {
			t.Helper()
			time.Sleep(time.Duration(minutes)*time.Minute + time.Second)
			synctest.Wait()
			if got := ids(f.Node()); got != want {
				t.Errorf("devices %q, want %q", got, want)
			}
		}
		changed := f.Changed()
		after(10, "a")
		for range 5 { // a loose contact
			p.setDeviceIDs()
			after(1, "a")
			p.setDeviceIDs("a")
			after(1, "a")
		}
		select {
		case <-changed:
			t.Error("told a change that was none")
		default:
		}
		p.setDeviceIDs("a", "b")
		after(1, "a")
		after(1, "a b")
		<-changed
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestReadHeedsItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := mustNew(t, nil)
	if _, err := f.Read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Read: %v", err)
	}
	if n := f.Node(); n.DescriptionHash != "" || n.Name != "till-17" {
		t.Errorf("kept %+v", n)
	}
}

// The hash is frozen: if a release changes it, every edge sends its description again after the upgrade.
func TestHashIsFrozen(t *testing.T) {
	got := hex.EncodeToString(fingerprint.Hash(fleet.Node{ID: "n", Attributes: map[string]string{"cpu.arch": "arm"}}))
	if want := "211d11db4050591d91248f2172c1b039"; got != want {
		t.Errorf("hash %s, want %s", got, want)
	}
}

// The machine is described whatever the kernel's files contain; an unreadable number is left out.
func FuzzMachine(f *testing.F) {
	f.Add(board["proc/cpuinfo"], board["proc/meminfo"], board["etc/os-release"], "1800000\n", "max\n")
	f.Add("processor\nprocessor\t: 1\ncpu MHz\t: -1e9\n", "MemTotal: 99999999999999999999 kB", "ID='\n=\n", "-1", "18446744073709551616")
	f.Add("", "MemTotal:\x00", "NAME=\"", "x", "-5")
	f.Fuzz(func(t *testing.T, cpuinfo, meminfo, release, freq, limit string) {
		root := mustTree(t, map[string]string{
			"proc/cpuinfo": cpuinfo, "proc/meminfo": meminfo, "etc/os-release": release, "sys/fs/cgroup/memory.max": limit,
			"sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": freq,
		})
		fp := mustNew(t, func(cfg *fingerprint.Config) { cfg.Root = root })
		n, err := fp.Read(context.Background())
		if err != nil {
			t.Logf("described in part: %v", err)
		}
		if n.ID != "n1" || n.Resources.CPU < 0 || n.Resources.MemoryMB < 0 || n.Resources.DiskMB < 0 {
			t.Fatalf("described as %+v", n)
		}
	})
}
