// Package tokens gives tasks their tokens of Vault and Consul, as hooks of edge/runner: before a task starts, and again, in the
// goroutine of its watcher, when the task has got another one. The watcher also keeps the token and the contents of the task
// valid. A task waits for its first token. Once it has one, nothing that the server does, or does not, ends it.
package tokens

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry/edge/artifacts"
	"skerry/edge/consul"
	"skerry/edge/identities"
	"skerry/edge/logins"
	"skerry/edge/runner"
	"skerry/edge/vault"
	"skerry/fleet"
	"skerry/internal/remoteapi"
)

// fileMode is that of the token's file, as in Nomad: the folder of the task's secrets keeps others out.
const fileMode = 0o644

// maxFile bounds what is read of the token's file, in bytes.
const maxFile = 64 << 10

const (
	// remindAfter is how long a task waits for its identity before an event says so.
	remindAfter = 5 * time.Second
	// minRetry and maxRetry bound the pauses after the server did not do what it was asked.
	minRetry = 5 * time.Second
	maxRetry = time.Minute
	// upkeepPoll is the longest time between two looks for what is due.
	upkeepPoll = time.Minute
)

// use is what a task does with its token.
type use struct {
	logins.Task
	file                     string // below the task's folder; "": none
	changeMode, changeSignal string // "": the task is not told, and reads its file again
}

// server is what differs between Vault and Consul.
type server struct {
	name     string                           // in texts
	event    string                           // its type
	contents string                           // what is read with a token
	flag     string                           // of the edge
	keeper   *logins.Keeper                   // nil: this edge has no such server
	useOf    func(p *runner.Preparation) *use // nil: the task does not log in; it is called with a keeper alone
	logsIn   func(t *fleet.Task) bool
}

// Hook gives tasks their tokens of one server. It implements runner.Hook and runner.Watcher.
type Hook struct {
	server
	identities *identities.Keeper
	log        *slog.Logger
}

// ForVault makes the hook of the tokens of Vault. Without a keeper, this edge has no Vault.
func ForVault(k *vault.Keeper, ids *identities.Keeper, log *slog.Logger) *Hook {
	s := server{name: "Vault", event: fleet.TaskVault, contents: "secrets", flag: "--vault-address", logsIn: func(t *fleet.Task) bool { return t.Vault != nil }}
	if k != nil {
		s.keeper = k.Keeper
		s.useOf = func(p *runner.Preparation) *use {
			block := p.Task.Vault
			u := &use{Task: k.Client().Task(p.Alloc.ID, p.Task.Name, block), file: fleet.VaultTokenFile, changeMode: block.ChangeMode, changeSignal: block.ChangeSignal}
			if block.DisableFile {
				u.file = ""
			}
			return u
		}
	}
	return &Hook{s, ids, log}
}

// ForConsul makes the hook of the tokens of Consul. Without a keeper, this edge has no Consul in which tasks log in.
func ForConsul(k *consul.Keeper, ids *identities.Keeper, log *slog.Logger) *Hook {
	s := server{name: "Consul", event: fleet.TaskConsul, contents: "keys", flag: "--consul-address", logsIn: (*fleet.Task).LogsInToConsul}
	if k != nil {
		s.keeper = k.Keeper
		s.useOf = func(p *runner.Preparation) *use {
			return &use{Task: k.Client().Task(p.Alloc.ID, p.Task.Name), file: fleet.ConsulTokenFile}
		}
	}
	return &Hook{s, ids, log}
}

// Name implements runner.Hook.
func (h *Hook) Name() string { return h.name + " token" }

// Release implements runner.Hook. The file ends with the task's folder, and the Keeper forgets the token.
func (h *Hook) Release(context.Context, fleet.Alloc) error { return nil }

// identityOf returns the newest JWT with which a task logs in; "": there is none yet.
func (h *Hook) identityOf(u *use) (jwt string, changed <-chan struct{}) {
	jwt, changed, _ = h.identities.Token(u.Alloc, u.Name, u.Identity)
	return jwt, changed
}

// Prepare implements runner.Hook: it makes sure that the task has a valid token, and writes it. A task without one waits. A
// task that had one before starts with that if the server does not answer, or refuses.
func (h *Hook) Prepare(ctx context.Context, p *runner.Preparation) error {
	if !h.logsIn(p.Task) {
		return nil
	}
	if h.keeper == nil {
		return fleet.Errorf(fleet.CodeInvalid, "log in to %s: this edge has none", h.name).WithHint("start it with %s", h.flag)
	}
	u, said := h.useOf(p), ""
	for pause := minRetry; ; pause = min(2*pause, maxRetry) {
		jwt, changed := h.identityOf(u)
		err := h.keeper.Renew(ctx, u.Task, jwt)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		token := h.keeper.Token(u.Task)
		if err != nil && token != "" {
			if err := p.Event(h.event, fmt.Sprintf("The task starts with the %s token that it had: %v", h.name, err)); err != nil {
				return err
			}
		}
		if token != "" {
			return h.writeToken(p, u, token)
		}
		if jwt == "" && said == "" && !waitFor(ctx, changed, remindAfter) {
			continue // it has come
		}
		if problem := problemOf(err, jwt); problem != said && ctx.Err() == nil {
			said = problem
			if err := p.Event(h.event, fmt.Sprintf("The task waits for its %s token: %v", h.name, err)); err != nil {
				return err
			}
		}
		waitFor(ctx, changed, pause)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// problemOf is the same for errors of which one event is enough: each refusal has its own reason, an absence has many texts.
func problemOf(err error, jwt string) string {
	if jwt == "" {
		return "no identity"
	}
	if remoteapi.IsRefused(err) {
		return err.Error()
	}
	return "away"
}

// waitFor waits for a time, and reports whether all of it has passed. It ends early when changed is closed, or with ctx.
func waitFor(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-changed:
	case <-ctx.Done():
	}
	return false
}

// writeToken replaces the file of the token.
func (h *Hook) writeToken(p *runner.Preparation, u *use, token string) error {
	if u.file == "" {
		return nil
	}
	dest, err := artifacts.Destination(p, u.file, "")
	if err == nil {
		err = artifacts.ReplaceFile(p, dest, artifacts.File{Text: token, Mode: fileMode})
	}
	if err != nil {
		return fmt.Errorf("write the %s token: %w", h.name, err)
	}
	return nil
}

// KeepValid does what is due for a task that waits in a later hook, as Watch does it for a running task: it renews its token and its
// contents, and replaces the file of the token. It asks the server for nothing that is not due, so it may be called often.
func (h *Hook) KeepValid(ctx context.Context, p *runner.Preparation) error {
	if !h.logsIn(p.Task) || h.keeper == nil {
		return nil
	}
	u := h.useOf(p)
	u.LetExpire = false // the task does not run yet
	jwt, _ := h.identityOf(u)
	_, err := h.keeper.Upkeep(ctx, u.Task, jwt)
	if token := h.keeper.Token(u.Task); token != "" {
		err = errors.Join(err, h.writeToken(p, u, token))
	}
	return err
}

// readToken reads the file of the token. Without one, the task got the newest.
func readToken(p *runner.Preparation, u *use, newest string) string {
	if u.file == "" {
		return newest
	}
	dest, err := artifacts.Destination(p, u.file, "")
	if err != nil {
		return newest
	}
	f, err := artifacts.OpenFile(p, dest)
	if err != nil {
		return newest
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return newest
	}
	return string(text)
}

// watch watches the token of one attempt.
type watch struct {
	hook    *Hook
	p       *runner.Preparation
	use     *use
	control runner.TaskControl
	written string // the token that the task has
	failing bool   // an event has said that the server does not do what it is asked
	unsaved bool   // an event has said that the file cannot be written
}

// Watch implements runner.Watcher: it renews the token and the contents of the task, and tells the task by its change_mode
// when it has another token. One that came while no agent ran is found by the file, which has an older one.
func (h *Hook) Watch(ctx context.Context, p *runner.Preparation, control runner.TaskControl) {
	if !h.logsIn(p.Task) || h.keeper == nil {
		return
	}
	u := h.useOf(p)
	w := &watch{hook: h, p: p, use: u, control: control, written: readToken(p, u, h.keeper.Token(u.Task))}
	for pause := minRetry; ; {
		jwt, _ := h.identityOf(u)
		next, failed := h.keeper.Upkeep(ctx, u.Task, jwt)
		if ctx.Err() != nil {
			return
		}
		err := w.reportUpkeep(ctx, failed)
		if err == nil {
			err = w.giveToken(ctx)
		}
		if err != nil {
			if ctx.Err() == nil {
				h.log.Warn("the token of a task is no longer renewed", "server", h.name, "alloc_id", string(p.Alloc.ID), "task", p.Task.Name, "error", err)
			}
			return
		}
		if next > 0 {
			next, pause = min(next, upkeepPoll), minRetry
		} else {
			next, pause = pause, min(2*pause, maxRetry)
		}
		if !waitFor(ctx, nil, next) {
			return
		}
	}
}

// reportUpkeep sends an event when the server begins to fail, and when it does no longer. An error means that the task or the
// agent ends.
func (w *watch) reportUpkeep(ctx context.Context, failed error) error {
	if (failed != nil) == w.failing {
		return nil
	}
	w.failing = failed != nil
	if failed == nil {
		return w.control.Event(ctx, w.hook.event, fmt.Sprintf("%s token and %s are renewed again", w.hook.name, w.hook.contents))
	}
	return w.control.Event(ctx, w.hook.event, fmt.Sprintf("The task goes on with the %s token and the %s that it has: %v", w.hook.name, w.hook.contents, failed))
}

// giveToken writes a token that the task does not have yet, and tells the task. An error means that the task or the agent
// ends.
func (w *watch) giveToken(ctx context.Context) error {
	token := w.hook.keeper.Token(w.use.Task)
	if token == "" || token == w.written {
		return nil
	}
	if err := w.hook.writeToken(w.p, w.use, token); err != nil {
		if w.unsaved {
			return nil
		}
		w.unsaved = true
		return w.control.Event(ctx, w.hook.event, err.Error())
	}
	w.written, w.unsaved = token, false
	why := w.hook.name + " gave the task another token"
	switch w.use.changeMode {
	case "":
		return nil
	case fleet.ChangeNoop:
		return w.control.Event(ctx, w.hook.event, why)
	case fleet.ChangeSignal:
		if err := w.control.Signal(ctx, w.use.changeSignal, why); err != nil {
			return w.control.Event(ctx, w.hook.event, fmt.Sprintf("%s: the signal %s was not sent: %v", why, w.use.changeSignal, err))
		}
		return nil
	}
	return w.control.Restart(ctx, why)
}

// Environment is the hook that puts tokens into the environment of tasks. It comes after the hook of templates, so that no
// template has a token.
type Environment struct {
	Vault  *vault.Keeper  // nil: this edge has none
	Consul *consul.Keeper // nil: this edge has none in which tasks log in
}

// Name implements runner.Hook.
func (e *Environment) Name() string { return "token environment" }

// Release implements runner.Hook.
func (e *Environment) Release(context.Context, fleet.Alloc) error { return nil }

// Prepare implements runner.Hook.
func (e *Environment) Prepare(_ context.Context, p *runner.Preparation) error {
	if block := p.Task.Vault; block != nil && e.Vault != nil && block.Env {
		client := e.Vault.Client()
		err := setEnv(p, fleet.TaskVault, map[string]string{"VAULT_TOKEN": e.Vault.Token(client.Task(p.Alloc.ID, p.Task.Name, block))},
			map[string]string{"VAULT_ADDR": client.Address(), "VAULT_NAMESPACE": client.Namespace(block.Namespace)})
		if err != nil {
			return err
		}
	}
	if p.Task.LogsInToConsul() && e.Consul != nil {
		client, tokens := e.Consul.Client(), map[string]string{}
		if block := p.Task.Consul; block != nil && block.Env {
			token := e.Consul.Token(client.Task(p.Alloc.ID, p.Task.Name))
			tokens = map[string]string{"CONSUL_HTTP_TOKEN": token, "CONSUL_TOKEN": token}
		}
		file := p.Folders.SecretsDir + strings.TrimPrefix(fleet.ConsulTokenFile, "secrets")
		return setEnv(p, fleet.TaskConsul, tokens, map[string]string{"CONSUL_HTTP_ADDR": client.Address(), "CONSUL_HTTP_TOKEN_FILE": file})
	}
	return nil
}

// setEnv sets variables with the tokens of a task, and others where the job has none of its own. Where the environment cannot be
// kept off the disk, the tokens are in it all the same, as the job asks for, and an event says so.
func setEnv(p *runner.Preparation, event string, secrets, others map[string]string) error {
	if len(secrets) > 0 {
		switch err := p.SetSecretVars(secrets); {
		case fleet.CodeOf(err) == fleet.CodeUnsupported:
			p.SetVars(secrets)
			what := strings.Join(slices.Sorted(maps.Keys(secrets)), " and ")
			if err := p.Event(event, fmt.Sprintf("The environment, which is on the edge's disk, has %s: %v", what, err)); err != nil {
				return err
			}
		case err != nil:
			return err
		}
	}
	mine := map[string]string{}
	for name, value := range others {
		if _, ofJob := p.Config.Env[name]; !ofJob && value != "" {
			mine[name] = value
		}
	}
	p.SetVars(mine)
	return nil
}
