package qemu_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	kvmDevice = "/dev/kvm"
	// createVM is KVM_CREATE_VM of the kernel.
	createVM = 0xae01
	// hiddenVariable is set in a process that has hidden the device from itself.
	hiddenVariable = "SKERRY_TEST_HIDDEN_KVM"
)

// whyNoKVM says why the kernel makes no machine for this process; "": it does.
func whyNoKVM() string {
	f, err := os.OpenFile(kvmDevice, os.O_RDWR, 0)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	vm, _, failed := unix.Syscall(unix.SYS_IOCTL, f.Fd(), createVM, 0)
	if failed != 0 {
		return failed.Error()
	}
	_ = unix.Close(int(vm))
	return ""
}

// mustRunWithKVM starts a machine and asks QEMU whether it runs with kvm.
func mustRunWithKVM(tb testing.TB, accelerator string) bool {
	tb.Helper()
	cfg := mustConfig(tb, "")
	socket := filepath.Join(tb.TempDir(), "qmp.sock")
	cfg.Config = map[string]any{
		"image_path": mustImage(tb, cfg, make([]byte, 512)), "accelerator": accelerator,
		"args": append(quick(mustFirmware(tb, -1, 0)), "-qmp", "unix:"+socket+",server=on,wait=off"),
	}
	mustStart(tb, mustDriver(tb, nil), cfg)
	answer, _ := mustAskMachine(tb, socket, "query-kvm")
	enabled, disabled := strings.Contains(answer, `"enabled": true`), strings.Contains(answer, `"enabled": false`)
	if enabled == disabled {
		tb.Fatalf("QEMU does not say whether kvm is enabled: %q", answer)
	}
	return enabled
}

// TestKVM: a machine runs with kvm where that works, unless its task asks for tcg. QEMU itself says which it uses.
func TestKVM(t *testing.T) {
	needEmulator(t)
	if why := whyNoKVM(); why != "" {
		t.Skipf("kvm does not work here: %s", why)
	}
	if info := mustDriver(t, nil).Fingerprint(t.Context()); info.Attributes["driver.qemu.kvm"] != "1" || info.HealthDescription != "Healthy" {
		t.Errorf("fingerprint: %+v, want that kvm works", info)
	}
	for accelerator, want := range map[string]bool{"": true, "kvm": true, "tcg": false} {
		if got := mustRunWithKVM(t, accelerator); got != want {
			t.Errorf("accelerator %q: the machine runs with kvm: %v, want %v", accelerator, got, want)
		}
	}
}

// TestWithoutKVM: where the device cannot be opened, or is none, machines run with tcg, and the fingerprint says why.
func TestWithoutKVM(t *testing.T) {
	needEmulator(t)
	if os.Getenv(hiddenVariable) == "" {
		if os.Geteuid() != 0 {
			t.Skip("it needs root, to hide the device")
		}
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestWithoutKVM$", "-test.v")
		cmd.Env = append(os.Environ(), hiddenVariable+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestWithoutKVM") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for _, tc := range []struct {
		name, want string
		flags      uintptr
	}{
		{"a file", "exit status", 0},
		{"a file that cannot be opened", "open " + kvmDevice, unix.MS_RDONLY},
	} {
		if _, err := os.Stat(kvmDevice); err == nil { // else a machine without kvm is tested
			mustHideDevice(t, tc.flags)
		} else {
			tc.want = "open " + kvmDevice
		}
		info := mustDriver(t, nil).Fingerprint(t.Context())
		if _, has := info.Attributes["driver.qemu.kvm"]; has || !info.Healthy || !strings.Contains(info.HealthDescription, tc.want) {
			t.Errorf("%s: %+v, want no kvm because of %q", tc.name, info, tc.want)
		}
		if mustRunWithKVM(t, "") {
			t.Errorf("%s: the machine runs with kvm", tc.name)
		}
	}
}

// mustHideDevice mounts an empty file over the device, in the mount namespace of this process.
func mustHideDevice(tb testing.TB, flags uintptr) {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "kvm")
	err := os.WriteFile(file, nil, 0o600)
	if err == nil {
		err = unix.Mount(file, kvmDevice, "", unix.MS_BIND, "")
	}
	if err == nil && flags != 0 {
		err = unix.Mount("", kvmDevice, "", unix.MS_REMOUNT|unix.MS_BIND|flags, "")
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := unix.Unmount(kvmDevice, unix.MNT_DETACH); err != nil {
			tb.Error(err)
		}
	})
}
