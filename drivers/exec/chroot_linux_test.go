package exec_test

import (
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry/drivers"
	"skerry/drivers/exec"
	"skerry/drivers/oci"
	"skerry/drivers/supervised"
	"skerry/fleet"
)

// mustPrograms returns a folder with the commands of busybox, which needs no libraries.
func mustPrograms(tb testing.TB) string {
	tb.Helper()
	path, err := osexec.LookPath("busybox")
	if err != nil {
		tb.Skip("busybox is not installed")
	}
	program, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "busybox"), program, 0o755); err != nil {
		tb.Fatal(err)
	}
	for _, name := range []string{"sh", "ls", "cat", "touch", "cut"} {
		if err := os.Symlink("busybox", filepath.Join(dir, name)); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// mustChrootDriver makes a driver whose tasks see folders of the machine.
func mustChrootDriver(tb testing.TB, runtime string, chroot map[string]string) *supervised.Driver {
	tb.Helper()
	d, err := exec.New(oci.DriverConfig{Log: slog.New(slog.DiscardHandler), Isolation: oci.Config{Runtime: runtime, Chroot: chroot}})
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// A task sees the folders of the machine that its operator has chosen, at their paths and read-only, and nothing else of it.
func TestChosenFolders(t *testing.T) {
	mustHaveRuntime(t)
	programs, data := mustPrograms(t), t.TempDir()
	for _, file := range []string{filepath.Join(data, "prices"), filepath.Join(filepath.Dir(data), "beside")} {
		if err := os.WriteFile(file, []byte("3\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	wanted := []string{"/", "/alloc", "/alloc/logs", "/bin", "/etc/hosts", "/etc/resolv.conf", "/local", "/opt/shop/data", "/secrets"}
	for _, runtime := range runtimesHere() {
		t.Run(filepath.Base(runtime), func(t *testing.T) {
			cfg := newTask(t, `ls -A /; ls -A /opt/shop /opt/shop/data; cat /opt/shop/data/prices
for dir in /bin /opt/shop/data; do touch $dir/x 2>/dev/null && echo wrote to $dir; done
cut -d' ' -f5 /proc/self/mountinfo`)
			cfg.Network = drivers.Network{Mode: fleet.NetworkNone, Hostname: "shop-7", DNS: &fleet.DNSConfig{Servers: []string{"10.0.0.53"}}}
			exit, out := mustRunWith(t, mustChrootDriver(t, runtime, map[string]string{programs: "/bin", data: "/opt/shop/data"}), cfg)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			first := slices.Index(lines, "/")
			if first < 0 {
				t.Fatalf("%+v, output %q", exit, out)
			}
			seen := "alloc\nbin\ndev\netc\nlocal\nopt\nproc\nsecrets\nsys\ntmp\n/opt/shop:\ndata\n\n/opt/shop/data:\nprices\n3"
			if got := strings.Join(lines[:first], "\n"); got != seen {
				t.Errorf("it saw\n%s\nwant\n%s", got, seen)
			}
			mounts := slices.DeleteFunc(lines[first:], func(path string) bool { // of the container itself
				return slices.Contains([]string{"dev", "proc", "sys"}, strings.Split(path, "/")[1])
			})
			if slices.Sort(mounts); !slices.Equal(mounts, wanted) {
				t.Errorf("it has mounts at %q, want %q", mounts, wanted)
			}
		})
	}
}

// While the machine lacks a chosen folder, tasks do not start, and the fingerprint says why.
func TestMissingFolder(t *testing.T) {
	mustHaveRuntime(t)
	disk := filepath.Join(t.TempDir(), "disk")
	d := mustChrootDriver(t, "", map[string]string{mustPrograms(t): "/bin", disk: "/opt/disk"})
	if info := d.Fingerprint(t.Context()); !info.Detected || info.Healthy || !strings.Contains(info.HealthDescription, disk) {
		t.Errorf("fingerprint: %+v, want it unhealthy because of %s", info, disk)
	}
	cfg := newTask(t, "ls /opt/disk")
	_, err := d.Start(t.Context(), cfg)
	if !drivers.IsRecoverable(err) || !strings.Contains(err.Error(), disk) || !strings.Contains(err.Error(), "--exec-chroot") {
		t.Errorf("Start: %v, want a recoverable error that names the folder", err)
	}
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(disk, "here"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if info := d.Fingerprint(t.Context()); !info.Healthy {
		t.Errorf("with the folder: %+v", info)
	}
	if exit, out := mustRunWith(t, d, cfg); !exit.Success() || out != "here\n" {
		t.Errorf("with the folder: %+v, output %q", exit, out)
	}
}
