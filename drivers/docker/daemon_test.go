package docker_test

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"skerry/drivers/docker"
	"skerry/drivers/docker/dockertest"
)

// testImage is the image of all tests: busybox, without a registry.
const testImage = "localhost/skerry-busybox:1"

// patience bounds the wait for each event that a test expects, on a loaded machine.
const patience = 2 * time.Minute

// daemon is a real daemon with folders of its own.
type daemon struct {
	*dockertest.Daemon
	name    string // of the driver
	socket  string
	absent  string // why it cannot run here; "": it can
	running bool   // the first test that needs it has started it
	// registry is the address of the registry of TestPull, which Podman must know at its start.
	registry string
}

// daemons are made by TestMain for all tests of the package.
var daemons []*daemon

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// runTests makes the daemons, runs the tests and removes the daemons.
func runTests(m *testing.M) (code int) {
	for _, name := range []string{docker.Docker, docker.Podman} {
		d := &daemon{name: name}
		daemons = append(daemons, d)
		if err := d.prepare(); err != nil {
			d.absent = err.Error()
			continue
		}
		defer func() {
			if err := d.Remove(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}()
	}
	return m.Run()
}

// prepare makes the folders of a daemon. It is started by the first test that needs it.
func (d *daemon) prepare() error {
	if err := dockertest.Missing(d.name); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sk")
	if err != nil {
		return err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	d.registry = free.Addr().String()
	if err := free.Close(); err != nil {
		return err
	}
	d.Daemon, err = dockertest.New(dockertest.Config{Name: d.name, Dir: dir, Registry: d.registry})
	if err == nil {
		d.socket = d.Socket
	}
	return err
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
	if d.running {
		return
	}
	if err := d.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	if err := d.Import(tb.Context(), testImage, mustBusybox(tb, "")); err != nil {
		tb.Fatal(err)
	}
	d.running = true
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
	files, err := dockertest.Busybox(mark)
	if err != nil {
		tb.Fatal(err)
	}
	return files
}

// mustCheckedImage makes the test image with a health check and returns its name.
func mustCheckedImage(tb testing.TB, d *daemon) string {
	tb.Helper()
	const name = "localhost/skerry-checked:1"
	if err := d.Import(tb.Context(), name, mustBusybox(tb, ""),
		"HEALTHCHECK --interval=1s --retries=1 CMD [\"sh\", \"-c\", \"ls /local/well || { echo not well; exit 1; }\"]"); err != nil {
		tb.Fatal(err)
	}
	return name
}
