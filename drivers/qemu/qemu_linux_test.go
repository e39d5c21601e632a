package qemu_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/drivers/drivertest"
	"skerry/drivers/qemu"
	"skerry/drivers/supervised"
	"skerry/fleet"
)

func TestMain(m *testing.M) {
	supervised.Supervise()
	os.Exit(m.Run())
}

// emulator is the real program.
const emulator = "qemu-system-x86_64"

// needEmulator skips a test of real machines.
func needEmulator(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("it boots machines: make test-drivers runs it")
	}
	if _, err := exec.LookPath(emulator); err != nil {
		tb.Skipf("%s is not installed: %v", emulator, err)
	}
}

func mustDriver(tb testing.TB, change func(cfg *qemu.Config)) *qemu.Driver {
	tb.Helper()
	cfg := qemu.Config{Emulator: emulator, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	d, err := qemu.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// program is machine code that writes to the serial port, waits, and ends the machine. It runs at any address.
func program(say string, wait time.Duration, code byte) []byte {
	// cld; call next; next: pop si; add si, OFFSET OF TEXT
	b := []byte{0xfc, 0xe8, 0, 0, 0x5e, 0x81, 0xc6, 0, 0}
	const next, text = 4, 7
	// lodsb from the code; or al,al; jz done; mov ah,al; mov dx,3fdh; wait: in al,dx; test al,20h; jz wait; mov al,ah;
	// mov dl,f8h; out dx,al; jmp back
	b = append(b, 0x2e, 0xac, 0x08, 0xc0, 0x74, 17, 0x88, 0xc4, 0xba, 0xfd, 0x03, 0xec, 0xa8, 0x20, 0x74, 0xfb,
		0x88, 0xe0, 0xb2, 0xf8, 0xee, 0xeb, 0xe9)
	if wait < 0 {
		b = append(b, 0xfa, 0xf4, 0xeb, 0xfd) // cli; hlt; jmp back
	}
	if wait > 0 { // some milliseconds: mov cx,40; outer: mov dx,ffffh; inner: dec dx; jnz inner; loop outer
		b = append(b, 0xb9, 40, 0, 0xba, 0xff, 0xff, 0x4a, 0x75, 0xfd, 0xe2, 0xf8)
	}
	b = append(b, 0xb0, code, 0xba, 0xf4, 0x00, 0xee, 0xfa, 0xf4, 0xeb, 0xfd) // mov al,code; mov dx,f4h; out dx,al; stop
	binary.LittleEndian.PutUint16(b[text:], uint16(len(b)-next))
	return append(append(b, say...), 0)
}

// bootSector is a disk with a program, which sets up a stack first. Firmware does not boot from a disk of one sector.
func bootSector(say string) []byte {
	sector := make([]byte, 1<<20)
	// cli; xor ax,ax; mov ss,ax; mov sp,7c00h; jmp 0:7c0dh
	n := copy(sector, []byte{0xfa, 0x31, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, 0xea, 0x0d, 0x7c, 0x00, 0x00})
	copy(sector[n:], program(say, -1, 0))
	sector[510], sector[511] = 0x55, 0xaa
	return sector
}

// mustFirmware writes a firmware of 64 KiB that is the program: a machine with it runs at once, and reads no disk.
// The usual firmware of a machine that gets little processor time gives up waiting for its disk.
func mustFirmware(tb testing.TB, wait time.Duration, code byte) string {
	tb.Helper()
	rom := make([]byte, 64<<10)
	// xor ax,ax; mov ss,ax; mov sp,7c00h; at the reset vector: jmp to the beginning
	n := copy(rom, []byte{0x31, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c})
	copy(rom[n:], program("started\n", wait, code))
	copy(rom[0xfff0:], []byte{0xe9, 0x0d, 0x00})
	path := filepath.Join(tb.TempDir(), "firmware.bin")
	if err := os.WriteFile(path, rom, 0o644); err != nil {
		tb.Fatal(err)
	}
	return path
}

// quick are flags of a machine with that firmware, and a port by which it ends.
func quick(firmware string) []any {
	return []any{"-bios", firmware, "-net", "none", "-vga", "none", "-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"}
}

func TestConformance(t *testing.T) {
	needEmulator(t)
	drivertest.Run(t, newHarness)
}

// newHarness makes a harness whose emulator is the real one in a shell script, which turns the codes of
// isa-debug-exit (twice the value and one) into those of the suite.
func newHarness(tb testing.TB) drivertest.Harness {
	script := mustScript(tb, emulator+` "$@"; code=$?; [ $code -ge 128 ] && [ $code != 255 ] && exit $code
code=$((code / 2)); [ $code = 127 ] && code=255; exit $code`)
	bootID := ""
	return drivertest.Harness{
		Name: qemu.Name,
		NewDriver: func() drivers.Driver {
			return mustDriver(tb, func(cfg *qemu.Config) { cfg.BootID, cfg.Emulator = bootID, script })
		},
		Reboot: func() { bootID = "11111111-2222-3333-4444-555555555555" },
		Config: func(cfg drivers.TaskConfig, b drivertest.Behaviour) map[string]any {
			args := quick(mustFirmware(tb, b.RunFor, byte(b.ExitCode)))
			if b.Hog {
				args = append(args, "-object", fmt.Sprintf("memory-backend-ram,id=hog,size=%dM,prealloc=on", drivertest.HogMB))
			}
			return map[string]any{"image_path": mustImage(tb, cfg, make([]byte, 512)), "drive_interface": "virtio", "args": args}
		},
		Starts:         func(cfg drivers.TaskConfig) int { return strings.Count(output(cfg), "started") },
		NoLogs:         "a machine has one serial port, on which it says that it has started",
		NoOOM:          drivertest.NoCgroups(),
		NoChildren:     "an emulator is one process",
		HogMemoryMaxMB: drivertest.HogMB / 2,
		KillSupervisor: drivertest.KillSupervisor,
		CannotIgnore:   "the emulator ends with each signal",
		NoSignals:      "they would reach the emulator",
		BadConfigs: map[string]map[string]any{
			"image_path is required":                {"args": []any{"a"}},
			`unknown key "image"`:                   {"image_path": "a.img", "image": "x"},
			"drive_interface must be one of ide":    {"image_path": "a.img", "drive_interface": "usb"},
			"accelerator must be kvm or tcg":        {"image_path": "a.img", "accelerator": "hvf"},
			"guest_agent is not supported":          {"image_path": "a.img", "guest_agent": true},
			`port_map of "http" must be a port`:     {"image_path": "a.img", "port_map": map[string]any{"http": "x"}},
			"graceful_shutdown must be true or fal": {"image_path": "a.img", "graceful_shutdown": 7},
		},
	}
}

// mustScript writes a shell script and returns its path.
func mustScript(tb testing.TB, text string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "emulator")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		tb.Fatal(err)
	}
	return path
}

// mustImage writes an image into the task's folder and returns its path there.
func mustImage(tb testing.TB, cfg drivers.TaskConfig, b []byte) string {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(cfg.Dir, "disk,1.img"), b, 0o644); err != nil {
		tb.Fatal(err)
	}
	return "disk,1.img"
}

// output returns the text that a machine has written to its serial port.
func output(cfg drivers.TaskConfig) string {
	b, err := os.ReadFile(filepath.Join(cfg.LogDir, cfg.Task+".stdout.0"))
	if err != nil {
		return ""
	}
	return string(b)
}

// mustConfig makes the configuration of a task with its folders. below is part of the state folder's path.
func mustConfig(tb testing.TB, below string) drivers.TaskConfig {
	tb.Helper()
	root := tb.TempDir()
	cfg := drivers.TaskConfig{
		ID: "alloc/task/1", AllocID: "alloc", Task: "task", Resources: fleet.Resources{CPU: 100, MemoryMB: 128},
		Dir: filepath.Join(root, "task"), AllocDir: filepath.Join(root, "alloc"), LocalDir: filepath.Join(root, "task", "local"),
		LogDir: filepath.Join(root, "logs"), StateDir: filepath.Join(root, below, "state"),
		Logs: fleet.LogConfig{MaxFiles: 3, MaxFileSizeMB: 1}, KillTimeout: 5 * time.Second,
	}
	for _, dir := range []string{cfg.AllocDir, cfg.LocalDir, cfg.LogDir, filepath.Dir(cfg.StateDir)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	return cfg
}

// mustStart starts a machine and waits until its program runs.
func mustStart(tb testing.TB, d *qemu.Driver, cfg drivers.TaskConfig) drivers.Task {
	tb.Helper()
	h, err := d.Start(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	task, err := d.Recover(tb.Context(), cfg, h)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := task.Stop(context.WithoutCancel(tb.Context()), "SIGKILL", 0); err != nil {
			tb.Error(err)
		}
	})
	if said := awaitOutput(cfg, task, "started"); !strings.Contains(said, "started") {
		stderr, _ := os.ReadFile(filepath.Join(cfg.LogDir, cfg.Task+".stderr.0"))
		tb.Fatalf("the machine did not start: it said %q, %q", said, stderr)
	}
	return task
}

// awaitOutput waits until a machine has written one of the texts, has ended, or two minutes are over, and returns its
// output.
func awaitOutput(cfg drivers.TaskConfig, task drivers.Task, texts ...string) string {
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(10 * time.Millisecond) {
		said := output(cfg)
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(said, text) }) || task.Ended() || time.Now().After(deadline) {
			return said
		}
	}
}

// TestGracefulShutdown presses the power button of a machine, and kills one that does not care, after the timeout;
// also where the path of the state folder is too long for a socket.
func TestGracefulShutdown(t *testing.T) {
	needEmulator(t)
	for _, below := range []string{"", strings.Repeat("long/", 40)} {
		cfg := mustConfig(t, below)
		qmp := filepath.Join(t.TempDir(), "qmp.sock")
		cfg.Config = map[string]any{
			"image_path": mustImage(t, cfg, make([]byte, 512)), "graceful_shutdown": true,
			"args": append(quick(mustFirmware(t, -1, 0)), "-qmp", "unix:"+qmp+",server=on,wait=off"),
		}
		d := mustDriver(t, nil)
		task := mustStart(t, d, cfg)
		pressed := watchPowerButton(t, qmp)
		const timeout = 2 * time.Second
		begin := time.Now()
		if err := task.Stop(t.Context(), "", timeout); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < timeout {
			t.Errorf("killed after %v, before its %v were over", took, timeout)
		}
		if err := <-pressed; err != nil {
			t.Errorf("power button: %v", err)
		}
		exit, err := task.Wait(t.Context())
		if err != nil || exit.Signal != 9 {
			t.Errorf("exit %+v, %v, want that it was killed", exit, err)
		}
		if err := task.Forget(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Dir(qemu.MonitorPath(cfg.StateDir))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("folder of the monitor: %v, want that it is removed", err)
		}
	}
}

// mustAskMachine connects to a machine by QMP, runs a command, and returns the answer and what QEMU says afterwards.
func mustAskMachine(tb testing.TB, socket, command string) (answer string, lines *bufio.Scanner) {
	tb.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	lines = bufio.NewScanner(conn)
	for _, c := range []string{"qmp_capabilities", command} {
		if _, err := fmt.Fprintf(conn, "{\"execute\": %q}\n", c); err != nil {
			tb.Fatal(err)
		}
		for lines.Scan() && !strings.Contains(lines.Text(), `"return"`) {
		}
	}
	return lines.Text(), lines
}

// watchPowerButton connects to a machine by QMP, and sends nil when its power button was pressed.
func watchPowerButton(tb testing.TB, socket string) <-chan error {
	tb.Helper()
	_, lines := mustAskMachine(tb, socket, "query-status")
	pressed := make(chan error, 1)
	go func() {
		for lines.Scan() {
			if strings.Contains(lines.Text(), `"POWERDOWN"`) {
				pressed <- nil
				return
			}
		}
		pressed <- fmt.Errorf("the machine ended without it: %w", errors.Join(errors.New("end of events"), lines.Err()))
	}()
	return pressed
}

// TestWithoutGracefulShutdown ends the emulator by the signal, at once.
func TestWithoutGracefulShutdown(t *testing.T) {
	needEmulator(t)
	cfg := mustConfig(t, "")
	cfg.Config = map[string]any{"image_path": mustImage(t, cfg, make([]byte, 512)), "args": quick(mustFirmware(t, -1, 0)), "accelerator": "tcg"}
	task := mustStart(t, mustDriver(t, nil), cfg)
	if _, ok := task.(drivers.Execer); ok {
		t.Error("a machine runs commands")
	}
	if err := task.Stop(t.Context(), "", time.Hour); err != nil {
		t.Fatal(err)
	}
	if exit, err := task.Wait(t.Context()); err != nil || exit.Signal == 9 {
		t.Errorf("exit %+v, %v, want that it ended by itself", exit, err)
	}
}

// TestBoot boots a machine from its image, by each way that firmware knows. The firmware of a machine that gets too
// little processor time says that it cannot read its disk: that machine is started again.
func TestBoot(t *testing.T) {
	needEmulator(t)
	for _, drive := range []string{"ide", "virtio"} {
		started := false
		for range 10 {
			cfg := mustConfig(t, "")
			cfg.Config = map[string]any{
				"image_path": mustImage(t, cfg, bootSector("started\n")), "drive_interface": drive, "args": []any{"-net", "none", "-vga", "none"},
			}
			d := mustDriver(t, nil)
			h, err := d.Start(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			task, err := d.Recover(t.Context(), cfg, h)
			if err != nil {
				t.Fatal(err)
			}
			said := awaitOutput(cfg, task, "started", "Boot failed")
			if err := task.Stop(t.Context(), "SIGKILL", 0); err != nil {
				t.Fatal(err)
			}
			if started = strings.Contains(said, "started"); started || !strings.Contains(said, "Boot failed") {
				break
			}
		}
		if !started {
			t.Errorf("%s: the machine did not boot", drive)
		}
	}
}

// TestPorts forwards a port of the group to the machine: QEMU accepts connections there.
func TestPorts(t *testing.T) {
	needEmulator(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cfg := mustConfig(t, "")
	cfg.Network.Ports = []fleet.AssignedPort{{Label: "http", Value: port, HostIP: "127.0.0.1"}}
	cfg.Config = map[string]any{
		"image_path": mustImage(t, cfg, make([]byte, 512)), "port_map": []any{map[string]any{"http": 80}},
		"args": []any{"-vga", "none", "-bios", mustFirmware(t, -1, 0)},
	}
	mustStart(t, mustDriver(t, nil), cfg)
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatalf("port of the machine: %v", err)
	}
	_ = conn.Close()
}

// qcow2 returns the header of an image of 64 KiB clusters, changed by change.
func qcow2(change func(head []byte)) []byte {
	b := make([]byte, 4<<16)
	copy(b, "QFI\xfb")
	be := binary.BigEndian
	be.PutUint32(b[4:], 3)
	be.PutUint32(b[20:], 16)
	be.PutUint64(b[24:], 1<<20)
	be.PutUint32(b[36:], 1)
	be.PutUint64(b[40:], 3<<16)
	be.PutUint64(b[48:], 1<<16)
	be.PutUint32(b[56:], 1)
	be.PutUint32(b[96:], 4)
	be.PutUint32(b[100:], 104)
	if change != nil {
		change(b)
	}
	return b
}

// TestRefused starts tasks that cannot run: the error says why, and that no further try can mend it.
func TestRefused(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.img")
	if err := os.WriteFile(outside, make([]byte, 512), 0o644); err != nil {
		t.Fatal(err)
	}
	withoutKVM := mustScript(t, `[ "$1" = --version ] && echo QEMU emulator version 7.2.22 && exit; echo no kvm here >&2; exit 1`)
	be := binary.BigEndian
	for _, tc := range []struct {
		name, want string
		image      []byte
		config     map[string]any
		change     func(cfg *drivers.TaskConfig)
	}{
		{"missing", "there is no image", nil, map[string]any{"image_path": "nothing.img"}, nil},
		{"outside", "not in the task's folders, nor in a folder that this edge allows", nil, map[string]any{"image_path": outside}, nil},
		{"outside by a link", "nor in a folder that this edge allows", nil, map[string]any{"image_path": "link.img"}, func(cfg *drivers.TaskConfig) {
			if err := os.Symlink(outside, filepath.Join(cfg.Dir, "link.img")); err != nil {
				t.Fatal(err)
			}
		}},
		{"kvm that does not work", "accelerator kvm does not work on this machine", make([]byte, 512), map[string]any{"image_path": "disk,1.img", "accelerator": "kvm"}, nil},
		{"a folder", "it is not a file", nil, map[string]any{"image_path": "local"}, nil},
		{"empty", "it is empty", []byte{}, nil, nil},
		{"a text", "no whole number of sectors", []byte("404 page not found\n"), nil, nil},
		{"vmdk", "vmdk is not supported", append([]byte("KDMV"), make([]byte, 508)...), nil, nil},
		{"a backing file", "it has a backing file", qcow2(func(b []byte) { be.PutUint64(b[8:], 200) }), nil, nil},
		{"a data file", "its data is in another file", qcow2(func(b []byte) { be.PutUint64(b[72:], 4) }), nil, nil},
		{"corrupt", "marked as corrupt", qcow2(func(b []byte) { be.PutUint64(b[72:], 2) }), nil, nil},
		{"a header that is no header", "its header is corrupt", qcow2(func(b []byte) { be.PutUint32(b[20:], 99) }), nil, nil},
		{"cut off", "it is cut off", qcow2(nil)[:2<<16], nil, nil},
		{"little memory", "a qemu task has from 128", make([]byte, 512), nil, func(cfg *drivers.TaskConfig) { cfg.Resources.MemoryMB = 64 }},
		{"devices", "a qemu task gets no devices", make([]byte, 512), nil, func(cfg *drivers.TaskConfig) {
			cfg.Devices = []fleet.DeviceNode{{HostPath: "/dev/null", TaskPath: "/dev/null", Permissions: "r"}}
		}},
		{"an unknown port", `port_map names "http"`, make([]byte, 512), map[string]any{"image_path": "disk,1.img", "port_map": map[string]any{"http": 80}}, nil},
		{"a forbidden flag", "does not allow the flag at args[2]", make([]byte, 512), map[string]any{"image_path": "disk,1.img", "args": []any{"-device", "x", "--monitor", "stdio"}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := mustConfig(t, "")
			cfg.Config = tc.config
			if tc.image != nil {
				path := mustImage(t, cfg, tc.image)
				if cfg.Config == nil {
					cfg.Config = map[string]any{"image_path": path}
				}
			}
			if tc.change != nil {
				tc.change(&cfg)
			}
			d := mustDriver(t, func(cfg *qemu.Config) {
				cfg.AllowedArgs, cfg.Emulator = []string{"-device", "-net"}, withoutKVM
			})
			_, err := d.Start(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), tc.want) || drivers.IsRecoverable(err) {
				t.Errorf("%v, want one with %q", err, tc.want)
			}
		})
	}
}

// TestImages takes images of allowed folders, and knows their formats.
func TestImages(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string][]byte{"raw": make([]byte, 1024), "qcow2": qcow2(nil)} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		d := mustDriver(t, func(cfg *qemu.Config) { cfg.ImagePaths = []string{dir} })
		if got, format, err := d.FindImage(path, mustConfig(t, "")); err != nil || format != name || filepath.Base(got) != name {
			t.Errorf("%s: %s, %s, %v", name, got, format, err)
		}
	}
	if _, err := qemu.New(qemu.Config{Permissions: qemu.Permissions{ImagePaths: []string{"relative"}}, Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("a relative folder is allowed")
	}
}

// TestFingerprint says why the driver does not work.
func TestFingerprint(t *testing.T) {
	d := mustDriver(t, func(cfg *qemu.Config) { cfg.Emulator = "qemu-system-nothing" })
	if info := d.Fingerprint(t.Context()); info.Detected || info.Healthy || !strings.Contains(info.HealthDescription, "qemu-system-nothing is not installed") {
		t.Errorf("without the program: %+v", info)
	}
	for text, want := range map[string]string{"echo QEMU emulator version 7.2.22": "7.2.22", "echo broken; exit 1": "", "echo hello": ""} {
		d := mustDriver(t, func(cfg *qemu.Config) { cfg.Emulator = mustScript(t, text) })
		if info := d.Fingerprint(t.Context()); info.Healthy != (want != "") || info.Attributes["driver.qemu.version"] != want {
			t.Errorf("%s: %+v", text, info)
		}
	}
}

// FuzzConfig accepts a config block with an image, or refuses it as invalid.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"image_path": "a.img", "port_map": [{"http": 80}], "args": ["-net", "none"], "graceful_shutdown": true}`))
	f.Add([]byte(`{"image_path": 7, "accelerator": {}, "port_map": "x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var config map[string]any
		if json.Unmarshal(b, &config) != nil {
			return
		}
		if err := qemu.Check(config); err != nil && fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Fatalf("refused with %v", err)
		}
	})
}

// FuzzImage reads the header of any image. An image that is accepted as qcow2 names no other file.
func FuzzImage(f *testing.F) {
	f.Add(qcow2(nil)[:512], int64(4<<16))
	f.Add(bootSector("x")[:512], int64(1<<20))
	f.Add([]byte("KDMV"), int64(4))
	f.Fuzz(func(t *testing.T, head []byte, size int64) {
		format, err := qemu.FormatOf(head, size)
		if err == nil && format == "qcow2" && !bytes.Equal(head[8:16], make([]byte, 8)) {
			t.Fatal("an image with a backing file is taken")
		}
	})
}
