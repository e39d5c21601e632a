package docker_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"skerry/drivers/docker"
)

// TestAgentEndsDuringAStart: an agent that ends while a daemon starts a container does not wait for the daemon, and leaves the container to
// the next agent: the task may run by then.
func TestAgentEndsDuringAStart(t *testing.T) {
	goOn, starting := make(chan struct{}), make(chan struct{})
	var removed atomic.Bool
	socket := mustServeDaemon(t, func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/containers/json"):
			_, _ = io.WriteString(w, "[]")
		case strings.HasSuffix(path, "/containers/create"):
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"Id":"c1"}`)
		case strings.HasSuffix(path, "/containers/c1/start"):
			close(starting)
			<-goOn
		case r.Method == http.MethodDelete && strings.HasSuffix(path, "/containers/c1"):
			removed.Store(true)
		case strings.Contains(path, "/images/"):
			_, _ = io.WriteString(w, `{"Id":"sha256:1"}`)
		case strings.Contains(path, "/containers/"):
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"message":"no such container"}`)
		}
	})
	d := (&daemon{name: docker.Docker, socket: socket}).mustDriver(t, "boot")
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	cfg := newTaskConfig(t, "web", "true")
	go func() {
		_, err := d.Start(ctx, cfg)
		ended <- err
	}()
	<-starting
	giveUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("start: %v, want %v", err, context.Canceled)
	}
	close(goOn)
	if removed.Load() {
		t.Error("the container was removed")
	}
}
