package dockertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sync/errgroup"

	"skerry/drivers/docker"
)

// TimeStarts creates and starts n containers of an image at once, as a shell script without a network, removes them, and
// returns the time until each had started. It is the least time in which this daemon starts the tasks of an agent.
func (d *Daemon) TimeStarts(ctx context.Context, image, script string, n int) (took []time.Duration, err error) {
	took, ids := make([]time.Duration, n), make([]string, n)
	starts, startCtx := errgroup.WithContext(ctx)
	var limits []*container.Ulimit
	if d.Name == docker.Podman { // its default limits may be above those of this machine
		limits = []*container.Ulimit{{Name: "nofile", Soft: 1024, Hard: 1024}, {Name: "nproc", Soft: 1024, Hard: 1024}}
	}
	began := time.Now()
	for i := range n {
		starts.Go(func() error {
			made, err := d.client.ContainerCreate(startCtx, client.ContainerCreateOptions{
				Config:     &container.Config{Image: image, Cmd: []string{"sh", "-c", script}},
				HostConfig: &container.HostConfig{NetworkMode: "none", Resources: container.Resources{Ulimits: limits}},
			})
			if err == nil {
				ids[i] = made.ID
				_, err = d.client.ContainerStart(startCtx, made.ID, client.ContainerStartOptions{})
			}
			took[i] = time.Since(began)
			return err
		})
	}
	errs := []error{starts.Wait()}
	for _, id := range ids {
		if id != "" {
			_, err := d.client.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("time the starts of containers of %s: %w", d.Name, err)
	}
	return took, nil
}
