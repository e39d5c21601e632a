package fingerprint

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"skerry/fleet"
)

const (
	// maxFile bounds the bytes that are read of a system file.
	maxFile = 1 << 20
	// fallbackMHz is a core's clock rate if the system does not tell it.
	fallbackMHz = 1000
	// volumePluginVersion is the version of Nomad's plugin mkdir, which edge/hostvolumes replaces.
	volumePluginVersion = "0.0.1"
)

// machine is the part of the node that does not change while an agent runs.
type machine struct {
	attributes map[string]string
	resources  fleet.Resources
}

// cpu is the number, clock rate and model of the processor's cores.
type cpu struct {
	cores int
	mhz   int // of a core; the mean if they differ
	model string
}

func (c cpu) totalMHz() int { return c.cores * c.mhz }

// readMachine reads the attributes and resources of the machine and of the data directory's disk, below root.
// It leaves out each part that it cannot read, and the error names that part.
func readMachine(root, dataDir string) (machine, error) {
	c := readCPU(root)
	attrs := map[string]string{
		"cpu.arch":         runtime.GOARCH,
		"cpu.numcores":     strconv.Itoa(c.cores),
		"cpu.frequency":    strconv.Itoa(c.mhz),
		"cpu.totalcompute": strconv.Itoa(c.totalMHz()),
		"cpu.modelname":    c.model,
		"kernel.name":      runtime.GOOS,
		"kernel.arch":      runtime.GOARCH,
		"kernel.version":   readLine(root, "proc/sys/kernel/osrelease"),
		"unique.hostname":  readLine(root, "proc/sys/kernel/hostname"),

		fleet.VolumePluginAttribute: volumePluginVersion,
		fleet.AttributeIdentities:   fleet.OfflineIdentities,
	}
	attrs["os.name"], attrs["os.version"] = readRelease(root)
	if attrs["unique.hostname"] == "" {
		attrs["unique.hostname"], _ = os.Hostname() // an empty name is left out
	}
	resources := fleet.Resources{CPU: c.totalMHz()}
	memory, memoryErr := readMemory(root)
	if memoryErr == nil {
		resources.MemoryMB = int(memory >> 20)
		attrs["memory.totalbytes"] = strconv.FormatUint(memory, 10)
	}
	d, diskErr := readDisk(root, dataDir)
	if diskErr == nil {
		resources.DiskMB = int(d.bytes >> 20)
		attrs["unique.storage.bytestotal"] = strconv.FormatUint(d.bytes, 10)
		attrs["unique.storage.volume"] = d.volume
	}
	for k, v := range attrs {
		if v == "" {
			delete(attrs, k)
		}
	}
	return machine{attributes: attrs, resources: resources}, errors.Join(memoryErr, diskErr)
}

// readCPU counts the cores and finds their clock rate: the highest that the kernel may choose, otherwise the
// one that the processor reports, otherwise fallbackMHz.
func readCPU(root string) cpu {
	c := cpu{}
	shown := 0
	for _, line := range readLines(root, "proc/cpuinfo") {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "processor":
			if _, err := strconv.Atoi(value); err == nil { // ARM uses the key "processor" for the model too
				c.cores++
			}
		case "model name", "Model", "cpu model":
			c.model = cmp.Or(c.model, value)
		case "cpu MHz":
			if mhz, err := strconv.ParseFloat(value, 64); err == nil && mhz > 0 && mhz < 1e6 {
				shown = max(shown, int(mhz))
			}
		}
	}
	if c.cores == 0 {
		c.cores = runtime.NumCPU()
	}
	c.mhz = cmp.Or(scalingMHz(root), shown, fallbackMHz)
	return c
}

// scalingMHz returns the mean of the cores' highest clock rates that the kernel may choose, or 0 if they are
// not known.
func scalingMHz(root string) int {
	rates, err := filepath.Glob(filepath.Join(root, "sys/devices/system/cpu/cpu[0-9]*/cpufreq"))
	if err != nil {
		return 0
	}
	sum, n := 0, 0
	for _, dir := range rates {
		for _, name := range []string{"base_frequency", "cpuinfo_max_freq"} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				continue
			}
			if khz, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && khz > 0 && khz < 1e9 {
				sum, n = sum+khz/1000, n+1
				break
			}
		}
	}
	if n == 0 {
		return 0
	}
	return sum / n
}

// readMemory returns the machine's memory in bytes, or the limit of the agent's container if that is less.
func readMemory(root string) (uint64, error) {
	total := uint64(0)
	for _, line := range readLines(root, "proc/meminfo") {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 50)
			if err != nil {
				return 0, fmt.Errorf("parse memory: %w", err)
			}
			total = kb << 10
		}
	}
	if total == 0 {
		return 0, errors.New("read memory: the system does not report it")
	}
	if limit, err := strconv.ParseUint(readLine(root, "sys/fs/cgroup/memory.max"), 10, 63); err == nil && limit > 0 {
		total = min(total, limit)
	}
	return total, nil
}

// readRelease returns the name and version of the operating system from os-release; without that file, Go's
// name of the system.
func readRelease(root string) (name, version string) {
	for _, path := range []string{"etc/os-release", "usr/lib/os-release"} {
		for _, line := range readLines(root, path) {
			key, value, _ := strings.Cut(line, "=")
			value = strings.Trim(strings.TrimSpace(value), `"'`)
			switch key {
			case "ID":
				name = value
			case "VERSION_ID":
				version = value
			}
		}
		if name != "" {
			return name, version
		}
	}
	return runtime.GOOS, ""
}

// volumeOf returns the device that is mounted at path, from the lines of /proc/self/mountinfo: "36 35
// 98:0 /root /mount/point options - type source …".
func volumeOf(lines []string, path string) string {
	volume, longest := "", -1
	for _, line := range lines {
		before, after, ok := strings.Cut(line, " - ")
		fields, source := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(source) < 2 {
			continue
		}
		point := unescape(fields[4])
		rel, err := filepath.Rel(point, path)
		if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) || len(point) < longest {
			continue
		}
		volume, longest = unescape(source[1]), len(point) // the last mount at one place is on top
	}
	return volume
}

// unescape decodes the kernel's octal escapes in names, such as \040.
func unescape(s string) string {
	for _, c := range []string{" ", "\t", "\n", `\`} {
		s = strings.ReplaceAll(s, fmt.Sprintf(`\%03o`, c[0]), c)
	}
	return s
}

// readLines returns the lines of the file root/path; none if it cannot be read.
func readLines(root, path string) []string {
	b, err := readBounded(filepath.Join(root, path))
	if err != nil {
		return nil
	}
	var lines []string
	for scan := bufio.NewScanner(bytes.NewReader(b)); scan.Scan(); {
		lines = append(lines, scan.Text())
	}
	return lines
}

// readLine returns the first line of the file root/path, or "".
func readLine(root, path string) string {
	lines := readLines(root, path)
	if len(lines) == 0 {
		return ""
	}
	return strings.TrimSpace(lines[0])
}

// readBounded returns at most maxFile bytes of a regular file.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fs.ErrInvalid}
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}
