package real

import (
	"context"
	_ "embed" // the programs of tasks
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"skerry/drivers/docker"
	"skerry/drivers/docker/dockertest"
	"skerry/drivers/exec"
	"skerry/drivers/java"
	"skerry/drivers/qemu"
	"skerry/drivers/rawexec"
	"skerry/drivers/wasm"
	"skerry/fleet"
	"skerry/fleet/validate"
)

// Drivers returns the names of all drivers whose tasks a run can make.
func Drivers() []string {
	return []string{rawexec.Name, exec.Name, wasm.Name, docker.Docker, docker.Podman, java.Name, qemu.Name}
}

// runningLine is the line that each task of a taskFolder writes when it runs.
const runningLine = "running\n"

var (
	//go:embed tasks/running.wasm
	runningModule []byte
	//go:embed tasks/Running.class
	runningClass []byte
)

// runningMachine is machine code for the reset of a PC: it writes runningLine to the first serial port, and halts.
var runningMachine = append([]byte{
	0x31, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, // xor ax,ax; mov ss,ax; mov sp,7c00h
	0xfc, 0xe8, 0, 0, 0x5e, 0x81, 0xc6, 32, 0, // cld; call next; next: pop si; add si,TEXT
	0x2e, 0xac, 0x08, 0xc0, 0x74, 17, 0x88, 0xc4, // back: cs lodsb; or al,al; jz done; mov ah,al
	0xba, 0xfd, 0x03, 0xec, 0xa8, 0x20, 0x74, 0xfb, // mov dx,3fdh; wait: in al,dx; test al,20h; jz wait
	0x88, 0xe0, 0xb2, 0xf8, 0xee, 0xeb, 0xe9, // mov al,ah; mov dl,f8h; out dx,al; jmp back
	0xfa, 0xf4, 0xeb, 0xfd, // done: cli; hlt; jmp done
}, runningLine+"\x00"...)

// The sizes of the firmware of a task of qemu, and of its disk, which nothing reads.
const (
	firmwareSize = 64 << 10
	resetVector  = 0xfff0
	diskSize     = 1 << 20
)

// runningImage is the image of the tasks of docker and podman.
const runningImage = "localhost/skerry-running:1"

// taskFolder has the files of the tasks of all drivers. Such a task writes runningLine when it runs, and runs forever.
type taskFolder string

// makeTaskFolder writes the files of tasks into a folder, with disks for that many qemu machines.
func makeTaskFolder(dir string, machines int) (taskFolder, error) {
	firmware := make([]byte, firmwareSize)
	copy(firmware, runningMachine)
	copy(firmware[resetVector:], []byte{0xe9, 0x0d, 0x00}) // jmp to the beginning
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the folder of tasks: %w", err)
	}
	for name, content := range map[string][]byte{
		"running.wasm": runningModule, "Running.class": runningClass, "firmware.bin": firmware,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return "", fmt.Errorf("write a file of tasks: %w", err)
		}
	}
	for i := range machines {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("disk-%d.img", i)), make([]byte, diskSize), 0o644); err != nil {
			return "", fmt.Errorf("write the disk of a task: %w", err)
		}
	}
	return taskFolder(dir), nil
}

// edgeFlags returns the flags of an edge that may run the tasks, with the sockets of daemons; "": none.
func (f taskFolder) edgeFlags(dockerSocket, podmanSocket string) []string {
	flags := []string{"--qemu-image-path", string(f), "--exec-chroot", string(f), "--total-cpu", "8000", "--total-memory", "16000"}
	for _, usual := range []string{"/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr"} {
		if _, err := os.Stat(usual); err == nil {
			flags = append(flags, "--exec-chroot", usual)
		}
	}
	if dockerSocket != "" {
		flags = append(flags, "--docker-socket", dockerSocket)
	}
	if podmanSocket != "" {
		flags = append(flags, "--podman-socket", podmanSocket)
	}
	return flags
}

// jobOf returns a job of count allocations with one task of a driver.
func (f taskFolder) jobOf(driver string, count int) *fleet.Job {
	job := &fleet.Job{ID: jobOfDriver(driver), Type: fleet.JobTypeService, TaskGroups: []fleet.TaskGroup{{
		Name: "main", Count: count,
		RestartPolicy:    &fleet.RestartPolicy{Attempts: 10, Interval: time.Minute, Delay: time.Second, Mode: fleet.RestartModeDelay},
		ReschedulePolicy: &fleet.ReschedulePolicy{Delay: 5 * time.Second, DelayFunction: fleet.DelayConstant, Unlimited: true},
		EphemeralDisk:    fleet.EphemeralDisk{SizeMB: 10},
		Tasks: []fleet.Task{{
			Name: "main", Driver: driver, Config: f.taskConfig(driver), KillTimeout: time.Second,
			Resources: fleet.TaskResources{Resources: fleet.Resources{CPU: 20, MemoryMB: memoryOf(driver)}},
			LogConfig: fleet.LogConfig{MaxFiles: 1, MaxFileSizeMB: 1},
		}},
	}}}
	validate.FillDefaults(job)
	return job
}

// jobOfDriver returns the id of the job of a driver.
func jobOfDriver(driver string) fleet.JobID { return fleet.JobID("running-" + driver) }

// memoryOf returns the memory of a task of a driver in MB.
func memoryOf(driver string) int {
	switch driver {
	case qemu.Name:
		return 128 // the smallest machine that the driver makes
	case java.Name:
		return 96
	}
	return 32
}

// runningScript reports that a task runs, and runs on.
const runningScript = "echo running; exec sleep 86400"

// taskConfig returns the configuration of a task of a driver.
func (f taskFolder) taskConfig(driver string) map[string]any {
	shell := []any{"-c", runningScript}
	switch driver {
	case wasm.Name:
		return map[string]any{"module": filepath.Join(string(f), "running.wasm")}
	case java.Name:
		return map[string]any{"class": "Running", "class_path": string(f), "jvm_options": []any{"-Xmx16m", "-Xshare:auto"}}
	case qemu.Name:
		return map[string]any{"image_path": filepath.Join(string(f), "disk-${NOMAD_ALLOC_INDEX}.img"), "args": []any{"-bios", filepath.Join(string(f), "firmware.bin")}}
	case docker.Docker, docker.Podman:
		return map[string]any{"image": runningImage, "command": "sh", "args": shell, "network_mode": "none"}
	}
	return map[string]any{"command": "/bin/sh", "args": shell}
}

// startDaemon starts the daemon that a driver needs, with its files in dir and the image of the tasks. It returns nil
// for a driver without a daemon.
func startDaemon(ctx context.Context, driver, dir string) (*dockertest.Daemon, error) {
	if driver != docker.Docker && driver != docker.Podman {
		return nil, nil
	}
	d, err := dockertest.New(dockertest.Config{Name: driver, Dir: dir})
	if err != nil {
		return nil, err
	}
	files, err := dockertest.Busybox("running")
	if err == nil {
		err = d.Start(ctx)
	}
	if err == nil {
		err = d.Import(ctx, runningImage, files)
	}
	if err != nil {
		return nil, fmt.Errorf("start the daemon of %s: %w", driver, errors.Join(err, d.Remove()))
	}
	return d, nil
}
