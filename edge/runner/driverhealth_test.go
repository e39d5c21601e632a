package runner_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/drivers"
	"skerry/edge/runner"
	"skerry/fleet"
)

// healthDriver reports the health that a test sets.
type healthDriver struct {
	drivers.Driver
	mu     sync.Mutex
	health drivers.TaskHealth
	err    error
}

func (d *healthDriver) TaskHealth(context.Context, drivers.TaskConfig) (drivers.TaskHealth, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.health, d.err
}

func (d *healthDriver) setHealth(status, output string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health, d.err = drivers.TaskHealth{Status: status, Output: output}, err
}

// eventLog is a TaskControl that keeps events.
type eventLog struct {
	runner.TaskControl
	mu     sync.Mutex
	events []string
}

func (l *eventLog) Event(_ context.Context, kind, message string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, kind+": "+message)
	return nil
}

func (l *eventLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// Each change of a task's health is one event, and a driver that does not answer changes nothing.
func TestDriverHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, control := &healthDriver{}, &eventLog{}
		d.setHealth(drivers.HealthStarting, "", nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p := &runner.Preparation{Task: &fleet.Task{Name: "web", Driver: "docker"}, Config: &drivers.TaskConfig{}}
			runner.DriverHealth{Drivers: map[string]drivers.Driver{"docker": d}}.Watch(ctx, p, control)
		}()
		const fails, passes = "Driver Health: The driver's health check fails: 503", "Driver Health: The driver's health check passes again"
		for _, step := range []struct {
			status, output string
			err            error
			want           []string
		}{
			{drivers.HealthGood, "", nil, nil},
			{drivers.HealthBad, "503", nil, []string{fails}},
			{drivers.HealthBad, "503", nil, []string{fails}},
			{drivers.HealthGood, "", errors.New("no answer"), []string{fails}},
			{drivers.HealthGood, "", nil, []string{fails, passes}},
			{drivers.HealthUnknown, "", nil, []string{fails, passes}},
		} {
			d.setHealth(step.status, step.output, step.err)
			time.Sleep(11 * time.Second)
			synctest.Wait()
			if got := control.all(); !slices.Equal(got, step.want) {
				t.Errorf("events %q, want %q", got, step.want)
			}
		}
		<-done // it has no check any more
		cancel()
	})
}

// addressDriver has an address for its tasks from the third question on.
type addressDriver struct {
	drivers.Driver
	asked int
}

func (d *addressDriver) TaskAddress(context.Context, drivers.TaskConfig) (string, error) {
	switch d.asked++; d.asked {
	case 1:
		return "", errors.New("the daemon does not answer")
	case 2:
		return "", nil
	}
	return "172.17.0.2", nil
}

// Address keeps the address as an event.
func (l *eventLog) Address(ctx context.Context, address string) error {
	return l.Event(ctx, "address", address)
}

// The address of a task in its driver's network is journaled once, if one of its services asks for it.
func TestDriverAddress(t *testing.T) {
	for _, tc := range []struct {
		services []fleet.Service
		want     []string
	}{
		{nil, nil}, {[]fleet.Service{{AddressMode: fleet.AddressAuto}}, nil},
		{[]fleet.Service{{AddressMode: fleet.AddressDriver}}, []string{"address: 172.17.0.2"}},
		{[]fleet.Service{{Checks: []fleet.ServiceCheck{{AddressMode: fleet.AddressDriver}}}}, []string{"address: 172.17.0.2"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, control := &addressDriver{}, &eventLog{}
			p := &runner.Preparation{Task: &fleet.Task{Name: "web", Driver: "docker", Services: tc.services}, Config: &drivers.TaskConfig{}}
			runner.DriverAddress{Drivers: map[string]drivers.Driver{"docker": d}}.Watch(t.Context(), p, control)
			if got := control.all(); !slices.Equal(got, tc.want) {
				t.Errorf("%+v: %q, want %q", tc.services, got, tc.want)
			}
		})
	}
}
