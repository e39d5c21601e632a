package docker

import (
	"context"
	"maps"
	"slices"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"skerry/drivers"
	"skerry/drivers/record"
	"skerry/fleet"
)

// Keys returns the keys of a config block of docker.
func Keys() []string { return slices.Clone(sortedKeys((&options{}).configKeys(&reader{}))) }

// PodmanKeys returns the keys of a config block of podman.
func PodmanKeys() []string {
	o, r := &options{}, &reader{}
	keys := o.configKeys(r)
	maps.Copy(keys, o.podmanKeys(r))
	return sortedKeys(keys)
}

// CreateOptions returns the container of a task as the daemon gets it, without its image.
func (d *Driver) CreateOptions(ctx context.Context, cfg drivers.TaskConfig) (client.ContainerCreateOptions, error) {
	o, err := parseOptions(d.cfg.Name, cfg.Config, false)
	if err != nil {
		return client.ContainerCreateOptions{}, err
	}
	return d.createOptions(ctx, &o, cfg, "name", "folder")
}

// ParseLogLine parses a line of a daemon's log.
func ParseLogLine(podman bool, line []byte) (int, []byte, bool) {
	format := jsonLog
	if podman {
		format = k8sLog
	}
	return parseLogLine(format, line)
}

// DecodeRecords decodes bytes as each of the records.
func DecodeRecords(b []byte) {
	_ = record.Decode(b, &exitRecord{})
	_ = record.Decode(b, &logPosition{})
	_ = record.Decode(b, &pulledRecord{})
}

// PodmanLimits returns the limits of the container of a Podman task.
func PodmanLimits(config map[string]any, r fleet.Resources) (container.HostConfig, error) {
	o, err := parseOptions(Podman, config, false)
	if err != nil {
		return container.HostConfig{}, err
	}
	host := o.host
	d := &Driver{cfg: Config{Name: Podman}}
	err = d.setResources(&host, &o, r)
	return host, err
}

// RequestDevices returns what a daemon is asked for by the names of devices.
func (d *Driver) RequestDevices(ctx context.Context, names ...string) ([]container.DeviceRequest, error) {
	var host container.HostConfig
	err := d.requestDevices(ctx, &host, names)
	return host.DeviceRequests, err
}

// PublishedPorts returns the ports of the machine that a task's container publishes, by port and protocol inside.
func PublishedPorts(cfg drivers.TaskConfig) (map[string]string, error) {
	o, err := parseOptions(Docker, cfg.Config, false)
	if err != nil {
		return nil, err
	}
	var config container.Config
	var host container.HostConfig
	if err := publishPorts(&config, &host, &o, cfg); err != nil {
		return nil, err
	}
	ports := map[string]string{}
	for at, bindings := range host.PortBindings {
		for _, b := range bindings {
			ports[at.String()] = b.HostPort
		}
	}
	return ports, nil
}

// CreateContainer creates a task's container from an image that the daemon has, and does not start it, as an agent that dies in between.
// Labels without are left out, which an earlier release did not write.
func (d *Driver) CreateContainer(ctx context.Context, cfg drivers.TaskConfig, without ...string) (string, error) {
	o, err := parseOptions(d.cfg.Name, cfg.Config, false)
	if err == nil {
		err = d.ensureConnected(ctx)
	}
	if err == nil {
		_, err = makeFolderID(cfg.StateDir)
	}
	if err != nil {
		return "", err
	}
	image, err := d.ensureImage(ctx, &o, cfg)
	if err != nil {
		return "", err
	}
	create, err := d.describeContainer(ctx, &o, cfg, image)
	if err != nil {
		return "", err
	}
	maps.DeleteFunc(create.Config.Labels, func(label, _ string) bool { return slices.Contains(without, label) })
	made, err := d.client.ContainerCreate(ctx, create)
	return made.ID, err
}

// AddressIn is addressIn.
var AddressIn = addressIn

// NoteLowLimits keeps that the daemon's default limits were refused.
func (d *Driver) NoteLowLimits() { d.noteLowLimits() }

// NeedsLowLimits reports whether that is known.
func (d *Driver) NeedsLowLimits() bool { return d.needsLowLimits() }

// TakeTurn waits until the daemon may start another container.
func (d *Driver) TakeTurn(ctx context.Context) (release func(), err error) { return d.takeTurn(ctx) }
