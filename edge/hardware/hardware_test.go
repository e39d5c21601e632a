package hardware_test

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/devices"
	"skerry/drivers"
	"skerry/edge/hardware"
	"skerry/edge/runner"
	"skerry/fleet"
)

// fakeFinder has devices that a test plugs in and out.
type fakeFinder struct {
	kind string
	mu   sync.Mutex
	ids  []string
	err  error
}

func (f *fakeFinder) plug(ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids = ids
}

func (f *fakeFinder) found() []devices.Found {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []devices.Found
	for _, id := range f.ids {
		all = append(all, devices.Found{
			Device: fleet.Device{Kind: f.kind, ID: id},
			Nodes:  []fleet.DeviceNode{{HostPath: "/dev/" + id, TaskPath: "/dev/" + id, Permissions: "rwm"}},
		})
	}
	return all
}

func (f *fakeFinder) Kind() string { return f.kind }

func (f *fakeFinder) Find(context.Context) ([]fleet.Device, error) {
	return devices.SortFound(f.found()), f.err
}

func (f *fakeFinder) Reserve(_ context.Context, ids []string) (devices.Reservation, error) {
	r, err := devices.ReserveFound(f.kind, f.found(), ids, nil)
	for _, id := range ids {
		if f.kind == "gpu" {
			r.CDI = append(r.CDI, "acme.com/gpu="+id)
		}
	}
	return r, err
}

// newPreparation is an attempt of a task with two GPUs of one model, one of another, and a camera.
func newPreparation() *runner.Preparation {
	task := fleet.Task{Name: "main", Env: map[string]string{"GPU_VISIBLE_DEVICES": "all"}}
	return &runner.Preparation{
		Alloc: fleet.Alloc{ID: "a1", Allotment: &fleet.AssignedResources{Tasks: map[string]fleet.AssignedTaskResources{
			"main": {Devices: []fleet.AssignedDevice{
				{Vendor: "acme", Type: "gpu", Name: "X1", DeviceIDs: []string{"g1", "g2"}},
				{Vendor: "acme", Type: "gpu", Name: "X2", DeviceIDs: []string{"g3"}},
				{Vendor: "video", Type: "video", Name: "cam", DeviceIDs: []string{"c1"}},
			}},
			"other": {Devices: []fleet.AssignedDevice{{Vendor: "video", Type: "video", Name: "cam", DeviceIDs: []string{"c2"}}}},
		}}},
		Task: &task, Config: &drivers.TaskConfig{Env: map[string]string{"GPU_VISIBLE_DEVICES": "all", "A": "b"}},
	}
}

func mustHook(tb testing.TB, finders ...devices.Finder) *hardware.Hook {
	tb.Helper()
	h, err := hardware.New(hardware.Config{Finders: finders, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

func TestPrepare(t *testing.T) {
	gpus, cameras := &fakeFinder{kind: "gpu", ids: []string{"g1", "g2", "g3", "g4"}}, &fakeFinder{kind: "video", ids: []string{"c1", "c2"}}
	h, p := mustHook(t, cameras, gpus), newPreparation()
	if err := h.Prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for _, n := range p.Config.Devices {
		nodes = append(nodes, n.HostPath+" "+n.TaskPath+" "+n.Permissions)
	}
	want := []string{"/dev/g1 /dev/g1 rwm", "/dev/g2 /dev/g2 rwm", "/dev/g3 /dev/g3 rwm", "/dev/c1 /dev/c1 rwm"}
	if !slices.Equal(nodes, want) {
		t.Errorf("nodes %q, want %q", nodes, want)
	}
	if want := []string{"acme.com/gpu=g1", "acme.com/gpu=g2", "acme.com/gpu=g3"}; !slices.Equal(p.Config.CDI, want) {
		t.Errorf("names %q, want %q", p.Config.CDI, want)
	}
	wantEnv := map[string]string{"GPU_VISIBLE_DEVICES": "g1,g2,g3", "VIDEO_VISIBLE_DEVICES": "c1", "A": "b"}
	if !reflect.DeepEqual(p.Config.Env, wantEnv) {
		t.Errorf("variables %v, want %v", p.Config.Env, wantEnv)
	}
	p.Alloc.Allotment, p.Config = nil, &drivers.TaskConfig{}
	if err := h.Prepare(t.Context(), p); err != nil || len(p.Config.Devices) > 0 {
		t.Errorf("without devices: %v, %+v", err, p.Config)
	}
	if err := h.Release(t.Context(), p.Alloc); err != nil {
		t.Error(err)
	}
}

// TestUnpluggedAtStart names the device that is gone, and another try may succeed.
func TestUnpluggedAtStart(t *testing.T) {
	gpus := &fakeFinder{kind: "gpu", ids: []string{"g1", "g3"}, err: errors.New("g2 needs a reset")}
	cameras := &fakeFinder{kind: "video", ids: []string{"c1"}}
	err := mustHook(t, gpus, cameras).Prepare(t.Context(), newPreparation())
	if err == nil || !drivers.IsRecoverable(err) || fleet.CodeOf(err) != fleet.CodeNotFound ||
		!strings.Contains(err.Error(), "device acme/gpu/X1 (g2) is not there") || !strings.Contains(err.Error(), "g2 needs a reset") {
		t.Errorf("%v", err)
	}
}

// events is a runner.TaskControl that keeps events.
type events struct {
	runner.TaskControl
	list []string
}

func (e *events) Event(_ context.Context, kind, message string) error {
	e.list = append(e.list, kind+": "+message)
	return nil
}

// reports is a hardware.Reporter that keeps each report.
type reports struct{ list []string }

func (r *reports) ReportDevices(a fleet.Alloc, task, missing string) {
	r.list = append(r.list, string(a.ID)+" "+task+": "+missing)
}

func (r *reports) ForgetDevices(id fleet.AllocID, task string) {
	r.list = append(r.list, string(id)+" "+task+" is forgotten")
}

// TestUnpluggedWhileItRuns journals one event when a device goes, one when it comes back, and none for a loose
// contact.
func TestUnpluggedWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpus, cameras := &fakeFinder{kind: "gpu", ids: []string{"g1", "g2", "g3"}}, &fakeFinder{kind: "video", ids: []string{"c1"}}
		ctx, cancel := context.WithCancel(t.Context())
		told, reported := &events{}, &reports{}
		h, err := hardware.New(hardware.Config{Finders: []devices.Finder{gpus, cameras}, Reporter: reported, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { h.Watch(ctx, newPreparation(), told) })
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		pass(time.Minute + time.Second)
		cameras.plug()
		pass(10 * time.Second) // one look
		cameras.plug("c1")
		pass(time.Minute)
		if len(told.list) != 0 {
			t.Errorf("a loose contact: %q", told.list)
		}
		cameras.plug()
		pass(10 * time.Minute)
		cameras.plug("c1")
		pass(10 * time.Minute)
		want := []string{
			"Device Unplugged: The task runs without a device that it was given: device video/video/cam (c1) " +
				"(plug it in again, or replace it; when it is found, skerry alloc restart gives the task its new device nodes)",
			"Device Found: All devices of the task are there again; a restart of the task gives it their new device nodes",
		}
		if !slices.Equal(told.list, want) {
			t.Errorf("events %q, want %q", told.list, want)
		}
		cancel()
		wg.Wait()
		want = []string{"a1 main: device video/video/cam (c1)", "a1 main: ", "a1 main is forgotten"}
		if !slices.Equal(reported.list, want) {
			t.Errorf("reported %q, want %q", reported.list, want)
		}
	})
}
