// Package tokens gives tasks their Vault tokens, as a hook of edge/runner: before a task starts, and again, in the goroutine
// of its watcher, when the task has got another one. The watcher also keeps the token and the secrets of the task valid. A
// task waits for its first token. Once it has one, nothing that Vault does, or does not, ends it.
package tokens

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"skerry/edge/artifacts"
	"skerry/edge/identities"
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
	// minRetry and maxRetry bound the pauses after Vault did not do what it was asked.
	minRetry = 5 * time.Second
	maxRetry = time.Minute
	// upkeepPoll is the longest time between two looks for what is due.
	upkeepPoll = time.Minute
)

// Hook gives tasks their tokens. It implements runner.Hook and runner.Watcher.
type Hook struct {
	Keeper     *vault.Keeper // nil: this edge has no Vault
	Identities *identities.Keeper
	Log        *slog.Logger
}

// Name implements runner.Hook.
func (h *Hook) Name() string { return "Vault token" }

// Release implements runner.Hook. The file ends with the task's folder, and the Keeper forgets the token.
func (h *Hook) Release(context.Context, fleet.Alloc) error { return nil }

// taskOf returns the task of an attempt, as the Keeper knows it.
func taskOf(p *runner.Preparation) vault.Task {
	return vault.Task{Alloc: p.Alloc.ID, Name: p.Task.Name, Block: p.Task.Vault}
}

// identityOf returns the newest JWT with which the task logs in; "": there is none yet.
func (h *Hook) identityOf(p *runner.Preparation) (jwt string, changed <-chan struct{}) {
	jwt, changed, _ = h.Identities.Token(p.Alloc.ID, p.Task.Name, fleet.VaultIdentity)
	return jwt, changed
}

// Prepare implements runner.Hook: it makes sure that the task has a valid token, and writes it. A task without one waits. A
// task that had one before starts with that if Vault does not answer, or refuses.
func (h *Hook) Prepare(ctx context.Context, p *runner.Preparation) error {
	if p.Task.Vault == nil {
		return nil
	}
	if h.Keeper == nil {
		return fleet.Errorf(fleet.CodeInvalid, "log in to Vault: this edge has none").WithHint("start it with --vault-address")
	}
	said := ""
	for pause := minRetry; ; pause = min(2*pause, maxRetry) {
		jwt, changed := h.identityOf(p)
		err := h.Keeper.Renew(ctx, taskOf(p), jwt)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		token := h.Keeper.Token(taskOf(p))
		if err != nil && token != "" {
			if err := p.Event(fleet.TaskVault, fmt.Sprintf("The task starts with the Vault token that it had: %v", err)); err != nil {
				return err
			}
		}
		if token != "" {
			return writeToken(p, token)
		}
		if jwt == "" && said == "" && !waitFor(ctx, changed, remindAfter) {
			continue // it has come
		}
		if problem := problemOf(err, jwt); problem != said && ctx.Err() == nil {
			said = problem
			if err := p.Event(fleet.TaskVault, fmt.Sprintf("The task waits for its Vault token: %v", err)); err != nil {
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
func writeToken(p *runner.Preparation, token string) error {
	if p.Task.Vault.DisableFile {
		return nil
	}
	dest, err := artifacts.Destination(p, fleet.VaultTokenFile, "")
	if err == nil {
		err = artifacts.ReplaceFile(p, dest, artifacts.File{Text: token, Mode: fileMode})
	}
	if err != nil {
		return fmt.Errorf("write the Vault token: %w", err)
	}
	return nil
}

// readToken reads the file of the token. Without one, the task got the newest.
func readToken(p *runner.Preparation, newest string) string {
	dest, err := artifacts.Destination(p, fleet.VaultTokenFile, "")
	if err != nil || p.Task.Vault.DisableFile {
		return newest
	}
	root, err := os.OpenRoot(filepath.Dir(p.Config.Dir))
	if err != nil {
		return newest
	}
	defer root.Close()
	f, err := root.Open(dest)
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
	control runner.TaskControl
	written string // the token that the task has
	failing bool   // an event has said that Vault does not do what it is asked
	unsaved bool   // an event has said that the file cannot be written
}

// Watch implements runner.Watcher: it renews the token and the secrets of the task, and tells the task by its change_mode
// when it has another token. One that came while no agent ran is found by the file, which has an older one.
func (h *Hook) Watch(ctx context.Context, p *runner.Preparation, control runner.TaskControl) {
	if p.Task.Vault == nil || h.Keeper == nil {
		return
	}
	w := &watch{hook: h, p: p, control: control, written: readToken(p, h.Keeper.Token(taskOf(p)))}
	for pause := minRetry; ; {
		jwt, _ := h.identityOf(p)
		next, failed := h.Keeper.Upkeep(ctx, taskOf(p), jwt)
		if ctx.Err() != nil {
			return
		}
		err := w.reportUpkeep(ctx, failed)
		if err == nil {
			err = w.giveToken(ctx)
		}
		if err != nil {
			if ctx.Err() == nil {
				h.Log.Warn("the Vault token of a task is no longer renewed", "alloc_id", string(p.Alloc.ID), "task", p.Task.Name, "error", err)
			}
			return
		}
		if failed == nil {
			next, pause = min(next, upkeepPoll), minRetry
		} else {
			next, pause = pause, min(2*pause, maxRetry)
		}
		if !waitFor(ctx, nil, next) {
			return
		}
	}
}

// reportUpkeep sends an event when Vault begins to fail, and when it does no longer. An error means that the task or the
// agent ends.
func (w *watch) reportUpkeep(ctx context.Context, failed error) error {
	if (failed != nil) == w.failing {
		return nil
	}
	w.failing = failed != nil
	if failed == nil {
		return w.control.Event(ctx, fleet.TaskVault, "Vault token and secrets are renewed again")
	}
	return w.control.Event(ctx, fleet.TaskVault, fmt.Sprintf("The task goes on with the Vault token and the secrets that it has: %v", failed))
}

// giveToken writes a token that the task does not have yet, and tells the task. An error means that the task or the agent
// ends.
func (w *watch) giveToken(ctx context.Context) error {
	token := w.hook.Keeper.Token(taskOf(w.p))
	if token == "" || token == w.written {
		return nil
	}
	if err := writeToken(w.p, token); err != nil {
		if w.unsaved {
			return nil
		}
		w.unsaved = true
		return w.control.Event(ctx, fleet.TaskVault, err.Error())
	}
	w.written, w.unsaved = token, false
	const why = "Vault gave the task another token"
	block := w.p.Task.Vault
	switch block.ChangeMode {
	case fleet.ChangeNoop:
		return w.control.Event(ctx, fleet.TaskVault, why)
	case fleet.ChangeSignal:
		if err := w.control.Signal(ctx, block.ChangeSignal, why); err != nil {
			return w.control.Event(ctx, fleet.TaskVault, fmt.Sprintf("%s: the signal %s was not sent: %v", why, block.ChangeSignal, err))
		}
		return nil
	}
	return w.control.Restart(ctx, why)
}

// Environment is the hook that puts the token into the environment of tasks. It comes after the hook of templates, so that no
// template has the token.
type Environment struct {
	Keeper *vault.Keeper // nil: this edge has no Vault
}

// Name implements runner.Hook.
func (e *Environment) Name() string { return "Vault environment" }

// Release implements runner.Hook.
func (e *Environment) Release(context.Context, fleet.Alloc) error { return nil }

// Prepare implements runner.Hook.
func (e *Environment) Prepare(_ context.Context, p *runner.Preparation) error {
	if p.Task.Vault == nil || e.Keeper == nil || !p.Task.Vault.Env {
		return nil
	}
	if p.Config.Env == nil {
		p.Config.Env = map[string]string{}
	}
	client := e.Keeper.Client()
	p.Config.Env["VAULT_TOKEN"] = e.Keeper.Token(taskOf(p))
	for name, value := range map[string]string{"VAULT_ADDR": client.Address(), "VAULT_NAMESPACE": client.Namespace(p.Task.Vault.Namespace)} {
		if _, ofJob := p.Config.Env[name]; !ofJob && value != "" {
			p.Config.Env[name] = value
		}
	}
	return nil
}
