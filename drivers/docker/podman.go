package docker

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
)

// podmanPullHint explains a short image name to users of Podman.
const podmanPullHint = "write the image's full name, such as docker.io/library/redis:7"

// quirks are the differences between the two daemons.
type quirks struct {
	podman bool
	// logFormat is the format of the daemon's log files.
	logFormat logFormat
	// logFiles and logBytes bound the daemon's log of a container. Podman keeps one file: at its limit it begins a new
	// one and removes the old file, which the reader still has open.
	logFiles int
	logMB    int
}

// quirksOf returns the differences of a driver's daemon.
func quirksOf(name string) quirks {
	if name == Podman {
		return quirks{podman: true, logFormat: k8sLog, logFiles: 1, logMB: 16}
	}
	return quirks{logFormat: jsonLog, logFiles: 3, logMB: 8}
}

// podmanKeys are the keys whose form differs in Nomad's podman driver.
func (o *options) podmanKeys(r *reader) map[string]func(string, any) {
	return map[string]func(string, any){
		"working_dir": func(k string, v any) { o.config.WorkingDir = r.readText(k, v) },
		"userns":      func(k string, v any) { o.host.UsernsMode = container.UsernsMode(r.readText(k, v)) },
		"selinux_opts": func(k string, v any) {
			for _, label := range r.readList(k, v) {
				o.host.SecurityOpt = append(o.host.SecurityOpt, "label="+label)
			}
		},
		"memory_reservation": func(k string, v any) { o.memoryReserved = r.readBytes(k, v) },
		"memory_swap":        func(k string, v any) { o.memoryAndSwap = r.readBytes(k, v) },
		"memory_swappiness": func(k string, v any) {
			swappiness := r.readInteger(k, v, 0, 100)
			o.host.MemorySwappiness = &swappiness
		},
		"apparmor_profile": func(k string, v any) {
			o.host.SecurityOpt = append(o.host.SecurityOpt, "apparmor="+r.readText(k, v))
		},
		"tmpfs": func(k string, v any) {
			o.host.Tmpfs = map[string]string{}
			for _, t := range r.readList(k, v) {
				target, opts, _ := strings.Cut(t, ":")
				o.host.Tmpfs[target] = opts
			}
		},
		"devices": func(k string, v any) {
			if _, isList := v.([]any); isList {
				if texts := (&reader{}); texts.readList(k, v) != nil && len(texts.wrong) == 0 {
					for _, s := range texts.readList(k, v) {
						o.addDevice(r, k, parseDevice(s))
					}
					return
				}
			}
			o.resourceKeys(r)["devices"](k, v)
		},
	}
}

// parseDevice parses HOST[:CONTAINER[:PERMISSIONS]].
func parseDevice(s string) container.DeviceMapping {
	d := container.DeviceMapping{CgroupPermissions: "rwm"}
	parts := strings.SplitN(s, ":", 3)
	d.PathOnHost = parts[0]
	if len(parts) > 1 {
		d.PathInContainer = parts[1]
	}
	if len(parts) > 2 {
		d.CgroupPermissions = parts[2]
	}
	return d
}

// isEndingUnderInspect reports whether a request failed because the container's process ended while Podman (before 4.4) read of it.
func isEndingUnderInspect(err error) bool {
	return err != nil && strings.Contains(err.Error(), "/proc/") && strings.Contains(err.Error(), "no such process")
}

// isLimitRefused reports whether a container could not start because Podman's default limits of open files and
// processes are above the hard limits of this machine.
func isLimitRefused(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "setrlimit") || strings.Contains(err.Error(), "setting rlimit"))
}

// lowLimitsNeeded is the kept answer of a Podman whose default limits were refused. The next agent begins with lower ones:
// else each container is created twice after a boot.
const lowLimitsNeeded = "needed"

// podmanConfig is the file in which an operator sets Podman's default limits.
const podmanConfig = "/etc/containers/containers.conf"

// limitsQuestion names what is kept of Podman's default limits. It is found out again under other limits of this process, and
// after a change of Podman's configuration.
func limitsQuestion() string {
	files, processes := hardLimits()
	configured := "none"
	if info, err := os.Stat(podmanConfig); err == nil {
		configured = info.ModTime().UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("limits for %d files and %d processes, configuration of %s", files, processes, configured)
}

// errNotTried says that no container has been started yet with Podman's default limits.
var errNotTried = errors.New("not tried")

// needsLowLimits reports whether Podman's default limits are known to be above those of this machine.
func (d *Driver) needsLowLimits() bool {
	if !d.quirks.podman || d.lowLimits.Load() {
		return d.lowLimits.Load()
	}
	kept, err := d.cfg.Programs.Ask(d.daemonProgram(), limitsQuestion(), func() (string, error) { return "", errNotTried })
	if err == nil && kept == lowLimitsNeeded {
		d.lowLimits.Store(true)
	}
	return d.lowLimits.Load()
}

// noteLowLimits keeps that Podman's default limits are above those of this machine.
func (d *Driver) noteLowLimits() {
	if d.lowLimits.Swap(true) {
		return
	}
	d.log.Warn("this machine does not permit podman's limits of open files and processes: containers get lower ones")
	_, err := d.cfg.Programs.Ask(d.daemonProgram(), limitsQuestion(), func() (string, error) { return lowLimitsNeeded, nil })
	if err = errors.Join(err, d.cfg.Programs.Save()); err != nil {
		d.log.Debug("need of lower limits not kept", "error", err)
	}
}

// portTries and portPause bound the wait until the monitor of a refused container frees its ports.
const (
	portTries = 10
	portPause = 500 * time.Millisecond
)

// isPortHeld reports whether a container could not start because another process has one of its ports.
func isPortHeld(err error) bool {
	return err != nil && strings.Contains(err.Error(), "address already in use")
}

// lowLimits are limits that need no right to raise them.
func lowLimits() []*container.Ulimit {
	files, processes := hardLimits()
	return []*container.Ulimit{
		{Name: "nofile", Soft: files, Hard: files},
		{Name: "nproc", Soft: processes, Hard: processes},
	}
}
