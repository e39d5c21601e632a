package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"skerry/drivers"
	"skerry/fleet"
)

const (
	// pingTimeout bounds a ping of the daemon.
	pingTimeout = 3 * time.Second
	// firstDetailsTimeout and detailsTimeout bound reading the daemon's attributes. Podman takes more than 10 s on a
	// loaded machine, and the first reading must not delay the start of the edge.
	firstDetailsTimeout = 2 * time.Second
	detailsTimeout      = time.Minute
	// requestTimeout bounds a request that the daemon answers at once.
	requestTimeout = 30 * time.Second
	// startTimeout bounds the creation and the start of a container.
	startTimeout = 5 * time.Minute
	// turnTimeout is after how long a start that goes on lets the next one begin.
	turnTimeout = 10 * time.Second
	// endedTimeout bounds an inspect for Ended, whose caller must not wait.
	endedTimeout = 2 * time.Second
)

// daemonDetails are what a daemon says of itself.
type daemonDetails struct {
	Version, OSType, CgroupVersion string
	Root                           string // folder of its images on this machine
}

// pingDaemon pings the daemon and negotiates the API version.
func (d *Driver) pingDaemon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if _, err := d.client.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true, ForceNegotiate: true}); err != nil {
		return d.daemonError("ping", err)
	}
	d.connected.Store(true)
	return nil
}

// ensureConnected negotiates the API version before the first request.
func (d *Driver) ensureConnected(ctx context.Context) error {
	if d.connected.Load() {
		return nil
	}
	return d.pingDaemon(ctx)
}

// errSilent is the error of a daemon that answers no ping.
var errSilent = errors.New("it does not answer")

// readAttributes returns the daemon's attributes. It asks the daemon, if that answers, until its program is another one;
// before the first answer it returns the driver's own attributes only.
func (d *Driver) readAttributes(ctx context.Context, answers bool) map[string]string {
	key := "driver." + d.cfg.Name
	text, err := d.cfg.Programs.Ask(d.daemonProgram(), "info at "+d.cfg.Socket, func() (string, error) {
		if !answers {
			return "", errSilent
		}
		return d.askDetails(ctx)
	})
	if found := new(daemonDetails); err == nil && json.Unmarshal([]byte(text), found) == nil {
		d.details.Store(found)
		d.detailsTried.Store(true) // the next time it may take long
	}
	found := d.details.Load()
	switch {
	case found == nil && answers:
		return map[string]string{key: "1"}
	case found == nil:
		return nil
	}
	all := map[string]string{
		key: "1", key + ".version": found.Version, key + ".os_type": found.OSType, key + ".bridge_ip": "", key + ".cgroup_version": found.CgroupVersion,
	}
	for k, v := range all {
		if v == "" {
			delete(all, k)
		}
	}
	if d.cfg.AllowPrivileged {
		all[key+".privileged.enabled"] = "1"
	}
	if d.cfg.AllowVolumes {
		all[key+".volumes.enabled"] = "1"
	}
	return all
}

// daemonProgram returns the daemon's program, or its socket if that is not on this machine.
func (d *Driver) daemonProgram() string {
	name := "dockerd"
	if d.quirks.podman {
		name = Podman
	}
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	return d.cfg.Socket
}

// askDetails asks the daemon for its details. Podman runs the package manager for them, which takes a second.
func (d *Driver) askDetails(ctx context.Context) (string, error) {
	timeout := detailsTimeout
	if !d.detailsTried.Swap(true) {
		timeout = firstDetailsTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	info, err := d.client.Info(ctx, client.InfoOptions{})
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(daemonDetails{info.Info.ServerVersion, info.Info.OSType, info.Info.CgroupVersion, info.Info.DockerRootDir})
	return string(b), err
}

// daemonError explains the error of a request. The error is recoverable unless the daemon refused the request itself.
func (d *Driver) daemonError(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		d.connected.Store(false)
		return drivers.Recoverable(fleet.Errorf(fleet.CodeUnavailable, "%s: the %s daemon at %s does not answer: %w", doing, d.cfg.Name, d.cfg.Socket, err).
			WithHint("it hangs or is overloaded; check it with: systemctl status %s", d.cfg.Name))
	case client.IsErrConnectionFailed(err):
		d.connected.Store(false)
		return drivers.Recoverable(fleet.Errorf(fleet.CodeUnavailable, "%s: the %s daemon at %s cannot be reached: %w", doing, d.cfg.Name, d.cfg.Socket, err).
			WithHint("check it with: systemctl status %s", d.cfg.Name))
	case errdefs.IsInvalidArgument(err), errdefs.IsNotFound(err), errdefs.IsNotImplemented(err):
		return fleet.Errorf(fleet.CodeInvalid, "%s: %s", doing, daemonMessage(err))
	}
	return drivers.Recoverable(fmt.Errorf("%s: %w", doing, err))
}

// daemonMessage returns the daemon's own error text.
func daemonMessage(err error) string {
	return strings.TrimPrefix(strings.TrimSpace(err.Error()), "Error response from daemon: ")
}
