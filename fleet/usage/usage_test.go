package usage_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/usage"
)

// TestUsageBetween has processes that go on, begin, end, and get the PID of another.
func TestUsageBetween(t *testing.T) {
	before := []fleet.Consumed{
		{PID: 10, Start: 1, User: time.Second, System: time.Second, RSS: 100},
		{PID: 11, Start: 2, User: time.Hour},
		{PID: 12, Start: 3, User: 9 * time.Second},
	}
	after := []fleet.Consumed{
		{PID: 10, Start: 1, User: 1500 * time.Millisecond, System: 1100 * time.Millisecond, RSS: 300, Swap: 50},
		{PID: 12, Start: 99, User: 200 * time.Millisecond, RSS: 7}, // another one of that PID
		{PID: 13, Start: 100, System: 100 * time.Millisecond, RSS: 3},
	}
	got := usage.OfTask(before, after, time.Second, 2000, 5)
	if len(got.Pids) != 3 || got.Timestamp != 5 {
		t.Fatalf("%+v", got)
	}
	if c := got.Pids["10"].CpuStats; !near(c.UserMode, 50) || !near(c.SystemMode, 10) || !near(c.Percent, 60) || !near(c.TotalTicks, 1200) {
		t.Errorf("process 10: %+v", c)
	}
	all := got.ResourceUsage
	if c := all.CpuStats; !near(c.Percent, 90) || !near(c.TotalTicks, 1800) || len(c.Measured) == 0 {
		t.Errorf("all: %+v", c)
	}
	if m := all.MemoryStats; m.RSS != 310 || m.Swap != 50 || m.Usage != 360 || len(m.Measured) == 0 {
		t.Errorf("all: %+v", m)
	}
	alloc := usage.OfAlloc(map[string]*usage.Task{"a": got, "b": got}, 6)
	if alloc.ResourceUsage.MemoryStats.RSS != 620 || !near(alloc.ResourceUsage.CpuStats.Percent, 180) || alloc.Timestamp != 6 {
		t.Errorf("allocation: %+v", alloc.ResourceUsage)
	}
	if still := usage.OfTask(after, before, time.Second, 2000, 5); still.ResourceUsage.CpuStats.UserMode < 0 {
		t.Errorf("time runs backwards: %+v", still.ResourceUsage.CpuStats)
	}
	if none := usage.OfTask(before, after, 0, 2000, 5); none.ResourceUsage.CpuStats.Percent != 0 {
		t.Errorf("in no time: %+v", none.ResourceUsage.CpuStats)
	}
}

func TestHostUsageBetween(t *testing.T) {
	before := usage.Load{Cores: []usage.CoreTime{{Name: "cpu0", User: 100, System: 100, Idle: 800}, {Name: "cpu1", User: 50, System: 0, Idle: 0}}}
	after := usage.Load{
		Memory: usage.HostMemory{Total: 10, Used: 4}, Uptime: 90*time.Second + time.Millisecond,
		Cores: []usage.CoreTime{{Name: "cpu0", User: 150, System: 125, Idle: 825}, {Name: "cpu1", User: 10, System: 0, Idle: 0}, {Name: "cpu2", User: 9, System: 9, Idle: 9}},
		Disks: []usage.HostDisk{{Device: "/dev/sda"}},
	}
	h := usage.OfHost(before, after, 1000, 7)
	if len(h.CPU) != 1 || h.CPU[0].CPU != "cpu0" || !near(h.CPU[0].User, 50) || !near(h.CPU[0].System, 25) || !near(h.CPU[0].Idle, 25) ||
		!near(h.CPU[0].Total, 75) || !near(h.CPUTicksConsumed, 750) {
		t.Errorf("cores: %+v", h)
	}
	if h.Memory.Used != 4 || h.Uptime != 90 || len(h.DiskStats) != 1 || h.Timestamp != 7 {
		t.Errorf("%+v", h)
	}
}

func near(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 }
