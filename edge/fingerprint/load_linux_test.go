package fingerprint_test

import (
	"testing"
	"testing/synctest"

	"skerry/edge/fingerprint"
	"skerry/fleet"
	"skerry/fleet/usage"
)

// TestUsageOfThisMachine measures the machine that the test runs on.
func TestUsageOfThisMachine(t *testing.T) {
	f := mustNew(t, func(cfg *fingerprint.Config) { cfg.Root, cfg.DataDir = "/", t.TempDir() })
	if _, err := f.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	u, err := f.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := u.Memory
	if m.Total < 64<<20 || m.Used == 0 || m.Used+m.Available != m.Total || m.Free > m.Total {
		t.Errorf("memory %+v", m)
	}
	if len(u.CPU) == 0 {
		t.Errorf("%d cores", len(u.CPU))
	}
	for _, c := range u.CPU {
		if sum := c.User + c.System + c.Idle; sum < 99.9 || sum > 100.1 || c.Total < 0 {
			t.Errorf("core %+v", c)
		}
	}
	if d := u.AllocDirStats; d == nil || d.Size == 0 || d.Used > d.Size || d.UsedPercent > 100 || d.Mountpoint == "" {
		t.Errorf("disk %+v", d)
	}
	if u.Uptime == 0 || u.Timestamp == 0 {
		t.Errorf("up for %d s at %d", u.Uptime, u.Timestamp)
	}
}

// TestUsageIsRead reads files as a kernel writes them, and invalid ones.
func TestUsageIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := mustTree(t, map[string]string{
			"proc/meminfo": "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\nSwapTotal: 5 kB\n",
			"proc/stat":    "cpu  9 9 9 9\ncpu0 10 10 20 60 5 3 2 1\ncpu1 1 x 1 1\nintr 5\n",
			"proc/uptime":  "12.75 40.00\n",
		})
		f := mustNew(t, func(cfg *fingerprint.Config) { cfg.Root, cfg.DataDir = root, t.TempDir() })
		if _, err := f.Usage(t.Context()); fleet.CodeOf(err) != fleet.CodeUnsupported {
			t.Errorf("a line of /proc/stat that makes no sense: %v", err)
		}
		root = mustTree(t, map[string]string{
			"proc/meminfo": "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\nSwapTotal: 5 kB\n",
			"proc/stat":    "cpu  9 9 9 9\ncpu0 10 10 20 60 5 3 2 1\nintr 5\n",
			"proc/uptime":  "12.75 40.00\n",
		})
		f = mustNew(t, func(cfg *fingerprint.Config) { cfg.Root, cfg.DataDir = root, t.TempDir() })
		u, err := f.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want := (usage.HostMemory{Total: 1000 << 10, Free: 100 << 10, Available: 400 << 10, Used: 600 << 10}); *u.Memory != want {
			t.Errorf("memory %+v", *u.Memory)
		}
		if len(u.CPU) != 0 || u.CPUTicksConsumed != 0 || u.Uptime != 12 { // a core that did nothing at all
			t.Errorf("%+v", u)
		}
	})
}

// FuzzLoad reads random kernel files.
func FuzzLoad(f *testing.F) {
	f.Add("MemTotal: 10 kB\nMemAvailable: 99 kB", "cpu0 1 2 3 4 5 6 7 8 9 10", "1e300 2", "36 35 98:0 / / rw - ext4 /dev/sda1 rw")
	f.Add("MemTotal: x", "cpu0 -1 2 3 4", "", "36 35 98:0 / /\\040x rw - ext4 /dev/sda1 rw")
	f.Fuzz(func(t *testing.T, meminfo, stat, uptime, mounts string) {
		root := mustTree(t, map[string]string{
			"proc/meminfo": meminfo, "proc/stat": stat, "proc/uptime": uptime, "proc/self/mountinfo": mounts,
		})
		l, err := fingerprint.ReadLoad(root, root)
		if err == nil && (l.Memory.Used > l.Memory.Total || l.Uptime < 0 || len(l.Cores) == 0) {
			t.Errorf("%+v", l)
		}
	})
}
