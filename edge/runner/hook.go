package runner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"skerry/drivers"
	"skerry/fleet"
	"skerry/fleet/taskenv"
	"skerry/internal/redact"
)

// Hook prepares one thing that a task needs before it starts, such as its network, volumes or artifacts. Its methods
// may be called concurrently for different tasks.
type Hook interface {
	Name() string
	// Prepare is called before each attempt of a task, in the order of Factory.Hooks. It must be idempotent. ctx ends
	// when the task must stop. An error fails the start: it is final, unless drivers.Recoverable marks it for a retry
	// by the restart policy.
	Prepare(ctx context.Context, p *Preparation) error
	// Release is called after the allocation has ended, and must be idempotent. It is not called if the agent dies
	// first, so a hook must remove such leftovers at its next start.
	Release(ctx context.Context, a fleet.Alloc) error
}

// VarRestorer is implemented by a Hook that sets variables of a task which templates may read.
type VarRestorer interface {
	// RestoreVars sets the variables again that Prepare had set, for the watchers of an attempt that an earlier agent has
	// prepared. What cannot be found any more is left out.
	RestoreVars(p *Preparation)
}

// Watcher is implemented by a Hook that has work to do while a task runs.
type Watcher interface {
	// Watch is called in a goroutine of its own when an attempt runs, also for an attempt that a restarted
	// agent has found again. It returns when ctx ends, at the latest.
	Watch(ctx context.Context, p *Preparation, control TaskControl)
}

// TaskControl has the actions of a Watcher on its task. An error means that this task has ended, or that ctx has.
type TaskControl interface {
	Restart(ctx context.Context, reason string) error
	Signal(ctx context.Context, signal, reason string) error
	// Exec runs a command beside the task, as Runner.Exec does.
	Exec(ctx context.Context, x fleet.Exec) (code int, err error)
	// Event journals an event of the task.
	Event(ctx context.Context, kind, message string) error
	// Address journals the address of the task in a network that its driver made.
	Address(ctx context.Context, address string) error
}

// Preparation is one attempt of a task as hooks see it. A hook may change Config.
type Preparation struct {
	Alloc  fleet.Alloc // with its Job; shared, not to be changed
	Task   *fleet.Task // of Alloc.Job; shared, not to be changed
	Node   fleet.Node
	Config *drivers.TaskConfig // Config.Config is replaced after the last hook: it can use variables that hooks set
	// Folders are the paths of the task's folders as the task sees them (NOMAD_ALLOC_DIR and so on).
	Folders taskenv.Place
	// RenderTemplates is that of the task's restart policy: an attempt uses no older rendering of its templates.
	RenderTemplates bool
	// Event journals an event of the task. nil in Watch: use TaskControl.Event.
	Event func(kind, message string) error
	// Network journals how the allocation is reached in its own network, if that is new. nil in Watch.
	Network func(s fleet.NetworkStatus) error
	// MemoryDir makes the folder for Config.MemoryDir. A fleet.CodeUnsupported says why the task's environment cannot be kept
	// off the disk. nil: it cannot.
	MemoryDir func() (string, error)

	env        taskenv.Env
	memoryDir  string            // that MemoryDir has made; "": none yet
	secretVars map[string]bool   // set by SetSecretVars
	secrets    map[string]string // set by SetSecrets
	hidden     []string          // values of both, which no event and no error of the task may have
}

// SetVars sets variables of the task.
func (p *Preparation) SetVars(vars map[string]string) {
	if p.Config.Env == nil {
		p.Config.Env = map[string]string{}
	}
	maps.Copy(p.Config.Env, vars)
}

// SetSecretVars sets variables whose values may not be on the disk, nor in events. Its errors are those of RequireMemory.
func (p *Preparation) SetSecretVars(vars map[string]string) error {
	p.hidden = slices.AppendSeq(p.hidden, maps.Values(vars))
	dir, err := p.RequireMemory()
	if err != nil {
		return err
	}
	p.Config.MemoryDir = dir
	p.SetVars(vars)
	if p.secretVars == nil {
		p.secretVars = map[string]bool{}
	}
	for name := range vars {
		p.secretVars[name] = true
	}
	return nil
}

// SetSecrets sets the items of the task's secrets by reference (secret.NAME.KEY), for ${secret.NAME.KEY} in its env and config
// blocks. A reference without an item is a recoverable error. Other errors are those of RequireMemory.
func (p *Preparation) SetSecrets(items map[string]string) error {
	for _, ref := range append(fleet.SecretReferencesIn(p.Task.Env), fleet.SecretReferencesIn(p.Task.Config)...) {
		if _, ok := items[ref]; !ok {
			return drivers.Recoverable(fleet.Errorf(fleet.CodeNotFound, "${%s}: the secret has no such item", ref))
		}
	}
	p.secrets, p.hidden = items, slices.AppendSeq(p.hidden, maps.Values(items))
	if !p.Task.PassesSecrets() {
		return nil
	}
	where := p.Folders
	where.Secrets = items
	all, vars := taskenv.New(where).Vars(), map[string]string{}
	for name, text := range p.Task.Env {
		if len(fleet.SecretReferences(text)) > 0 {
			vars[name] = all[name]
		}
	}
	return p.SetSecretVars(vars)
}

// IsSecretVar reports whether SetSecretVars has set a variable.
func (p *Preparation) IsSecretVar(name string) bool { return p.secretVars[name] }

// RequireMemory returns the folder for Config.MemoryDir. A fleet.CodeUnsupported is final, any other error recoverable.
func (p *Preparation) RequireMemory() (dir string, err error) {
	switch {
	case p.memoryDir != "":
		return p.memoryDir, nil
	case p.MemoryDir == nil:
		return "", fleet.Errorf(fleet.CodeUnsupported, "the environment of the task is on the edge's disk")
	}
	if p.memoryDir, err = p.MemoryDir(); err != nil && fleet.CodeOf(err) != fleet.CodeUnsupported {
		err = drivers.Recoverable(err)
	}
	return p.memoryDir, err
}

// Replace replaces every known ${…} in s: properties of the node and variables of the task, those of hooks
// included.
func (p *Preparation) Replace(s string) string { return p.env.With(p.Config.Env).Replace(s) }

// eventRequest asks a task's goroutine to journal an event. The reply comes when it is durable.
type eventRequest struct {
	kind, message string
	reply         chan error
}

// newPreparation returns the Preparation of the current attempt, before any hook has changed it.
func (t *task) newPreparation(s spec) *Preparation {
	cfg := t.driverConfig(s)
	where := t.taskPlace(s)
	attempt := t.rec.Attempt
	return &Preparation{
		Alloc: s.alloc, Task: s.alloc.Group().Task(t.name), Node: *where.Node, Config: &cfg, Folders: where,
		RenderTemplates: s.policy.RenderTemplates, env: t.taskEnv(s),
		MemoryDir: func() (string, error) { return t.makeMemoryDir(s.task.Driver, attempt) },
	}
}

// makeMemoryDir makes the folder in memory for an attempt by a driver, or returns a fleet.CodeUnsupported.
func (t *task) makeMemoryDir(driver string, attempt int) (string, error) {
	f := &t.runner.factory
	if d, ok := f.Drivers[driver]; !ok || !d.Capabilities().HidesEnv {
		return "", fleet.Errorf(fleet.CodeUnsupported, "the driver %s keeps the environment of its tasks on the edge's disk", driver)
	}
	if f.MemoryDir == nil {
		return "", fleet.Errorf(fleet.CodeUnsupported, "this edge keeps the environment of its tasks on its disk")
	}
	return f.MemoryDir(t.runner.id, t.name, attempt)
}

// prepareAttempt lets the hooks prepare the current attempt and returns its configuration.
func (t *task) prepareAttempt(ctx context.Context, s spec) (drivers.TaskConfig, error) {
	p := t.newPreparation(s)
	defer func() { t.hidden = redact.NewValues(p.hidden...) }()
	preparing, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	wg.Go(func() {
		select {
		case <-t.killed: // a download may take long
			cancel(errEnded)
		case <-preparing.Done():
		}
	})
	p.Event = func(kind, message string) error {
		return t.reportSteps(ctx, step{event: t.newTaskEvent(kind, redact.NewValues(p.hidden...).Text(message))})
	}
	p.Network = func(s fleet.NetworkStatus) error { return t.runner.recordNetwork(ctx, s) }
	for _, h := range t.runner.factory.Hooks {
		if err := h.Prepare(preparing, p); err != nil {
			return drivers.TaskConfig{}, fmt.Errorf("prepare the %s of task %s: %w", h.Name(), t.name, err)
		}
	}
	p.Config.Config = p.env.With(p.Config.Env).WithSecrets(p.secrets).ReplaceAll(s.task.Config)
	t.prepared = p
	return *p.Config, nil
}

// newWatchPreparation returns the Preparation of the running attempt, with the variables that hooks have set. Each watcher gets
// a copy.
func (t *task) newWatchPreparation(s spec) *Preparation {
	p := t.newPreparation(s)
	if t.prepared != nil && t.prepared.Config.ID == p.Config.ID {
		p.Config.Env, p.secretVars, p.memoryDir = t.prepared.Config.Env, t.prepared.secretVars, t.prepared.memoryDir
		p.hidden = t.prepared.hidden
		return p
	}
	for _, h := range t.runner.factory.Hooks {
		if r, ok := h.(VarRestorer); ok {
			r.RestoreVars(p)
		}
	}
	return p
}

// copyForWatcher returns a copy whose variables a watcher may change.
func (p *Preparation) copyForWatcher() *Preparation {
	c, cfg := *p, *p.Config
	cfg.Env = maps.Clone(cfg.Env)
	c.Config, c.secretVars, c.hidden = &cfg, maps.Clone(p.secretVars), slices.Clone(p.hidden)
	return &c
}

// startWatchers starts the hooks that watch the running attempt. They end with ctx.
func (t *task) startWatchers(ctx context.Context, wg *sync.WaitGroup) {
	s, err := t.currentSpec()
	if err != nil {
		return // the newest version has no such task: this one will be stopped
	}
	shared := t.newWatchPreparation(s)
	t.hidden = redact.NewValues(shared.hidden...)
	for _, h := range t.runner.factory.Hooks {
		if w, ok := h.(Watcher); ok {
			p := shared.copyForWatcher()
			wg.Go(func() { w.Watch(ctx, p, watcherControl{t}) })
		}
	}
}

// releaseHooks calls Release of the hooks after the end of the allocation.
func (r *Runner) releaseHooks(ctx context.Context) {
	a := r.currentAlloc()
	for _, h := range r.factory.Hooks {
		if err := h.Release(ctx, a); err != nil {
			r.log.Warn("resources of an ended allocation not released", "hook", h.Name(), "error", err)
		}
	}
}

// watcherControl implements TaskControl for the watchers of one attempt.
type watcherControl struct{ task *task }

func (c watcherControl) Restart(ctx context.Context, reason string) error {
	return c.task.requestRestart(ctx, restartRequest{reason: reason})
}

func (c watcherControl) Signal(ctx context.Context, signal, reason string) error {
	return c.task.requestSignal(ctx, signal, reason)
}

func (c watcherControl) Exec(ctx context.Context, x fleet.Exec) (int, error) {
	return c.task.runner.Exec(ctx, c.task.name, x)
}

func (c watcherControl) Event(ctx context.Context, kind, message string) error {
	req := eventRequest{kind: kind, message: message, reply: make(chan error, 1)}
	return sendRequest(ctx, c.task, c.task.events, req, req.reply)
}

func (c watcherControl) Address(ctx context.Context, address string) error {
	return c.task.runner.recordWithRetry(ctx, fleet.Transition{
		Kind: fleet.TransitionAlloc, Alloc: c.task.runner.id, Task: c.task.name, Network: &fleet.NetworkStatus{Address: address},
		Message: fmt.Sprintf("address of task %s: %s", c.task.name, address),
	})
}
