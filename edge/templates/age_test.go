package templates_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/machinekey"
	"skerry/edge/templates"
	"skerry/fleet"
)

const tooOld = "No hub has answered for longer than max_age of template 1 (local/db) (1h0m0s)"

// A task ends when no hub has answered for as long as its template's max_age, and starts again when one does.
func TestTaskEndsAtMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, fleet.Template{EmbeddedTmpl: dbAddress, DestPath: "local/db", Once: true, MaxAge: time.Hour})
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		m.contact.Store(time.Now().UnixNano())
		m.watchFor(time.Hour)
		m.mustLog(t)
		m.watchFor(time.Minute)
		m.mustLog(t, "restart: "+tooOld)
		m.log = nil
		began, ended := time.Now(), make(chan error, 1)
		go func() { ended <- m.hook().Prepare(t.Context(), m.preparation()) }()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		m.mustLog(t, fleet.TaskTemplate+": "+tooOld+": the task starts when one answers")
		m.contact.Store(0)
		if err := <-ended; err != nil || time.Since(began) > 24*time.Hour+time.Minute {
			t.Errorf("started after %s: %v", time.Since(began), err)
		}
	})
}

// A stop ends the wait for a hub.
func TestWaitForAHubIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, fleet.Template{EmbeddedTmpl: dbAddress, DestPath: "local/db", MaxAge: time.Hour})
		m.contact.Store(time.Now().Add(-2 * time.Hour).UnixNano())
		ctx, giveUp := context.WithTimeout(t.Context(), time.Minute)
		defer giveUp()
		if err := m.hook().Prepare(ctx, m.preparation()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("prepared: %v", err)
		}
	})
}

// A task is told by a signal once for each absence, and runs on.
func TestTaskIsToldOfMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, fleet.Template{EmbeddedTmpl: dbAddress, DestPath: "local/db", Once: true, MaxAge: time.Hour, MaxAgeSignal: "SIGUSR2"})
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		m.contact.Store(time.Now().UnixNano())
		m.watchFor(3*time.Hour, func() {
			m.mustLog(t, "signal SIGUSR2")
			m.contact.Store(time.Now().UnixNano())
		})
		m.mustLog(t, "signal SIGUSR2", "signal SIGUSR2")
		if err := m.prepare(); err != nil {
			t.Errorf("an attempt without a hub: %v", err)
		}
	})
}

// TestKeptTemplates: the age of each rendering is known, and since when it cannot be rendered again, over restarts of the agent and of
// the task. Nothing of a secret is in it.
func TestKeptTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t,
			fleet.Template{EmbeddedTmpl: dbAddress, DestPath: "local/db", ChangeMode: fleet.ChangeNoop},
			fleet.Template{EmbeddedTmpl: `{{ with nomadVar "nomad/jobs" }}{{ .address }}{{ end }}`, DestPath: "secrets/db", ChangeMode: fleet.ChangeNoop},
		)
		m.key, _ = machinekey.New()
		m.task.Secrets = []fleet.Secret{{Name: "db", Provider: fleet.SecretOfNomad, Path: "nomad/jobs"}}
		group := &fleet.TaskGroup{Name: "g", Tasks: []fleet.Task{m.task, {Name: "other", Templates: m.task.Templates}}}
		began := time.Now()
		want := func(renderedAfter, failingAfter time.Duration) {
			t.Helper()
			kept := templates.Kept(filepath.Join(m.dir, "tasks", "a"), group)
			names := []string{`secret "db"`, "template 1 (local/db)", "template 2 (secrets/db)"}
			if len(kept) != len(names) {
				t.Fatalf("%d renderings are kept: %+v", len(kept), kept)
			}
			for i, k := range kept {
				if k.Task != "web" || k.Name != names[i] {
					t.Errorf("number %d is %s of %s, want %s", i, k.Name, k.Task, names[i])
				}
				if i > 0 && (!k.Rendered.Equal(began.Add(renderedAfter)) || (k.Failing != "") != (failingAfter > 0) ||
					failingAfter > 0 && (k.Since == nil || !k.Since.Equal(began.Add(failingAfter)))) {
					t.Errorf("%s: rendered %v after the begin, failing since %v: %q", k.Name, k.Rendered.Sub(began), k.Since, k.Failing)
				}
				if strings.Contains(fmt.Sprint(k), "10.0.0") {
					t.Errorf("%+v has the secret", k)
				}
			}
		}
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		want(0, 0)
		m.watchFor(30 * time.Minute) // it is not written again at each poll
		want(0, 0)
		m.services.set(nil, errors.New("the link is down"))
		m.watchFor(time.Hour)
		want(0, 30*time.Minute+5*time.Second)
		m.watchFor(time.Hour)
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		want(0, 30*time.Minute+5*time.Second)
		m.setAddress("10.0.0.1")
		m.watchFor(time.Minute)
		want(2*time.Hour+30*time.Minute+5*time.Second, 0)
		m.services.set(nil, errors.New("the link is down"))
		time.Sleep(time.Minute)
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		want(2*time.Hour+30*time.Minute+5*time.Second, 2*time.Hour+32*time.Minute)
		m.setAddress("10.0.0.1") // soon enough that its age alone would not be written
		m.watchFor(time.Minute)
		want(2*time.Hour+32*time.Minute+5*time.Second, 0)
		m.services.set(nil, errors.New("the link is down"))
		m.watchFor(time.Minute)
		m.setAddress("10.0.0.1")
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		want(2*time.Hour+34*time.Minute, 0)
	})
}

// TestKeptTemplatesOfNothing: an allocation without its job, or without renderings, has none.
func TestKeptTemplatesOfNothing(t *testing.T) {
	m := newMachine(t, fleet.Template{EmbeddedTmpl: "x", DestPath: "local/x"})
	for _, g := range []*fleet.TaskGroup{nil, {Tasks: []fleet.Task{m.task}}} {
		if kept := templates.Kept(filepath.Join(m.dir, "tasks", "a"), g); len(kept) != 0 {
			t.Errorf("of %+v there is %+v", g, kept)
		}
	}
}
