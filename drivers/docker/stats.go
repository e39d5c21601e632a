package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"skerry/drivers"
	"skerry/fleet"
)

var _ drivers.Meter = (*task)(nil)

// Consumed returns the container's usage since its start, as that of one process, its main one.
func (t *task) Consumed(ctx context.Context) ([]fleet.Consumed, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c, err := t.driver.inspectContainer(ctx, t.container, requestTimeout)
	if err != nil {
		return nil, fmt.Errorf("measure task %s: %w", t.cfg.ID, err)
	}
	if c == nil || !c.State.Running {
		return nil, fleet.Errorf(fleet.CodeConflict, "measure task %s: it has ended", t.cfg.ID)
	}
	sample, err := t.driver.client.ContainerStats(ctx, t.container, client.ContainerStatsOptions{})
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) || isEndingUnderInspect(err) {
		return nil, fleet.Errorf(fleet.CodeConflict, "measure task %s: it has ended", t.cfg.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("measure task %s: %w", t.cfg.ID, t.driver.daemonError("read statistics", err))
	}
	defer sample.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(io.LimitReader(sample.Body, maxAnswer)).Decode(&s); err != nil {
		return nil, fmt.Errorf("measure task %s: read statistics: %w", t.cfg.ID, err)
	}
	return []fleet.Consumed{consumedOf(c.State, &s)}, nil
}

// consumedOf returns a container's usage as that of its main process. Kernels do not split user and kernel time
// exactly, so the rest of the total counts as user time.
func consumedOf(state *container.State, s *container.StatsResponse) fleet.Consumed {
	used := fleet.Consumed{PID: state.Pid, RSS: s.MemoryStats.Usage}
	if started, err := time.Parse(time.RFC3339Nano, state.StartedAt); err == nil {
		used.Start = uint64(started.UnixNano())
	}
	cpu := s.CPUStats.CPUUsage
	kernel := min(cpu.UsageInKernelmode, cpu.TotalUsage)
	used.System, used.User = time.Duration(kernel), time.Duration(cpu.TotalUsage-kernel)
	for _, key := range []string{"inactive_file", "total_inactive_file"} { // the kernel can reclaim the page cache
		if cache, ok := s.MemoryStats.Stats[key]; ok && cache < used.RSS {
			used.RSS -= cache
			break
		}
	}
	used.Swap = s.MemoryStats.Stats["swap"]
	return used
}
