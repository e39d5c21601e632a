package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"skerry/drivers/docker"
)

// testImage is the image of all tests: busybox, without a registry.
const testImage = "localhost/skerry-busybox:1"

// patience bounds the wait for each event that a test expects, on a loaded machine.
const patience = 2 * time.Minute

// daemon is a real daemon with folders of its own.
type daemon struct {
	name   string // of the driver
	dir    string
	socket string
	absent string // why it cannot run here; "": it runs
	args   []string
	proc   *exec.Cmd
	ended  chan struct{} // closed when proc has ended
	log    *os.File
	// registry is the address of the registry of TestPull, which Podman must know at its start.
	registry string
	// containerd outlives the death of dockerd, as where systemd runs both. nil: not running, or Podman.
	containerd *exec.Cmd
}

// daemons are started by TestMain for all tests of the package.
var daemons []*daemon

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// runTests starts the daemons, runs the tests and ends the daemons.
func runTests(m *testing.M) int {
	for _, name := range []string{docker.Docker, docker.Podman} {
		d := &daemon{name: name}
		daemons = append(daemons, d)
		if err := d.prepare(); err != nil {
			d.absent = err.Error()
			continue
		}
		defer d.remove()
	}
	return m.Run()
}

// prepare makes the folders of a daemon. It is started by the first test that needs it.
func (d *daemon) prepare() error {
	if os.Getuid() != 0 {
		return errors.New("it needs root")
	}
	program := map[string]string{docker.Docker: "dockerd", docker.Podman: "podman"}[d.name]
	for _, p := range []string{program, "busybox", map[string]string{docker.Docker: "containerd", docker.Podman: "conmon"}[d.name]} {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%s is not installed", p)
		}
	}
	dir, err := os.MkdirTemp("", "sk")
	if err != nil {
		return err
	}
	d.dir, d.socket = dir, filepath.Join(dir, "d.sock")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	d.registry = free.Addr().String()
	if err := free.Close(); err != nil {
		return err
	}
	if d.name == docker.Docker {
		d.args = []string{
			"dockerd", "-H", "unix://" + d.socket, "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
			"--pidfile", filepath.Join(dir, "pid"), "--bridge", "none", "--iptables=false", "--ip6tables=false",
			"--containerd", filepath.Join(dir, "c.sock"),
		}
		return nil
	}
	d.args = []string{
		"podman", "--root", filepath.Join(dir, "data"), "--runroot", filepath.Join(dir, "run"), "--tmpdir", filepath.Join(dir, "tmp"),
		"--cgroup-manager", "cgroupfs", "--events-backend", "file",
	}
	if _, err := exec.LookPath("runc"); err == nil { // crun refuses hybrid cgroups
		d.args = append(d.args, "--runtime", "runc")
	}
	known := fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", d.registry)
	if err := os.WriteFile(filepath.Join(dir, "registries.conf"), []byte(known), 0o600); err != nil {
		return err
	}
	d.args = append(d.args, "system", "service", "--time", "0", "unix://"+d.socket)
	return nil
}

// start starts the daemon and waits until it answers. A daemon that gives up on a loaded machine is started again.
func (d *daemon) start() error {
	c, err := client.New(client.WithHost("unix://" + d.socket))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := d.startContainerd(); err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		if d.proc == nil {
			if err := d.spawn(); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := c.Ping(ctx, client.PingOptions{})
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-d.ended:
			d.end(syscall.SIGKILL)
		default:
		}
		if time.Now().After(deadline) {
			said, _ := os.ReadFile(filepath.Join(d.dir, "log"))
			return fmt.Errorf("%s did not start: %w\n%s", d.name, err, said)
		}
	}
}

// spawn starts the daemon's process.
func (d *daemon) spawn() error {
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	proc := exec.Command(d.args[0], d.args[1:]...)
	proc.Stdout, proc.Stderr = log, log
	proc.Env = append(os.Environ(), "CONTAINERS_REGISTRIES_CONF="+filepath.Join(d.dir, "registries.conf"))
	proc.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := proc.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = proc.Wait()
	}()
	d.log, d.proc, d.ended = log, proc, ended
	return nil
}

// startContainerd starts Docker's containerd, which dockerd waits for.
func (d *daemon) startContainerd() error {
	if d.name != docker.Docker || d.containerd != nil {
		return nil
	}
	config := filepath.Join(d.dir, "containerd.toml")
	if err := os.WriteFile(config, []byte("version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n"), 0o600); err != nil {
		return err
	}
	c := exec.Command("containerd", "--config", config, "--address", filepath.Join(d.dir, "c.sock"),
		"--root", filepath.Join(d.dir, "croot"), "--state", filepath.Join(d.dir, "cstate"), "--log-level", "error")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		return err
	}
	d.containerd = c
	return nil
}

// end ends the daemon by a signal and waits for it.
func (d *daemon) end(sig syscall.Signal) {
	if d.proc == nil {
		return
	}
	_ = d.proc.Process.Signal(sig)
	<-d.ended
	_ = d.log.Close()
	d.proc = nil
}

// remove ends the daemon with all its containers, and removes its folders.
func (d *daemon) remove() {
	if d.proc != nil {
		if c, err := client.New(client.WithHost("unix://" + d.socket)); err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			if list, err := c.ContainerList(ctx, client.ContainerListOptions{All: true}); err == nil {
				for _, left := range list.Items {
					_, _ = c.ContainerRemove(ctx, left.ID, client.ContainerRemoveOptions{Force: true})
				}
			}
			cancel()
			_ = c.Close()
		}
		d.end(syscall.SIGTERM)
	}
	if d.containerd != nil {
		_ = d.containerd.Process.Signal(syscall.SIGTERM)
		_ = d.containerd.Wait()
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for _, line := range strings.Split(string(mounts), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], d.dir+"/") {
			_ = syscall.Unmount(fields[1], syscall.MNT_DETACH)
		}
	}
	_ = os.RemoveAll(d.dir)
}

// mustRun starts the daemon if it does not run, with the image of the tests.
func (d *daemon) mustRun(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("short: make test-drivers runs the real daemons")
	}
	if d.absent != "" {
		tb.Skipf("no %s: %s", d.name, d.absent)
	}
	if d.proc != nil {
		return
	}
	if err := d.start(); err != nil {
		tb.Fatal(err)
	}
	c := d.mustClient(tb)
	answer, err := c.ImageImport(tb.Context(), client.ImageImportSource{Source: bytes.NewReader(mustBusybox(tb, "")), SourceName: "-"}, testImage, client.ImageImportOptions{})
	if err != nil {
		tb.Fatalf("make image: %v", err)
	}
	defer answer.Close()
	if _, err := io.Copy(io.Discard, answer); err != nil {
		tb.Fatalf("make image: %v", err)
	}
}

// mustClient returns a client of the daemon.
func (d *daemon) mustClient(tb testing.TB) *client.Client {
	tb.Helper()
	c, err := client.New(client.WithHost("unix://" + d.socket))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// mustDriver makes a driver of the daemon, as an agent does at its start.
func (d *daemon) mustDriver(tb testing.TB, bootID string, change ...func(*docker.Config)) *docker.Driver {
	tb.Helper()
	cfg := docker.Config{Name: d.name, Socket: d.socket, BootID: bootID, Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&cfg)
	}
	driver, err := docker.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return driver
}

// forEachDaemon runs a test with each real daemon.
func forEachDaemon(t *testing.T, test func(t *testing.T, d *daemon)) {
	for _, d := range daemons {
		t.Run(d.name, func(t *testing.T) {
			d.mustRun(t)
			test(t, d)
		})
	}
}

// mustBusybox returns the file system of an image with busybox, as a tar. Another mark makes another layer.
func mustBusybox(tb testing.TB, mark string) []byte {
	tb.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		tb.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			tb.Fatal(err)
		}
	}
	add(tar.Header{Name: "bin/busybox", Mode: 0o755}, program)
	for _, name := range []string{"sh", "sleep", "cat", "echo", "dd", "id", "hostname", "ls", "kill", "true", "stty", "seq", "tail"} {
		add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	add(tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"))
	add(tar.Header{Name: "etc/mark", Mode: 0o644}, []byte(mark))
	add(tar.Header{Name: "tmp/", Mode: 0o1777, Typeflag: tar.TypeDir}, nil)
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// mustCheckedImage makes the test image with a health check and returns its name.
func mustCheckedImage(tb testing.TB, d *daemon) string {
	tb.Helper()
	const name = "localhost/skerry-checked:1"
	answer, err := d.mustClient(tb).ImageImport(tb.Context(), client.ImageImportSource{Source: bytes.NewReader(mustBusybox(tb, "")), SourceName: "-"}, name,
		client.ImageImportOptions{Changes: []string{"HEALTHCHECK --interval=1s --retries=1 CMD [\"sh\", \"-c\", \"ls /local/well || { echo not well; exit 1; }\"]"}})
	if err != nil {
		tb.Fatalf("make image: %v", err)
	}
	defer answer.Close()
	if _, err := io.Copy(io.Discard, answer); err != nil {
		tb.Fatalf("make image: %v", err)
	}
	return name
}
