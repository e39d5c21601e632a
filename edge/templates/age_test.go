package templates_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

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
