package docker

import (
	"context"
	"errors"
	"fmt"
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
	// endedTimeout bounds an inspect for Ended, whose caller must not wait.
	endedTimeout = 2 * time.Second
)

// daemonAttributes are the attributes of a daemon.
type daemonAttributes struct {
	attributes map[string]string
	root       string // folder of its images on this machine
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

// readAttributes returns the daemon's attributes. It reads them once, when the daemon answers; before that it returns
// the driver's own attributes only.
func (d *Driver) readAttributes(ctx context.Context, answers bool) map[string]string {
	key := "driver." + d.cfg.Name
	if known := d.details.Load(); known != nil {
		return known.attributes
	}
	if !answers {
		return nil
	}
	timeout := detailsTimeout
	if !d.detailsTried.Swap(true) {
		timeout = firstDetailsTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	info, err := d.client.Info(ctx, client.InfoOptions{})
	if err != nil {
		return map[string]string{key: "1"}
	}
	all := map[string]string{
		key: "1", key + ".version": info.Info.ServerVersion, key + ".os_type": info.Info.OSType, key + ".bridge_ip": "",
		key + ".cgroup_version": info.Info.CgroupVersion,
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
	d.details.Store(&daemonAttributes{all, info.Info.DockerRootDir})
	return all
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
		return drivers.Recoverable(fleet.Errorf(fleet.CodeUnavailable, "%s: the %s daemon at %s does not answer: %w", doing, d.cfg.Name, d.cfg.Socket, err))
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
