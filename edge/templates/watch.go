package templates

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry/edge/runner"
	"skerry/fleet"
	"skerry/internal/pace"
)

// remindEvery is the time after which an event says again that a template cannot be rendered.
const remindEvery = 24 * time.Hour

// maxScriptOutput bounds the part of a script's output that is kept.
const maxScriptOutput = 2 << 10

// watch watches the templates of one attempt.
type watch struct {
	hook    *Hook
	p       *runner.Preparation
	control runner.TaskControl
	failing map[int]time.Time // time of the last event about the failure, by index
	old     map[int]bool      // the task knows that the template is too old, by index
}

// Watch implements runner.Watcher: it first tells the task of changes that an earlier agent left pending, then renders
// the templates again and again.
func (h *Hook) Watch(ctx context.Context, p *runner.Preparation, control runner.TaskControl) {
	w := &watch{hook: h, p: p, control: control, failing: map[int]time.Time{}, old: map[int]bool{}}
	var watched, pending []int
	for i := range p.Task.Templates {
		last, ok := h.readRendering(templateBlock(p, i))
		if ok && last.Pending {
			pending = append(pending, i)
		}
		if ok && last.Reads && !p.Task.Templates[i].Once {
			watched = append(watched, i)
		}
	}
	ages := slices.ContainsFunc(p.Task.Templates, func(t fleet.Template) bool { return t.MaxAge > 0 })
	err := w.tellTask(ctx, pending)
	for err == nil && (len(watched) > 0 || ages) && pace.Rest(ctx, h.cfg.Poll) {
		if err = w.endOld(ctx); err != nil {
			break
		}
		var changed []int
		for _, i := range watched {
			var is bool
			if is, err = w.renderAgain(ctx, i); err != nil {
				break
			}
			if is {
				changed = append(changed, i)
			}
		}
		if err == nil {
			err = w.tellTask(ctx, changed)
		}
	}
	if err != nil && ctx.Err() == nil {
		h.cfg.Log.Warn("templates of a task are no longer watched", "alloc_id", string(p.Alloc.ID), "task", p.Task.Name, "error", err)
	}
}

// renderAgain renders a template, and reports whether the task must be told. An error ends the watch.
func (w *watch) renderAgain(ctx context.Context, i int) (bool, error) {
	b := templateBlock(w.p, i)
	last, ok := w.hook.readRendering(b)
	if !ok {
		return false, nil
	}
	next, err := w.hook.renderTemplate(ctx, b)
	if err == nil && next.Text != last.Text {
		if !w.waitUntilSettled(ctx, b.t) {
			return false, context.Cause(ctx)
		}
		next, err = w.hook.renderTemplate(ctx, b)
	}
	if err != nil {
		if last.FailingSince == 0 && ctx.Err() == nil {
			_ = w.hook.writeRendering(b, w.hook.withFailure(last, err)) // it is only shown, and is tried again
		}
		return false, w.noteFailure(ctx, i, last, err)
	}
	if _, failed := w.failing[i]; failed {
		delete(w.failing, i)
		if err := w.control.Event(ctx, fleet.TaskTemplate, b.name+" can be rendered again"); err != nil {
			return false, err
		}
	}
	if next.Text == last.Text {
		if next.At-last.At >= refreshEvery || next.Secret != last.Secret || last.FailingSince != 0 {
			next.Pending = last.Pending
			_ = w.hook.writeRendering(b, next) // for its age, which is only shown, or to encrypt it; it is tried again
		}
		return false, nil
	}
	next.Pending = b.t.ChangeMode != fleet.ChangeNoop
	if err := w.hook.writeRendering(b, next); err != nil {
		return false, w.noteFailure(ctx, i, last, err)
	}
	if err := writeDestination(b, next); err != nil {
		return false, w.noteFailure(ctx, i, last, err)
	}
	return next.Pending, nil
}

// waitUntilSettled waits as long as the template's wait block says. It returns false when ctx ends first.
func (w *watch) waitUntilSettled(ctx context.Context, t *fleet.Template) bool {
	if t.Wait == nil || t.Wait.Min == nil || *t.Wait.Min <= 0 {
		return true
	}
	return pace.Rest(ctx, *t.Wait.Min)
}

// noteFailure sends an event when a template can no longer be rendered, and again once a day.
func (w *watch) noteFailure(ctx context.Context, i int, last rendering, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	now := w.hook.cfg.Now()
	if since, ok := w.failing[i]; ok && now.Sub(since) < remindEvery {
		return nil
	}
	w.failing[i] = now
	return w.control.Event(ctx, fleet.TaskTemplate, w.hook.staleMessage(templateBlock(w.p, i).name, last, err))
}

// tellTask applies the change modes of changed templates, after a random part of their longest splay.
func (w *watch) tellTask(ctx context.Context, changed []int) error {
	if len(changed) == 0 {
		return nil
	}
	var names, signals []string
	var scripts []int
	restart, splay := false, time.Duration(0)
	for _, i := range changed {
		t := &w.p.Task.Templates[i]
		names, splay = append(names, templateBlock(w.p, i).name), max(splay, t.Splay)
		switch t.ChangeMode {
		case fleet.ChangeSignal:
			signals = append(signals, t.ChangeSignal)
		case fleet.ChangeScript:
			scripts = append(scripts, i)
		case fleet.ChangeNoop:
		default:
			restart = true
		}
	}
	if !pace.Rest(ctx, time.Duration(float64(splay)*w.hook.cfg.Jitter())) {
		return context.Cause(ctx)
	}
	why := "Rendered again: " + strings.Join(names, ", ")
	if restart { // Restart journals this: the next attempt gets the new files
		return w.control.Restart(ctx, why)
	}
	slices.Sort(signals)
	for _, signal := range slices.Compact(signals) {
		if err := w.signalTask(ctx, signal, why); err != nil {
			return err
		}
	}
	for _, i := range scripts {
		if err := w.runScript(ctx, i); err != nil {
			return err
		}
	}
	return w.clearPending(ctx, changed)
}

// signalTask sends the task a signal, or an event that says why it could not.
func (w *watch) signalTask(ctx context.Context, signal, why string) error {
	err := w.control.Signal(ctx, signal, why)
	if err == nil {
		return nil
	}
	return w.control.Event(ctx, fleet.TaskTemplate, fmt.Sprintf("%s: the signal %s was not sent: %v", why, signal, err))
}

// runScript runs the script of a template beside the task, and sends an event with the outcome.
func (w *watch) runScript(ctx context.Context, i int) error {
	s := w.p.Task.Templates[i].ChangeScript
	if s == nil {
		return nil
	}
	timeout := s.Timeout
	if timeout <= 0 {
		timeout = 5 * time.Second
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	command := []string{w.p.Replace(s.Command)}
	for _, arg := range s.Args {
		command = append(command, w.p.Replace(arg))
	}
	var said boundedText
	code, err := w.control.Exec(limited, fleet.Exec{Command: command, Stdin: io.NopCloser(strings.NewReader("")), Stdout: &said, Stderr: &said})
	message := fmt.Sprintf("%s: its script has run", templateBlock(w.p, i).name)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		message = fmt.Sprintf("%s: its script was ended after %v", templateBlock(w.p, i).name, timeout)
	case err != nil:
		message = fmt.Sprintf("%s: its script did not run: %v", templateBlock(w.p, i).name, err)
	case code != 0:
		message = fmt.Sprintf("%s: its script ended with exit code %d: %s", templateBlock(w.p, i).name, code, strings.TrimSpace(said.String()))
	}
	return w.control.Event(ctx, fleet.TaskTemplate, message)
}

// clearPending records that the task was told.
func (w *watch) clearPending(ctx context.Context, changed []int) error {
	for _, i := range changed {
		b := templateBlock(w.p, i)
		last, ok := w.hook.readRendering(b)
		if !ok || !last.Pending {
			continue
		}
		last.Pending = false
		if err := w.hook.writeRendering(b, last); err != nil {
			return w.noteFailure(ctx, i, last, err)
		}
	}
	return nil
}

// boundedText keeps the first bytes of a script's output.
type boundedText struct {
	mu sync.Mutex
	bytes.Buffer
}

// Write implements io.Writer.
func (b *boundedText) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if room := maxScriptOutput - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
