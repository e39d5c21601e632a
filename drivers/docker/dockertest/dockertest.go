// Package dockertest starts real Docker and Podman daemons that belong to the caller alone: each has folders, a
// socket and containers of its own, and an image that is made of busybox. The tests of package docker use it, and the
// runs of package chaos/real. Missing says what a machine lacks for them.
//
// A Daemon starts one goroutine for each process, which waits for the process's end. All its files lie in
// Config.Dir, which Remove removes.
package dockertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/moby/moby/client"

	"skerry/drivers/docker"
)

// Config of a Daemon.
type Config struct {
	Name string // docker.Docker or docker.Podman
	// Dir is a folder for the daemon alone. Its path must be short, as sockets lie in it.
	Dir string
	// Registry is the address of a registry that Podman may use without TLS; "": none. Docker may use each one on
	// the loopback interface.
	Registry string
	// LiveRestore lets Docker's containers outlive the daemon's death and restart, as Podman's always do.
	LiveRestore bool
	// Log is the path of the file with the daemon's output, which Remove keeps; "": one in Dir.
	Log string
	// Bridge lets Docker make its usual network docker0. The caller must be in a network namespace of its own.
	Bridge bool
}

// Daemon is a real daemon. Its methods may be called from any goroutine.
type Daemon struct {
	Config
	// Socket is the path of the socket at which the daemon answers.
	Socket string

	client *client.Client
	args   []string

	mu   sync.Mutex
	main *process // guarded by mu: the process of the daemon; nil: it does not run
	// containerd keeps running when dockerd dies, as under systemd. It is nil if it does not run, or if the daemon is
	// Podman. Guarded by mu.
	containerd *process
}

// Missing returns an error that says why a daemon of that name cannot run on this machine, or nil.
func Missing(name string) error {
	programs := []string{"podman", "conmon", "busybox"}
	if name == docker.Docker {
		programs = []string{"dockerd", "containerd", "busybox"}
		if os.Getuid() != 0 {
			return errors.New("it needs root")
		}
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%s is not installed", p)
		}
	}
	return nil
}

// New makes the folder of a daemon and starts nothing.
func New(cfg Config) (*Daemon, error) {
	if err := Missing(cfg.Name); err != nil {
		return nil, fmt.Errorf("make a daemon of %s: %w", cfg.Name, err)
	}
	d := &Daemon{Config: cfg, Socket: filepath.Join(cfg.Dir, "d.sock")}
	d.args = d.dockerArgs()
	if cfg.Name == docker.Podman {
		d.args = d.podmanArgs()
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of %s: %w", cfg.Name, err)
	}
	registries := ""
	if cfg.Registry != "" {
		registries = fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", cfg.Registry)
	}
	for name, content := range map[string]string{
		"registries.conf": registries,
		// Podman locks in shared memory belong to all Podmans of the machine, and the first start of each frees them
		// all.
		"containers.conf": "[engine]\nlock_type = \"file\"\n",
		"containerd.toml": "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n",
	} {
		if err := os.WriteFile(filepath.Join(cfg.Dir, name), []byte(content), 0o600); err != nil {
			return nil, fmt.Errorf("configure %s: %w", cfg.Name, err)
		}
	}
	var err error
	if d.client, err = client.New(client.WithHost("unix://" + d.Socket)); err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", cfg.Name, err)
	}
	return d, nil
}

// dockerArgs returns the command line of dockerd, which makes no network without Bridge.
func (d *Daemon) dockerArgs() []string {
	args := []string{
		"dockerd", "-H", "unix://" + d.Socket, "--data-root", filepath.Join(d.Dir, "data"), "--exec-root", filepath.Join(d.Dir, "exec"),
		"--pidfile", filepath.Join(d.Dir, "pid"), "--iptables=false", "--ip6tables=false", "--containerd", filepath.Join(d.Dir, "c.sock"),
	}
	if d.LiveRestore {
		args = append(args, "--live-restore")
	}
	if !d.Bridge {
		args = append(args, "--bridge", "none")
	}
	return args
}

// podmanArgs returns the command line of Podman's API service.
func (d *Daemon) podmanArgs() []string {
	args := []string{
		"podman", "--root", filepath.Join(d.Dir, "data"), "--runroot", filepath.Join(d.Dir, "run"), "--tmpdir", filepath.Join(d.Dir, "tmp"),
		"--cgroup-manager", "cgroupfs", "--events-backend", "file",
	}
	if _, err := exec.LookPath("runc"); err == nil { // crun refuses hybrid cgroups
		args = append(args, "--runtime", "runc")
	}
	return append(args, "system", "service", "--time", "0", "unix://"+d.Socket)
}

const (
	// startTimeout bounds the start of a daemon on a loaded machine.
	startTimeout = 2 * time.Minute
	// stopTimeout is the time in which a daemon must end after SIGTERM, before it is killed.
	stopTimeout = time.Minute
	// pollInterval is the time between two pings while a daemon starts.
	pollInterval = 50 * time.Millisecond
)

// Start starts the daemon if it does not run, and waits until it answers. It retries, because a daemon may give up on
// a loaded machine.
func (d *Daemon) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if err := d.startProcesses(); err != nil {
			return err
		}
		err := d.askAlive(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			said, _ := os.ReadFile(d.LogFile())
			return fmt.Errorf("start %s in %s: %w\n%s", d.Name, d.Dir, err, said[max(0, len(said)-maxLogShown):])
		}
	}
}

// maxLogShown bounds the part of a daemon's log in an error.
const maxLogShown = 8 << 10

// askAlive asks the daemon for a sign of life.
func (d *Daemon) askAlive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := d.client.Ping(ctx, client.PingOptions{}); err != nil {
		return fmt.Errorf("ask %s for a sign of life: %w", d.Name, err)
	}
	return nil
}

// startProcesses starts the processes of the daemon that do not run.
func (d *Daemon) startProcesses() (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Name == docker.Docker && !d.containerd.isRunning() {
		if d.containerd, err = d.startProcess([]string{
			"containerd", "--config", filepath.Join(d.Dir, "containerd.toml"), "--address", filepath.Join(d.Dir, "c.sock"),
			"--root", filepath.Join(d.Dir, "croot"), "--state", filepath.Join(d.Dir, "cstate"), "--log-level", "error",
		}); err != nil {
			return err
		}
	}
	if !d.main.isRunning() {
		d.main, err = d.startProcess(d.args)
	}
	return err
}

// LogFile returns the path of the file with the daemon's output.
func (d *Daemon) LogFile() string { return cmp.Or(d.Log, filepath.Join(d.Dir, "log")) }

// Runs reports whether the daemon's process exists, also while SIGSTOP holds it.
func (d *Daemon) Runs() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.main.isRunning()
}

// Signal sends a signal to the daemon's process only, not to its containers or Docker's containerd.
func (d *Daemon) Signal(sig syscall.Signal) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.main.isRunning() {
		return fmt.Errorf("send %s to %s: it does not run", sig, d.Name)
	}
	return d.main.cmd.Process.Signal(sig)
}

// Stop ends the daemon's process by a signal, and kills it after stopTimeout. Podman's containers live on, and
// Docker's with LiveRestore. Without it, Docker ends them when it stops or at its next start.
func (d *Daemon) Stop(sig syscall.Signal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.main.endBySignal(sig)
	d.main = nil
}

// Remove ends the daemon with all its containers, and removes its folder. It joins the errors.
func (d *Daemon) Remove() error {
	var errs []error
	if d.Runs() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		_, err := d.RemoveContainers(ctx)
		errs = append(errs, err)
		cancel()
		d.Stop(syscall.SIGTERM)
	}
	errs = append(errs, d.CutPower(), d.client.Close(), UnmountBelow(d.Dir))
	if err := os.RemoveAll(d.Dir); err != nil {
		errs = append(errs, fmt.Errorf("remove the folder of %s: %w", d.Name, err))
	}
	return errors.Join(errs...)
}
