// Package files gives tasks the tokens of their identities, as a hook of edge/runner: in files and in the environment, before
// a task starts, and again in files, in the goroutine of its watcher, when a hub has renewed a token. It persists nothing else.
package files

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"skerry/drivers"
	"skerry/edge/artifacts"
	"skerry/edge/identities"
	"skerry/edge/runner"
	"skerry/fleet"
	"skerry/syncproto"
)

// fileMode is that of a token's file, as in Nomad: the folder of the task's secrets keeps others out.
const fileMode = 0o644

// remindAfter is how long a task waits for its tokens before an event says so.
const remindAfter = 5 * time.Second

// writeRetry is the pause before a file that could not be written is tried again.
const writeRetry = time.Minute

// Hook writes the tokens of tasks into their files. It implements runner.Hook and runner.Watcher.
type Hook struct {
	Keeper *identities.Keeper
	Log    *slog.Logger
}

// Name implements runner.Hook.
func (h *Hook) Name() string { return "identities" }

// Release implements runner.Hook. The files end with the task's folder, and the Keeper forgets the tokens.
func (h *Hook) Release(context.Context, fleet.Alloc) error { return nil }

// Prepare implements runner.Hook: it writes the newest token of each identity. A task whose tokens no hub has delivered yet
// waits for them.
func (h *Hook) Prepare(ctx context.Context, p *runner.Preparation) error {
	all := p.Task.ExposedIdentities()
	for i := range all {
		token, err := h.waitForToken(ctx, p, &all[i])
		if err != nil {
			return err
		}
		if err := writeToken(p, &all[i], token); err != nil {
			return err
		}
		if !all[i].Env {
			continue
		}
		if err := setToken(p, &all[i], token); err != nil {
			return fmt.Errorf("set %s: %w", all[i].EnvName(), err)
		}
	}
	return nil
}

// setToken sets the variable of an identity, and notes in memory which token the task has.
func setToken(p *runner.Preparation, w *fleet.WorkloadIdentity, token string) error {
	if err := p.SetSecretVars(map[string]string{w.EnvName(): token}); err != nil {
		return err
	}
	return drivers.Recoverable(os.WriteFile(filepath.Join(p.Config.MemoryDir, w.EnvName()), []byte(token), 0o600))
}

// RestoreVars implements runner.VarRestorer.
func (h *Hook) RestoreVars(p *runner.Preparation) {
	for _, w := range p.Task.ExposedIdentities() {
		if !w.Env {
			continue
		}
		if token, err := noteOfToken(p, &w); err == nil {
			_ = p.SetSecretVars(map[string]string{w.EnvName(): token}) // the folder in memory is there
		}
	}
}

// noteOfToken returns the token that a task has in its environment.
func noteOfToken(p *runner.Preparation, w *fleet.WorkloadIdentity) (string, error) {
	dir, err := p.RequireMemory()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, w.EnvName()))
	return string(text), err
}

// tokenOfTask returns the token that a running task has of an identity.
func tokenOfTask(p *runner.Preparation, w *fleet.WorkloadIdentity) (string, error) {
	if w.File {
		return readToken(p, w)
	}
	return noteOfToken(p, w)
}

// waitForToken returns the token of an identity, once there is one.
func (h *Hook) waitForToken(ctx context.Context, p *runner.Preparation, w *fleet.WorkloadIdentity) (string, error) {
	remind := time.NewTimer(remindAfter)
	defer remind.Stop()
	for {
		token, changed, ok := h.Keeper.Token(p.Alloc.ID, p.Task.Name, w.Name)
		if ok {
			return token, nil
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-changed:
		case <-remind.C:
			if err := p.Event(fleet.TaskIdentity, fmt.Sprintf("The task waits for its identity %s: a hub delivers it when there is a link", w.Name)); err != nil {
				return "", err
			}
		}
	}
}

// writeToken replaces the file of an identity, if it has one.
func writeToken(p *runner.Preparation, w *fleet.WorkloadIdentity, token string) error {
	if !w.File {
		return nil
	}
	dest, err := artifacts.Destination(p, w.FilePath(), "")
	if err != nil {
		return fmt.Errorf("write the token of identity %s: %w", w.Name, err)
	}
	if err := artifacts.ReplaceFile(p, dest, artifacts.File{Text: token, Mode: fileMode}); err != nil {
		return fmt.Errorf("write the token of identity %s: %w", w.Name, err)
	}
	return nil
}

// watch watches the identities of one attempt.
type watch struct {
	hook    *Hook
	p       *runner.Preparation
	control runner.TaskControl
	written map[string]string // the token that each identity's file has
	failing bool              // an event has said that a file cannot be written
}

// Watch implements runner.Watcher: it writes renewed tokens, and tells the task by their change modes. A renewal that came
// while no agent ran is found by the file, which has an older token.
func (h *Hook) Watch(ctx context.Context, p *runner.Preparation, control runner.TaskControl) {
	all := p.Task.ExposedIdentities()
	w := &watch{hook: h, p: p, control: control, written: map[string]string{}}
	for i := range all {
		token, _, _ := h.Keeper.Token(p.Alloc.ID, p.Task.Name, all[i].Name)
		if text, err := tokenOfTask(p, &all[i]); err == nil {
			token = text
		} // else the task has removed its file
		w.written[all[i].Name] = token
	}
	for len(all) > 0 {
		_, changed, _ := h.Keeper.Token(p.Alloc.ID, p.Task.Name, all[0].Name)
		again, err := w.renewFiles(ctx, all)
		if err != nil && ctx.Err() == nil {
			h.Log.Warn("identities of a task are no longer renewed", "alloc_id", string(p.Alloc.ID), "task", p.Task.Name, "error", err)
		}
		if err != nil {
			return
		}
		var retry <-chan time.Time
		if again {
			retry = time.After(writeRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-retry:
		}
	}
}

// renewFiles writes the tokens that are newer than their files, and tells the task once. It reports whether a file could
// not be written. An error means that the task or the agent ends.
func (w *watch) renewFiles(ctx context.Context, all []fleet.WorkloadIdentity) (again bool, err error) {
	var names, signals []string
	restart := false
	for i := range all {
		identity := &all[i]
		token, _, ok := w.hook.Keeper.Token(w.p.Alloc.ID, w.p.Task.Name, identity.Name)
		if !ok || token == w.written[identity.Name] {
			continue
		}
		if err := writeToken(w.p, identity, token); err != nil {
			if again = true; w.failing {
				continue
			}
			w.failing = true
			if err := w.control.Event(ctx, fleet.TaskIdentity, err.Error()); err != nil {
				return true, err
			}
			continue
		}
		w.written[identity.Name] = token
		names = append(names, identity.Name)
		switch identity.ChangeMode {
		case fleet.ChangeSignal:
			signals = append(signals, identity.ChangeSignal)
		case fleet.ChangeRestart:
			restart = true
		}
	}
	w.failing = w.failing && again
	why := "Renewed identity: " + strings.Join(names, ", ")
	if restart {
		return again, w.control.Restart(ctx, why)
	}
	slices.Sort(signals)
	for _, signal := range slices.Compact(signals) {
		if err := w.control.Signal(ctx, signal, why); err != nil {
			if err := w.control.Event(ctx, fleet.TaskIdentity, fmt.Sprintf("%s: the signal %s was not sent: %v", why, signal, err)); err != nil {
				return again, err
			}
		}
	}
	return again, nil
}

// readToken reads the file of an identity.
func readToken(p *runner.Preparation, w *fleet.WorkloadIdentity) (string, error) {
	dest, err := artifacts.Destination(p, w.FilePath(), "")
	if err != nil {
		return "", err
	}
	f, err := artifacts.OpenFile(p, dest)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, syncproto.MaxIdentityToken+1))
	return string(text), err
}
