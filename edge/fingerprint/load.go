package fingerprint

import (
	"context"
	"strconv"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/fleet/usage"
	"skerry/internal/pace"
)

// measureFor is the time over which processor time is measured: its clock ticks a hundred times a second.
const measureFor = 500 * time.Millisecond

// maxDisks bounds the number of reported file systems.
const maxDisks = 64

// Usage measures, for half a second, the machine's usage of processors, memory and disks.
func (f *Fingerprinter) Usage(ctx context.Context) (*usage.Host, error) {
	before, err := readLoad(f.cfg.Root, f.cfg.DataDir)
	if err != nil {
		return nil, err
	}
	if !pace.Rest(ctx, measureFor) {
		return nil, ctx.Err()
	}
	after, err := readLoad(f.cfg.Root, f.cfg.DataDir)
	if err != nil {
		return nil, err
	}
	host := usage.OfHost(before, after, f.MHz(), time.Now().UnixNano())
	host.DeviceStats = f.measureDevices(ctx, time.Now())
	return host, nil
}

// MHz returns the clock rate of a core of the stored node; fallbackMHz before the first Read.
func (f *Fingerprinter) MHz() float64 {
	mhz, err := strconv.ParseFloat(f.Node().Attributes["cpu.frequency"], 64)
	if err != nil {
		return fallbackMHz // no description yet
	}
	return mhz
}

// readLoad reads the counters of the processors, and the present usage of memory and disks. On a system that
// does not report them it returns a fleet.CodeUnsupported.
func readLoad(root, dataDir string) (usage.Load, error) {
	l := usage.Load{Memory: readMemoryUse(root), Cores: readCores(root), Disks: readDisks(root)}
	if l.Memory.Total == 0 || len(l.Cores) == 0 {
		return l, fleet.Errorf(fleet.CodeUnsupported, "measure the machine: the system does not report usage")
	}
	if up, _, ok := strings.Cut(readLine(root, "proc/uptime"), " "); ok {
		if s, err := strconv.ParseFloat(up, 64); err == nil && s > 0 && s < 1e9 {
			l.Uptime = time.Duration(s * float64(time.Second))
		}
	}
	if d, err := readUse(root, dataDir); err == nil {
		l.Data = &d
	}
	return l, nil
}

// readMemoryUse reads the usage of memory from /proc/meminfo; zero if that is not there.
func readMemoryUse(root string) usage.HostMemory {
	var m usage.HostMemory
	for _, line := range readLines(root, "proc/meminfo") {
		name, rest, _ := strings.Cut(line, ":")
		into := map[string]*uint64{"MemTotal": &m.Total, "MemAvailable": &m.Available, "MemFree": &m.Free}[name]
		if into == nil {
			continue
		}
		if kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 50); err == nil {
			*into = kb << 10
		}
	}
	if m.Available <= m.Total {
		m.Used = m.Total - m.Available
	}
	return m
}

// readCores reads the times of each core from /proc/stat (user, nice, system, idle, iowait, irq, softirq,
// steal); none if that is not there or not understood.
func readCores(root string) []usage.CoreTime {
	var out []usage.CoreTime
	for _, line := range readLines(root, "proc/stat") {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasPrefix(fields[0], "cpu") || fields[0] == "cpu" {
			continue
		}
		var spent [8]uint64
		for i := range min(len(spent), len(fields)-1) {
			n, err := strconv.ParseUint(fields[i+1], 10, 56)
			if err != nil {
				return nil
			}
			spent[i] = n
		}
		out = append(out, usage.CoreTime{
			Name: fields[0], User: spent[0] + spent[1], System: spent[2] + spent[5] + spent[6] + spent[7], Idle: spent[3] + spent[4],
		})
	}
	return out
}

// readDisks reads the usage of each mounted file system on a device, at most maxDisks.
func readDisks(root string) []usage.HostDisk {
	out, seen := []usage.HostDisk{}, map[string]bool{}
	for _, line := range readLines(root, "proc/self/mountinfo") {
		before, after, ok := strings.Cut(line, " - ")
		fields, source := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(source) < 2 || !strings.HasPrefix(source[1], "/dev/") || seen[source[1]] || len(out) == maxDisks {
			continue
		}
		if d, err := readUse(root, unescape(fields[4])); err == nil {
			d.Device, d.Mountpoint = unescape(source[1]), unescape(fields[4])
			seen[source[1]] = true
			out = append(out, d)
		}
	}
	return out
}

// diskUse computes the usage of a file system from its counts of blocks and files; size is that of a block in
// bytes.
func diskUse(blocks, free, available, files, filesFree, size uint64) usage.HostDisk {
	d := usage.HostDisk{Size: blocks * size, Available: available * size}
	if free <= blocks {
		d.Used = (blocks - free) * size
	}
	if usable := d.Used + d.Available; usable > 0 {
		d.UsedPercent = 100 * float64(d.Used) / float64(usable)
	}
	if files > 0 && filesFree <= files {
		d.InodesUsedPercent = 100 * float64(files-filesFree) / float64(files)
	}
	return d
}
