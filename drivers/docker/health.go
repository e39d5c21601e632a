package docker

import (
	"context"
	"fmt"
	"strings"

	"github.com/moby/moby/api/types/container"

	"skerry/drivers"
)

var _ drivers.HealthReporter = (*Driver)(nil)

// maxHealthOutput bounds the output of a health check in a message.
const maxHealthOutput = 500

// TaskHealth returns the result of the image's health check. Podman runs such checks by systemd timers.
func (d *Driver) TaskHealth(ctx context.Context, cfg drivers.TaskConfig) (drivers.TaskHealth, error) {
	c, err := d.findContainer(ctx, cfg)
	if err != nil {
		return drivers.TaskHealth{}, fmt.Errorf("read health of task %s: %w", cfg.ID, err)
	}
	if c == nil || c.State.Health == nil {
		return drivers.TaskHealth{}, nil
	}
	return healthOf(c.State.Health), nil
}

// healthOf converts the daemon's health status.
func healthOf(h *container.Health) drivers.TaskHealth {
	switch h.Status {
	case container.Healthy:
		return drivers.TaskHealth{Status: drivers.HealthGood}
	case container.Starting:
		return drivers.TaskHealth{Status: drivers.HealthStarting}
	case container.Unhealthy:
		bad := drivers.TaskHealth{Status: drivers.HealthBad}
		if n := len(h.Log); n > 0 && h.Log[n-1] != nil {
			said := strings.TrimSpace(strings.ToValidUTF8(h.Log[n-1].Output, "?"))
			bad.Output = fmt.Sprintf("%.*s", maxHealthOutput, said)
		}
		return bad
	}
	return drivers.TaskHealth{} // no check
}
