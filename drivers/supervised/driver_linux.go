package supervised

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"skerry/drivers"
	"skerry/drivers/record"
	"skerry/fleet"
)

const (
	// spawnTries bounds the attempts to start a task whose supervisor is killed during the start.
	spawnTries = 5
	// startPoll is how often a start that a previous agent began is checked.
	startPoll = 5 * time.Millisecond
)

// refusal is the error of a supervisor that did not start its task. Nothing of the task runs then.
type refusal string

func (r refusal) Error() string { return string(r) }

// Fingerprint returns the driver's own fingerprint. Without the kernel's boot id the driver does not work.
func (d *Driver) Fingerprint(ctx context.Context) fleet.DriverInfo {
	if d.bootID == "" {
		return fleet.DriverInfo{Detected: true, HealthDescription: "the kernel's boot id cannot be read: is /proc mounted?"}
	}
	if d.cfg.Fingerprint != nil {
		return d.cfg.Fingerprint(ctx)
	}
	return fleet.DriverInfo{
		Detected: true, Healthy: true, HealthDescription: "Healthy",
		Attributes: map[string]string{"driver." + d.cfg.Name: "1"},
	}
}

// Start starts a task, or finds it if it was started before under its ID. A missing command is a
// permanent error; a lack of processes, memory or files is recoverable.
func (d *Driver) Start(ctx context.Context, cfg drivers.TaskConfig) (drivers.Handle, error) {
	for _, dir := range []string{cfg.StateDir, cfg.Dir, cfg.LogDir} {
		if !filepath.IsAbs(dir) {
			return drivers.Handle{}, fmt.Errorf("start task %s: folder %q is not an absolute path", cfg.ID, dir)
		}
	}
	if id, found, err := d.findOrAwaitTask(ctx, cfg.StateDir); found || err != nil {
		if err != nil {
			return drivers.Handle{}, fmt.Errorf("start task %s: %w", cfg.ID, err)
		}
		return d.encodeHandle(cfg.ID, id)
	}
	if err := d.prepareStateDir(ctx, cfg); err != nil {
		return drivers.Handle{}, fmt.Errorf("start task %s: %w", cfg.ID, err)
	}
	if err := d.ensureSupervisor(ctx, cfg.StateDir); err != nil {
		if errors.As(err, new(refusal)) {
			_ = os.RemoveAll(cfg.StateDir) // no process of the task runs, and the next start has another folder
		}
		return drivers.Handle{}, fmt.Errorf("start task %s: %w", cfg.ID, err)
	}
	id, found, err := d.findOrAwaitTask(ctx, cfg.StateDir)
	if err == nil && !found {
		err = errUnsupervised
	}
	if err != nil {
		return drivers.Handle{}, drivers.Recoverable(fmt.Errorf("start task %s: %w", cfg.ID, err))
	}
	return d.encodeHandle(cfg.ID, id)
}

// Recover finds a task by its Handle. A running task that has lost its supervisor gets another one, which
// adopts it.
func (d *Driver) Recover(ctx context.Context, cfg drivers.TaskConfig, h drivers.Handle) (drivers.Task, error) {
	if err := h.CheckReader(d.cfg.Name, recordVersion); err != nil {
		return nil, fmt.Errorf("recover task %s: %w", h.TaskID, err)
	}
	var id identity
	if h.Version > 0 {
		var err error
		if id, err = decodeIdentity(h.State); err != nil {
			return nil, fmt.Errorf("recover task %s: %w", h.TaskID, err)
		}
	}
	t := &task{driver: d, dir: cfg.StateDir, id: h.TaskID}
	if t.Ended() {
		if e := t.exit.Load(); e.BootID != d.bootID && e.Interrupted {
			return nil, drivers.ErrTaskGone // the reboot ended it
		}
		return t, nil
	}
	now, found, err := d.findOrAwaitTask(ctx, cfg.StateDir)
	if err != nil {
		return nil, fmt.Errorf("recover task %s: %w", h.TaskID, err)
	}
	if !found || h.Version > 0 && now != id {
		return nil, drivers.ErrTaskGone
	}
	if hasSupervisor(t.dir) {
		return t, nil
	}
	d.log.Warn("task had lost its supervisor", "task_id", h.TaskID, "pid", now.PID)
	if err := d.ensureSupervisor(ctx, t.dir); err != nil {
		return nil, fmt.Errorf("recover task %s: %w", h.TaskID, err)
	}
	if !now.isAlive() {
		if _, err := t.Wait(ctx); err != nil {
			return nil, fmt.Errorf("recover task %s: %w", h.TaskID, err)
		}
	}
	return t, nil
}

// findOrAwaitTask reads the identity of a state folder's task: one that has ended, or one that was started in this
// boot and in this very folder. It returns false if there is none. It waits while a supervisor is starting the task.
func (d *Driver) findOrAwaitTask(ctx context.Context, dir string) (identity, bool, error) {
	for {
		var rec taskRecord
		readErr := record.Read(dir, taskFile, &rec)
		var exit exitRecord
		if record.Read(dir, exitFile, &exit) == nil && (exit.BootID == d.bootID || !exit.Interrupted) {
			return rec.identity, true, nil
		}
		if readErr == nil {
			return rec.identity, rec.BootID == d.bootID && rec.isInFolder(dir), nil
		}
		if !errors.Is(readErr, record.ErrNone) { // the disk or the limit of open files may recover
			return identity{}, false, drivers.Recoverable(readErr)
		}
		if !hasSupervisor(dir) {
			return identity{}, false, nil
		}
		select {
		case <-ctx.Done():
			return identity{}, false, ctx.Err()
		case <-time.After(startPoll):
		}
	}
}

// prepareStateDir makes the state folder with its FIFOs and writes the spec. It removes the records of another
// boot, or of the original of a copied folder.
func (d *Driver) prepareStateDir(ctx context.Context, cfg drivers.TaskConfig) (err error) {
	if err := d.cfg.Check(cfg.Config); err != nil {
		return err
	}
	if _, err := drivers.ParseSignal(cfg.KillSignal); err != nil {
		return err
	}
	if cfg.User != "" && !d.cfg.Users {
		return fleet.Errorf(fleet.CodeInvalid, "run as user %q: tasks of the driver %s have no user", cfg.User, d.cfg.Name).
			WithHint("leave out user")
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return fmt.Errorf("make state folder: %w", err)
	}
	if err := d.removeContainerOfEarlierBoot(cfg.StateDir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(cfg.StateDir) // no process of the task runs, and the next start has another folder
		}
	}()
	for _, stale := range []string{taskFile, exitFile} {
		if err := os.Remove(filepath.Join(cfg.StateDir, stale)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove stale record: %w", err)
		}
	}
	process, err := d.cfg.Build(ctx, cfg)
	if err != nil {
		return err
	}
	sp := newSpec(cfg, process, d.bootID)
	if err := sp.ValidateRecord(); err != nil {
		return err
	}
	if err := makeFIFOs(cfg.StateDir); err != nil {
		return err
	}
	return sp.writeRecords(cfg.StateDir)
}

// removeContainerOfEarlierBoot removes the state that an OCI runtime stored of the task's container before a reboot.
// The processes in that state no longer exist.
func (d *Driver) removeContainerOfEarlierBoot(dir string) error {
	var old spec
	if record.Read(dir, specFile, &old) != nil || old.Container == nil || old.BootID == d.bootID {
		return nil
	}
	if !strings.HasPrefix(old.Container.Root, dir+"/") {
		return nil // a copied folder names the container of the original
	}
	if err := os.RemoveAll(old.Container.Root); err != nil {
		return fmt.Errorf("remove container of an earlier boot: %w", err)
	}
	return nil
}

// ensureSupervisor starts a supervisor for a state folder without one. It returns when the supervisor has
// started or adopted the task, or found it ended. A refusal means that the task cannot start. Only one caller at a
// time starts supervisors for a folder: Wait and Stop both notice that one was killed.
func (d *Driver) ensureSupervisor(ctx context.Context, dir string) error {
	unlock, err := d.lockStarting(ctx, dir)
	if err != nil {
		return err
	}
	defer unlock()
	for range spawnTries {
		if hasSupervisor(dir) {
			return nil
		}
		var r startReport
		if r, err = d.spawnSupervisor(ctx, dir); err != nil && ctx.Err() != nil {
			return err
		}
		if err != nil || r.Err != "" {
			d.reapSupervisor(dir) // it has ended, or is about to
		}
		switch {
		case err != nil: // the supervisor was killed: the next one continues from its records
		case r.Err == "" || r.Supervised:
			return nil
		case r.Recoverable:
			return drivers.Recoverable(refusal(r.Err))
		default:
			return refusal(r.Err)
		}
	}
	return drivers.Recoverable(err)
}

// lockStarting waits until no other caller starts a supervisor for a state folder, and keeps others from it until
// unlock.
func (d *Driver) lockStarting(ctx context.Context, dir string) (unlock func(), err error) {
	for {
		d.mu.Lock()
		other, busy := d.starting[dir]
		if !busy {
			done := make(chan struct{})
			d.starting[dir] = done
			d.mu.Unlock()
			return func() {
				d.mu.Lock()
				delete(d.starting, dir)
				d.mu.Unlock()
				close(done)
			}, nil
		}
		d.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// spawnSupervisor starts a supervisor process and waits for its report. It is in a session of its own, so that
// the agent's terminal cannot affect it.
func (d *Driver) spawnSupervisor(ctx context.Context, dir string) (startReport, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return startReport{}, fmt.Errorf("make pipe: %w", err)
	}
	defer r.Close()
	proc, err := startSupervisor(dir, w)
	if err := errors.Join(err, w.Close()); err != nil {
		return startReport{}, err
	}
	d.reapSupervisor(dir)
	d.mu.Lock()
	d.children[dir] = proc
	d.mu.Unlock()

	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	b, err := io.ReadAll(io.LimitReader(r, record.Max))
	if ctx.Err() != nil {
		return startReport{}, ctx.Err()
	}
	if err != nil {
		return startReport{}, fmt.Errorf("read from supervisor: %w", err)
	}
	var report startReport
	if err := json.Unmarshal(b, &report); err != nil {
		return startReport{}, fmt.Errorf("start supervisor: it ended without a report: %w", err)
	}
	return report, nil
}

// startSupervisor starts a supervisor process for a state folder, with w as its readyFD. It does not wait for
// the report.
func startSupervisor(dir string, w *os.File) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open stdin: %w", err)
	}
	defer null.Close()
	said, err := os.OpenFile(filepath.Join(dir, stderrFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open supervisor's log: %w", err)
	}
	defer said.Close()
	// /proc/self/exe is the running program, even if its file was replaced.
	proc, err := os.StartProcess("/proc/self/exe", []string{os.Args[0], superviseArg, dir}, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"GOMAXPROCS=1", "GOTRACEBACK=single"},
		Files: []*os.File{null, null, said, w},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	return proc, nil
}

// reapSupervisor waits for the supervisor of a state folder, which has ended or is about to, if this process
// started it. A supervisor of a previous agent is not a child of this process.
func (d *Driver) reapSupervisor(dir string) {
	d.mu.Lock()
	proc := d.children[dir]
	delete(d.children, dir)
	d.mu.Unlock()
	if proc != nil {
		_, _ = proc.Wait()
	}
}
