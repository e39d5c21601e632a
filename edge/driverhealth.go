package edge

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"skerry/fleet"
)

// driverHealthPause is the shortest time between two changes of the health of drivers that are recorded.
const driverHealthPause = time.Minute

// Keys of the details of an event about the health of a driver. The details say whether an event has been recorded,
// also to the next agent.
const (
	detailDriver  = "driver"
	detailHealthy = "healthy"
)

// recordDriverHealth records an event on each running task whose driver, for example the daemon of its container, is not
// healthy any more, or is healthy again. If there were such tasks, it returns a channel that receives when it may be
// called again.
func (e *Edge) recordDriverHealth(ctx context.Context) <-chan time.Time {
	all, err := e.allocs.Status(ctx)
	if err != nil {
		if ctx.Err() == nil {
			e.log.Warn("health of drivers not recorded", "error", err)
		}
		return nil
	}
	known := e.describer.Node().Drivers
	var rows []fleet.Transition
	for id, s := range all {
		g := s.Desired.Alloc.Group()
		if g == nil || s.State.BootID != e.boot {
			continue
		}
		for _, t := range g.Tasks {
			info, ok := known[t.Driver]
			state := s.State.TaskStates[t.Name]
			if !ok || state.State != fleet.TaskRunning || info.Healthy == isDriverHealthy(state.Events, t.Driver) {
				continue
			}
			event := e.newDriverEvent(t.Driver, info)
			rows = append(rows, fleet.Transition{Kind: fleet.TransitionTask, Alloc: id, Task: t.Name, Event: &event})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if err := e.journal.Record(ctx, rows...); err != nil && ctx.Err() == nil {
		e.log.Warn("health of drivers not recorded: trying again", "error", err)
	}
	return time.After(driverHealthPause)
}

// isDriverHealthy returns the health of a driver by the newest event about it since the task started.
func isDriverHealthy(events []fleet.TaskEvent, driver string) bool {
	for _, event := range slices.Backward(events) {
		switch {
		case event.Type == fleet.TaskStarted:
			return true
		case event.Type == fleet.TaskHealth && event.Details[detailDriver] == driver:
			return event.Details[detailHealthy] == strconv.FormatBool(true)
		}
	}
	return true
}

// newDriverEvent returns the event of a task whose driver has changed its health.
func (e *Edge) newDriverEvent(driver string, info fleet.DriverInfo) fleet.TaskEvent {
	message := fmt.Sprintf("The driver %s is healthy again", driver)
	if !info.Healthy {
		message = fmt.Sprintf("The driver %s is not healthy: %s", driver, info.HealthDescription)
	}
	return fleet.TaskEvent{
		Type: fleet.TaskHealth, Time: e.cfg.Now().UnixNano(), DisplayMessage: message,
		Details: map[string]string{detailDriver: driver, detailHealthy: strconv.FormatBool(info.Healthy)},
	}
}
