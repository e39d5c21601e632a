package edge_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"skerry/edge"
	"skerry/fleet"
)

// healthOfDriver changes the health of a driver of the machine.
func (m *movingDescriber) healthOfDriver(name string, info fleet.DriverInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.node.Drivers, m.node.DescriptionHash = map[string]fleet.DriverInfo{name: info}, info.HealthDescription
	close(m.changed)
	m.changed = make(chan struct{})
}

// A running task has an event when its driver is not healthy any more, and one when it is again, also if the agent was
// restarted in between. An event is not repeated.
func TestDriverHealthOfRunningTasks(t *testing.T) {
	const why = "ping: the docker daemon does not answer (check it with: systemctl status docker)"
	dead, healthy := fleet.DriverInfo{Detected: true, HealthDescription: why}, fleet.DriverInfo{Detected: true, Healthy: true}
	dir := mustEnrolled(t)
	mustCheckedService(t, dir)
	machine := &movingDescriber{changed: make(chan struct{})}
	cfg := config(dir, nil, &logBuffer{})
	cfg.Describe = func(n fleet.Node) (edge.Describer, error) {
		machine.node = n
		return machine, nil
	}
	events := func(l *runningEdge) (all []string) {
		rows, err := l.Edge.Rows(context.Background(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if row.Event != nil && row.Event.Type == fleet.TaskHealth {
				all = append(all, row.Task+": "+row.Event.DisplayMessage)
			}
		}
		return all
	}
	await := func(l *runningEdge, want ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for strings.Join(events(l), "\n") != strings.Join(want, "\n") {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("events %q, want %q", events(l), want)
			}
		}
	}
	const fails, back = "t: The driver docker is not healthy: " + why, "t: The driver docker is healthy again"
	l := mustStart(t, cfg)
	mustRecover(t, l)
	machine.healthOfDriver("docker", dead)
	await(l, fails)
	machine.healthOfDriver("docker", healthy) // within the pause: not recorded
	machine.healthOfDriver("docker", dead)
	if err := l.stop(); err != nil {
		t.Fatal(err)
	}
	cfg.Describe = func(n fleet.Node) (edge.Describer, error) {
		n.Drivers = map[string]fleet.DriverInfo{"docker": dead}
		machine.node = n
		return machine, nil
	}
	l = mustStart(t, cfg)
	await(l, fails)
	machine.healthOfDriver("docker", healthy)
	await(l, fails, back)
	if err := l.stop(); err != nil {
		t.Fatal(err)
	}
}
