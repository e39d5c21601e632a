package templates

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"skerry/fleet"
	"skerry/internal/pace"
)

// isTooOld reports whether the edge has heard of no hub for longer than a template's max_age.
func (h *Hook) isTooOld(t *fleet.Template) bool {
	return t.MaxAge > 0 && h.cfg.Away != nil && h.cfg.Away() > t.MaxAge
}

// describeAge says that a template is too old.
func describeAge(b block) string {
	return fmt.Sprintf("No hub has answered for longer than max_age of %s (%v)", b.name, b.t.MaxAge)
}

// awaitYoung waits for a hub while a template is too old to be used.
func (h *Hook) awaitYoung(ctx context.Context, b block) error {
	if b.t.MaxAgeSignal != "" || !h.isTooOld(b.t) {
		return nil
	}
	if err := b.p.Event(fleet.TaskTemplate, describeAge(b)+": the task starts when one answers"); err != nil {
		return err
	}
	for h.isTooOld(b.t) {
		if !pace.Rest(ctx, h.cfg.Poll) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// endOld tells the task of each template that has become too old, once for each absence of the hubs.
func (w *watch) endOld(ctx context.Context) error {
	for i := range w.p.Task.Templates {
		t := &w.p.Task.Templates[i]
		if !w.hook.isTooOld(t) {
			delete(w.old, i)
			continue
		}
		if w.old[i] {
			continue
		}
		w.old[i] = true
		why := describeAge(templateBlock(w.p, i))
		if t.MaxAgeSignal == "" {
			return w.control.Restart(ctx, why)
		}
		if err := w.signalTask(ctx, t.MaxAgeSignal, why); err != nil {
			return err
		}
	}
	return nil
}

// Kept lists the newest renderings of the secrets and templates of a group's tasks, without their texts. dir is the folder of
// state of the allocation (STATE/ALLOC). What was not rendered yet is left out.
func Kept(dir string, g *fleet.TaskGroup) []fleet.KeptTemplate {
	if g == nil {
		return nil
	}
	var kept []fleet.KeptTemplate
	add := func(task, name, file string) {
		r, ok := readRenderingFile(filepath.Join(dir, task, file))
		if !ok {
			return
		}
		one := fleet.KeptTemplate{Task: task, Name: name, Rendered: time.Unix(r.At, 0), Failing: r.Failing}
		if r.FailingSince != 0 {
			one.Since = new(time.Unix(r.FailingSince, 0))
		}
		kept = append(kept, one)
	}
	for i := range g.Tasks {
		t := &g.Tasks[i]
		for k := range t.Secrets {
			add(t.Name, secretName(&t.Secrets[k]), secretFile(&t.Secrets[k]))
		}
		for k := range t.Templates {
			add(t.Name, templateName(k, &t.Templates[k]), templateFile(k))
		}
	}
	return kept
}
