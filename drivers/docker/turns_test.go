package docker_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"skerry/drivers/docker"
)

// As many containers start at once as there are processors. The next start waits for an end, and for a start that hangs only for a while.
func TestStartsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := docker.New(docker.Config{Name: docker.Docker, Socket: "none", BootID: "boot", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		take := func(ctx context.Context, when string, after time.Duration) func() {
			t.Helper()
			begun := time.Now()
			release, err := d.TakeTurn(ctx)
			if waited := time.Since(begun); err != nil || waited != after {
				t.Fatalf("%s: %v after %v, want a turn after %v", when, err, waited, after)
			}
			return release
		}
		var hanging []func()
		for range max(2, runtime.NumCPU()) - 1 {
			hanging = append(hanging, take(t.Context(), "the first", 0))
		}
		last := take(t.Context(), "the last that is free", 0)
		time.AfterFunc(time.Second, last)
		next := take(t.Context(), "behind one that ends", time.Second)
		next()
		next() // counts once
		hanging = append(hanging, take(t.Context(), "after that", 0))
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.TakeTurn(ended); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with an ended context: %v", err)
		}
		take(t.Context(), "behind those that hang", 8*time.Second)()
		for _, release := range hanging {
			release()
		}
	})
}
