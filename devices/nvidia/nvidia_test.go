package nvidia_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/devices"
	"skerry/devices/devicetest"
	"skerry/devices/nvidia"
	"skerry/devices/sysfs"
	"skerry/fleet"
)

// mustConfig makes a machine whose nvidia-smi prints testdata/NAME.xml for -q -x, and testdata/list.txt for -L.
func mustConfig(tb testing.TB, name string) nvidia.Config {
	tb.Helper()
	data, err := filepath.Abs("testdata")
	if err != nil {
		tb.Fatal(err)
	}
	return mustProgram(tb, `if [ "$1" = -L ]; then cat '`+data+`/list.txt'; else cat '`+data+"/"+name+".xml'; fi")
}

// mustProgram makes a machine whose nvidia-smi is a shell script.
func mustProgram(tb testing.TB, script string) nvidia.Config {
	tb.Helper()
	program := filepath.Join(tb.TempDir(), "nvidia-smi")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		tb.Fatal(err)
	}
	return nvidia.Config{
		Program: program,
		Roots: sysfs.Roots{Dev: devicetest.MustTree(tb, map[string]string{
			"nvidia0": "", "nvidia1": "", "nvidiactl": "", "nvidia-uvm": "",
			"nvidia-caps/nvidia-cap21": "", "nvidia-caps/nvidia-cap22": "", "nvidia-caps/nvidia-cap30": "", "nvidia-caps/nvidia-cap31": "",
		})},
		Proc: devicetest.MustTree(tb, map[string]string{
			"driver/nvidia-caps/mig-minors": "config 1\nmonitor 2\ngpu1/gi1/access 21\ngpu1/gi1/ci0/access 22\ngpu1/gi2/access 30\ngpu1/gi2/ci0/access 31\n",
		}),
	}
}

func TestConformance(t *testing.T) {
	cfg := mustConfig(t, "gpus")
	devicetest.Run(t, func(testing.TB) devices.Finder { return nvidia.New(cfg) })
}

// TestOnThisMachine reads the devices of the machine that runs the test.
func TestOnThisMachine(t *testing.T) { devicetest.RunOnMachine(t, nvidia.New(nvidia.Config{})) }

func TestFind(t *testing.T) {
	found, err := nvidia.New(mustConfig(t, "gpus")).Find(t.Context())
	instance := func(id, profile, memory string) fleet.Device {
		return fleet.Device{
			Kind: "nvidia", Vendor: "nvidia", Type: "gpu", Name: "NVIDIA A100-PCIE-40GB MIG " + profile, ID: id, Attributes: map[string]string{
				"driver_version": "535.129.03", "memory": memory, "power": "250 W", "cores_clock": "1410 MHz", "memory_clock": "1215 MHz",
				"pci_bandwidth": "31504 MB/s", "display_state": "Enabled", "persistence_mode": "Disabled", "pci_bus_id": "00000000:81:00.0", "mig_profile": profile,
			},
		}
	}
	want := []fleet.Device{
		{Kind: "nvidia", Vendor: "nvidia", Type: "gpu", Name: "Tesla T4", ID: "GPU-0c2a1b1e-5f2b-4c3d-8e9f-0a1b2c3d4e5f", Attributes: map[string]string{
			"driver_version": "535.129.03", "memory": "15360 MiB", "bar1": "256 MiB", "power": "70 W", "cores_clock": "1590 MHz", "memory_clock": "5001 MHz",
			"pci_bandwidth": "15760 MB/s", "display_state": "Disabled", "persistence_mode": "Enabled", "pci_bus_id": "00000000:3B:00.0",
		}},
		instance("MIG-3d2c1b0a-0000-5555-aaaa-bbbbccccdddd", "1g.5gb", "4864 MiB"),
		instance("MIG-9f8e7d6c-1111-5555-aaaa-bbbbccccdddd", "3g.20gb", "19968 MiB"),
	}
	if err != nil || !reflect.DeepEqual(found, want) {
		t.Errorf("%+v, %v, want %+v", found, err, want)
	}
}

// TestReserve gives a task the nodes of its instance, and not those of others.
func TestReserve(t *testing.T) {
	cfg := mustConfig(t, "gpus")
	r, err := nvidia.New(cfg).Reserve(t.Context(), []string{"MIG-3d2c1b0a-0000-5555-aaaa-bbbbccccdddd"})
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, n := range r.Nodes {
		paths = append(paths, n.TaskPath)
	}
	want := "/dev/nvidia1 /dev/nvidia-caps/nvidia-cap21 /dev/nvidia-caps/nvidia-cap22 /dev/nvidiactl /dev/nvidia-uvm"
	if got := strings.Join(paths, " "); got != want {
		t.Errorf("nodes %s, want %s", got, want)
	}
	if want := map[string]string{"NVIDIA_VISIBLE_DEVICES": "MIG-3d2c1b0a-0000-5555-aaaa-bbbbccccdddd"}; !reflect.DeepEqual(r.Env, want) {
		t.Errorf("variables %v, want %v", r.Env, want)
	}
	if want := []string{"nvidia.com/gpu=MIG-3d2c1b0a-0000-5555-aaaa-bbbbccccdddd"}; !slices.Equal(r.CDI, want) {
		t.Errorf("names %v, want %v", r.CDI, want)
	}
	if err := os.Remove(filepath.Join(cfg.Roots.Dev, "nvidia0")); err != nil {
		t.Fatal(err)
	}
	_, err = nvidia.New(cfg).Reserve(t.Context(), []string{"GPU-0c2a1b1e-5f2b-4c3d-8e9f-0a1b2c3d4e5f"})
	if !errors.Is(err, devices.ErrUnplugged) {
		t.Errorf("without its node: %v", err)
	}
}

// TestBrokenGPU leaves out a GPU that needs a reset, and names it.
func TestBrokenGPU(t *testing.T) {
	found, err := nvidia.New(mustConfig(t, "broken")).Find(t.Context())
	if len(found) != 1 || err == nil || !strings.Contains(err.Error(), "gpu GPU-2 (Tesla T4) does not work: nvidia-smi asks for the action Reset") {
		t.Errorf("found %+v, %v", found, err)
	}
}

// TestProgram says why nvidia-smi has no answer. A machine without it has no GPUs, which is no error.
func TestProgram(t *testing.T) {
	found, err := nvidia.New(nvidia.Config{Program: filepath.Join(t.TempDir(), "nvidia-smi")}).Find(t.Context())
	if len(found) != 0 || err != nil {
		t.Errorf("without the program: %v, %v", found, err)
	}
	for script, want := range map[string]string{
		"echo 'NVIDIA-SMI has failed'; exit 9":                "exit status 9: NVIDIA-SMI has failed",
		"echo nonsense":                                       "decode the report of nvidia-smi",
		"echo '<nvidia_smi_log><gpu></gpu></nvidia_smi_log>'": "has no UUID",
	} {
		if _, err := nvidia.New(mustProgram(t, script)).Find(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := nvidia.New(mustProgram(t, "exec sleep 600")).Find(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a program that hangs: %v", err)
	}
}

func TestMeasure(t *testing.T) {
	all, err := nvidia.New(mustConfig(t, "gpus")).Measure(t.Context())
	want := []devices.Measurement{
		{Name: "Memory state", Unit: "MiB", Value: 1234, Max: 15360, Summary: true},
		{Name: "BAR1 buffer state", Unit: "MiB", Value: 2, Max: 256},
		{Name: "Power usage", Unit: "W", Value: 27.31, Max: 70},
		{Name: "GPU utilization", Unit: "%", Value: 12},
		{Name: "Memory utilization", Unit: "%", Value: 3},
		{Name: "Encoder utilization", Unit: "%"},
		{Name: "Decoder utilization", Unit: "%"},
		{Name: "Temperature", Unit: "C", Value: 41},
	}
	if got := all["GPU-0c2a1b1e-5f2b-4c3d-8e9f-0a1b2c3d4e5f"]; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// FuzzReport decodes any report, and each device of it is fit to be shown.
func FuzzReport(f *testing.F) {
	for _, name := range []string{"gpus", "broken"} {
		b, err := os.ReadFile("testdata/" + name + ".xml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, text := range nvidia.DecodedTexts(b) {
			if sysfs.Printable(text) != text {
				t.Errorf("%q is not fit to be shown", text)
			}
		}
	})
}

// FuzzList reads any list of MIG instances.
func FuzzList(f *testing.F) {
	b, err := os.ReadFile("testdata/list.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b))
	f.Fuzz(func(t *testing.T, text string) {
		for _, id := range nvidia.ListedIDs(text) {
			if sysfs.Printable(id) != id {
				t.Errorf("%q is not fit to be shown", id)
			}
		}
	})
}
