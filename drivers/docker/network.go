package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"skerry/drivers"
	"skerry/fleet"
)

var (
	_ drivers.NetworkCreator = (*Driver)(nil)
	_ drivers.Addresser      = (*Driver)(nil)
)

const (
	// labelRole marks the containers that hold the network namespace of an allocation.
	labelRole   = "io.skerry.role"
	roleNetwork = "network"
	// namespaceMode is Podman's network mode of a namespace that has a path.
	namespaceMode = "ns:"
	// pauseImage is the image of these containers. The driver makes it.
	pauseImage = "localhost/skerry-pause:1"
)

// groupNetwork returns the daemon's network mode for the network of a task's group. As in Nomad, mode host means the
// daemon's default network, unless the task asks for network_mode = "host".
func (d *Driver) groupNetwork(ctx context.Context, cfg drivers.TaskConfig) (container.NetworkMode, error) {
	switch cfg.Network.Mode {
	case "", fleet.NetworkHost:
		return "default", nil
	case fleet.NetworkNone:
		return "none", nil
	}
	name, err := d.networkContainerName(cfg.AllocID)
	if err != nil {
		return "", err
	}
	c, err := d.inspectContainer(ctx, name, requestTimeout)
	switch {
	case err != nil:
		return "", err
	case c != nil && c.State.Running:
		return container.NetworkMode("container:" + c.ID), nil
	case d.quirks.podman && cfg.Network.Namespace != "":
		return container.NetworkMode(namespaceMode + cfg.Network.Namespace), nil
	}
	return "", drivers.Recoverable(fleet.Errorf(fleet.CodeUnavailable, "the network of allocation %s does not exist", fleet.Short(cfg.AllocID)))
}

// TaskAddress returns the address of a task's container in the daemon's network.
func (d *Driver) TaskAddress(ctx context.Context, cfg drivers.TaskConfig) (string, error) {
	c, err := d.findContainer(ctx, cfg)
	if err != nil {
		return "", fmt.Errorf("read address of task %s: %w", cfg.ID, err)
	}
	if c == nil || c.NetworkSettings == nil {
		return "", nil
	}
	return addressIn(c.NetworkSettings.Networks), nil
}

// addressIn returns the address of a container in its networks; of several, in the first one by name that has one.
func addressIn(networks map[string]*network.EndpointSettings) string {
	for _, name := range slices.Sorted(maps.Keys(networks)) {
		if n := networks[name]; n != nil && n.IPAddress.IsValid() {
			return n.IPAddress.String()
		}
	}
	return ""
}

// CreateNetwork makes the network namespace of an allocation, held by a container that does nothing, because
// containers can only join the namespace of another one. It is idempotent, also after a reboot.
func (d *Driver) CreateNetwork(ctx context.Context, alloc fleet.AllocID, hostname string) (string, error) {
	path, err := d.createNetwork(ctx, alloc, hostname)
	if err != nil {
		return "", fmt.Errorf("make network namespace of allocation %s: %w", fleet.Short(alloc), err)
	}
	return path, nil
}

func (d *Driver) createNetwork(ctx context.Context, alloc fleet.AllocID, hostname string) (string, error) {
	if err := d.ensureConnected(ctx); err != nil {
		return "", err
	}
	name, err := d.networkContainerName(alloc)
	if err != nil {
		return "", err
	}
	found, err := d.inspectContainer(ctx, name, requestTimeout)
	if err != nil {
		return "", err
	}
	if found != nil && found.State.Running {
		return namespaceOf(found)
	}
	if found != nil { // the machine or the daemon was restarted
		if err := d.removeContainer(ctx, found.ID); err != nil {
			return "", err
		}
	}
	if err := d.ensurePauseImage(ctx); err != nil {
		return "", err
	}
	create, err := d.networkContainer(alloc, name, hostname)
	if err != nil {
		return "", err
	}
	id, err := d.startNetworkContainer(ctx, create)
	if d.quirks.podman && isLimitRefused(err) && create.HostConfig.Ulimits == nil {
		d.noteLowLimits()
		create.HostConfig.Ulimits = lowLimits()
		id, err = d.startNetworkContainer(ctx, create)
	}
	if err != nil {
		return "", err
	}
	if found, err = d.inspectContainer(ctx, id, requestTimeout); err != nil {
		return "", err
	}
	if found == nil || !found.State.Running {
		return "", drivers.Recoverable(errors.New("the container that holds it has ended"))
	}
	return namespaceOf(found)
}

// networkContainer returns the container that holds an allocation's network namespace.
func (d *Driver) networkContainer(alloc fleet.AllocID, name, hostname string) (client.ContainerCreateOptions, error) {
	labels, err := d.labelsOf(nil, drivers.TaskConfig{AllocID: alloc, ID: string(alloc)}, "")
	if err != nil {
		return client.ContainerCreateOptions{}, err
	}
	labels[labelRole] = roleNetwork
	host := &container.HostConfig{
		NetworkMode: "none", RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig: container.LogConfig{Type: "none"}, ReadonlyRootfs: true, CapDrop: []string{"ALL"},
	}
	if d.needsLowLimits() {
		host.Ulimits = lowLimits()
	}
	return client.ContainerCreateOptions{
		Name:       name,
		Config:     &container.Config{Image: pauseImage, Hostname: hostname, Labels: labels, Entrypoint: []string{"/pause"}},
		HostConfig: host,
	}, nil
}

// startNetworkContainer creates and starts a container that holds a network namespace, and returns its id.
func (d *Driver) startNetworkContainer(ctx context.Context, create client.ContainerCreateOptions) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	made, err := d.client.ContainerCreate(ctx, create)
	if err != nil {
		return "", d.daemonError("create container", err)
	}
	if _, err := d.client.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		return "", errors.Join(d.daemonError("start container", err), d.removeFailedContainer(ctx, made.ID))
	}
	return made.ID, nil
}

// DestroyNetwork removes the network namespace of an allocation. A missing one is no error.
func (d *Driver) DestroyNetwork(ctx context.Context, alloc fleet.AllocID) error {
	name, err := d.networkContainerName(alloc)
	if err == nil {
		err = d.ensureConnected(ctx)
	}
	if err == nil {
		err = d.removeContainer(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("remove network namespace of allocation %s: %w", fleet.Short(alloc), err)
	}
	return nil
}

// networkContainerName returns the name of the container that holds an allocation's network namespace. The name
// differs in a copy of the data directory.
func (d *Driver) networkContainerName(alloc fleet.AllocID) (string, error) {
	dir := ""
	if d.cfg.DataDir != "" {
		var err error
		if dir, err = identity(d.cfg.DataDir); err != nil {
			return "", drivers.Recoverable(err)
		}
	}
	return "network-" + string(alloc) + "-" + shortHash(dir), nil
}

// namespaceOf returns the path of a running container's network namespace.
func namespaceOf(c *container.InspectResponse) (string, error) {
	if c.NetworkSettings != nil && c.NetworkSettings.SandboxKey != "" {
		if _, err := os.Stat(c.NetworkSettings.SandboxKey); err == nil {
			return c.NetworkSettings.SandboxKey, nil
		}
	}
	path := fmt.Sprintf("/proc/%d/ns/net", c.State.Pid)
	if _, err := os.Stat(path); err != nil {
		return "", drivers.Recoverable(fmt.Errorf("find network namespace of container %s: %w", fleet.Short(c.ID), err))
	}
	return path, nil
}

// ensurePauseImage makes the pauseImage, which holds one program of a few hundred bytes.
func (d *Driver) ensurePauseImage(ctx context.Context) error {
	if present, err := d.hasImage(ctx, pauseImage); err != nil || present {
		return err
	}
	program, err := pauseProgram(runtime.GOARCH)
	if err != nil {
		return err
	}
	var image bytes.Buffer
	w := tar.NewWriter(&image)
	err = w.WriteHeader(&tar.Header{Name: "pause", Mode: 0o755, Size: int64(len(program))})
	if err == nil {
		_, err = w.Write(program)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("make image %s: %w", pauseImage, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	// The tag is part of the name, because Podman ignores the parameter for the tag.
	answer, err := d.client.ImageImport(ctx, client.ImageImportSource{Source: &image, SourceName: "-"}, pauseImage, client.ImageImportOptions{})
	if errdefs.IsConflict(err) {
		return nil // another goroutine has just made it
	}
	if err != nil {
		return d.daemonError("make image "+pauseImage, err)
	}
	defer answer.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(answer, maxAnswer)); err != nil {
		return d.daemonError("make image "+pauseImage, err)
	}
	return nil
}
