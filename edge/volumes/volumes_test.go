package volumes_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/drivers"
	"skerry/drivers/rawexec"
	"skerry/drivers/sim"
	"skerry/edge/runner"
	"skerry/edge/volumes"
	"skerry/fleet"
)

// mustPreparation returns an attempt of a task, with read_only, per_alloc and propagation_mode as asked, that mounts the volume "data", or that of its own index, at /srv.
func mustPreparation(tb testing.TB, request fleet.VolumeRequest, node map[string]fleet.HostVolume) *runner.Preparation {
	tb.Helper()
	request.Type = fleet.VolumeHost
	j := &fleet.Job{ID: "shop", TaskGroups: []fleet.TaskGroup{{
		Name: "web", Volumes: map[string]fleet.VolumeRequest{"v": request},
		Tasks: []fleet.Task{{Name: "serve", Driver: sim.Name, VolumeMounts: []fleet.VolumeMount{{Volume: "v", Destination: "srv", PropagationMode: "private"}}}},
	}}}
	return &runner.Preparation{
		Alloc: fleet.Alloc{ID: "a", Name: "shop.web[2]", JobID: "shop", Job: j, TaskGroup: "web"}, Task: &j.TaskGroups[0].Tasks[0],
		Node: fleet.Node{HostVolumes: node}, Config: &drivers.TaskConfig{},
	}
}

func newHook(tb testing.TB) *volumes.Hook {
	return mustHook(tb, volumes.Config{Log: slog.New(slog.DiscardHandler)})
}

func mustHook(tb testing.TB, cfg volumes.Config) *volumes.Hook {
	tb.Helper()
	cfg.Drivers = map[string]drivers.Driver{sim.Name: sim.New(sim.NewSimMachine()), rawexec.Name: mustRawExec(tb)}
	h, err := volumes.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

func TestMountsOfHostVolumes(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		request fleet.VolumeRequest
		volumes map[string]fleet.HostVolume
		want    drivers.Mount
	}{
		"plain":     {fleet.VolumeRequest{Source: "data"}, map[string]fleet.HostVolume{"data": {Path: dir}}, drivers.Mount{Source: dir, Target: "/srv", Propagation: "private"}},
		"read-only": {fleet.VolumeRequest{Source: "data", ReadOnly: true}, map[string]fleet.HostVolume{"data": {Path: dir}}, drivers.Mount{Source: dir, Target: "/srv", Propagation: "private", ReadOnly: true}},
		"read-only on the edge": {fleet.VolumeRequest{Source: "data", ReadOnly: true}, map[string]fleet.HostVolume{"data": {Path: dir, ReadOnly: true}},
			drivers.Mount{Source: dir, Target: "/srv", Propagation: "private", ReadOnly: true}},
		"of each allocation": {fleet.VolumeRequest{Source: "data", PerAlloc: true}, map[string]fleet.HostVolume{"data[2]": {Path: dir}}, drivers.Mount{Source: dir, Target: "/srv", Propagation: "private"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustPreparation(t, tc.request, tc.volumes)
			if err := newHook(t).Prepare(t.Context(), p); err != nil || len(p.Config.Mounts) != 1 || p.Config.Mounts[0] != tc.want {
				t.Errorf("%+v, %v, want %+v", p.Config.Mounts, err, tc.want)
			}
		})
	}
}

// TestFolderOfAVolumeIsMissing: the start fails in a way that the restart policy repeats, and works again once
// the folder is there.
func TestFolderOfAVolumeIsMissing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := mustPreparation(t, fleet.VolumeRequest{Source: "data"}, map[string]fleet.HostVolume{"data": {Path: dir}})
	err := newHook(t).Prepare(t.Context(), p)
	if err == nil || !drivers.IsRecoverable(err) || !strings.Contains(err.Error(), dir) || len(p.Config.Mounts) != 0 {
		t.Errorf("%v, mounts %+v", err, p.Config.Mounts)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newHook(t).Prepare(t.Context(), p); err == nil || !drivers.IsRecoverable(err) {
		t.Errorf("a file: %v", err)
	}
	if err := errors.Join(os.Remove(dir), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := newHook(t).Prepare(t.Context(), p); err != nil || len(p.Config.Mounts) != 1 {
		t.Errorf("%v, mounts %+v", err, p.Config.Mounts)
	}
}

func TestVolumesThatCannotBeMounted(t *testing.T) {
	dir := t.TempDir()
	node := map[string]fleet.HostVolume{"data": {Path: dir, ReadOnly: true}}
	unknown := mustPreparation(t, fleet.VolumeRequest{Source: "none"}, node)
	if err := newHook(t).Prepare(t.Context(), unknown); !drivers.IsRecoverable(err) || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("an unknown volume: %v", err)
	}
	if err := newHook(t).Prepare(t.Context(), mustPreparation(t, fleet.VolumeRequest{Source: "data"}, node)); err == nil || drivers.IsRecoverable(err) {
		t.Errorf("writing to a read-only volume: %v", err)
	}
	raw := mustPreparation(t, fleet.VolumeRequest{Source: "data", ReadOnly: true}, node)
	raw.Task.Driver = rawexec.Name
	if err := newHook(t).Prepare(t.Context(), raw); err == nil || !strings.Contains(err.Error(), `"raw_exec" does not support host volumes`) {
		t.Errorf("a driver without mounts: %v", err)
	}
}

// mustRawExec returns the driver raw_exec, which has the edge's own files and network.
func mustRawExec(tb testing.TB) drivers.Driver {
	tb.Helper()
	d, err := rawexec.New(rawexec.Config{BootID: "boot", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	return d
}
