package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"skerry/drivers"
	"skerry/fleet"
)

const (
	kvmDevice      = "/dev/kvm"
	versionTimeout = 20 * time.Second
	probeTimeout   = time.Minute
	maxReason      = 200 // bytes of an emulator's message that a person sees
)

// chooseAccelerator returns the requested accelerator of a machine, or else kvm if it works.
func chooseAccelerator(asked string, p program) (string, error) {
	switch {
	case asked == "tcg":
		return asked, nil
	case p.withoutKVM == "":
		return "kvm", nil
	case asked == "kvm":
		return "", fleet.Errorf(fleet.CodeUnavailable, "accelerator kvm does not work on this machine: %s", p.withoutKVM).
			WithHint("leave out accelerator, or add a constraint on ${attr.driver.qemu.kvm}")
	}
	return "tcg", nil
}

// probeKVM starts a paused machine with kvm, and returns why that fails, or "". The existence of /dev/kvm is not
// enough: on some nested machines QEMU ends with it.
func probeKVM(path string) string {
	f, err := os.OpenFile(kvmDevice, os.O_RDWR, 0)
	if err != nil {
		return err.Error()
	}
	_ = f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	args := append(machineArgs("kvm", fleet.Resources{MemoryMB: 16}), "-nodefaults", "-display", "none", "-S", "-monitor", "stdio")
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	cmd.Stdin = strings.NewReader("quit\n")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		return fmt.Sprintf("%v: %s", err, strings.ToValidUTF8(first[:min(len(first), maxReason)], ""))
	}
	return ""
}

// versionPattern finds the version in the output of an emulator.
var versionPattern = regexp.MustCompile(`version (\d+(?:\.\d+)+)`)

// findEmulator returns the emulator. It runs the emulator for its version if its file has changed, and once in each agent's life
// to probe kvm, which another boot may lack.
func (d *Driver) findEmulator() (program, error) {
	path, err := exec.LookPath(d.cfg.Emulator)
	if err != nil {
		return program{}, fleet.Errorf(fleet.CodeUnavailable, "%s is not installed", d.cfg.Emulator).
			WithHint("install QEMU (on Debian qemu-system-x86 or qemu-system-arm)")
	}
	version, err := d.cfg.Programs.Ask(path, "--version", func() (string, error) { return askVersion(path) })
	if err != nil {
		return program{}, drivers.Recoverable(err)
	}
	withoutKVM, err := d.kvm.Ask(path, "kvm", func() (string, error) { return probeKVM(path), nil })
	if err != nil {
		return program{}, drivers.Recoverable(err)
	}
	return program{path: path, version: version, withoutKVM: withoutKVM}, nil
}

// askVersion runs the emulator for its version.
func askVersion(path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	found := versionPattern.FindSubmatch(out)
	if err == nil && found == nil {
		err = errors.New("it names none")
	}
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w: %q", path, err, out[:min(len(out), maxReason)])
	}
	return string(found[1]), nil
}

// fingerprintEmulator reports whether the emulator is installed, its version, and whether kvm works.
func (d *Driver) fingerprintEmulator(context.Context) fleet.DriverInfo {
	p, err := d.findEmulator()
	if err != nil {
		return fleet.DriverInfo{Detected: fleet.CodeOf(err) != fleet.CodeUnavailable, HealthDescription: err.Error()}
	}
	info := fleet.DriverInfo{
		Detected: true, Healthy: true, HealthDescription: "Healthy",
		Attributes: map[string]string{"driver." + Name: "1", "driver." + Name + ".version": p.version},
	}
	if p.withoutKVM == "" {
		info.Attributes["driver."+Name+".kvm"] = "1"
	} else {
		info.HealthDescription = "Healthy, but kvm does not work, and machines are slow: " + p.withoutKVM
	}
	return info
}
