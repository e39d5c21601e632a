package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/moby/moby/api/types/container"

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

// TestTaskEndsUnderInspect: a container whose process ends while Podman looks at it has ended; the look is no failure.
func TestTaskEndsUnderInspect(t *testing.T) {
	var created container.InspectResponse
	var inspects int
	socket := mustServeDaemon(t, func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/containers/json"):
			_, _ = io.WriteString(w, "[]")
		case strings.HasSuffix(path, "/containers/create"):
			created = container.InspectResponse{ID: "c1", State: &container.State{Status: container.StateExited, ExitCode: 9}, Config: &container.Config{}}
			if err := json.NewDecoder(r.Body).Decode(created.Config); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"Id":"c1"}`)
		case strings.HasSuffix(path, "/containers/c1/start"):
			w.WriteHeader(http.StatusNoContent)
		case strings.Contains(path, "/images/"):
			_, _ = io.WriteString(w, `{"Id":"sha256:1"}`)
		case strings.HasSuffix(path, "/json") && created.ID != "":
			if inspects++; inspects%2 == 1 {
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, `{"message":"read /proc/16798/cgroup: no such process"}`)
				return
			}
			_ = json.NewEncoder(w).Encode(created)
		case strings.Contains(path, "/containers/"):
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"message":"no such container"}`)
		}
	})
	d := (&daemon{name: docker.Podman, socket: socket}).mustDriver(t, "boot")
	_, task := mustStart(t, d, newTaskConfig(t, "web", "exit 9"))
	if exit := mustWait(t, task); exit.Code != 9 || exit.Err != "" || inspects < 4 {
		t.Errorf("exit %+v after %d looks, want code 9", exit, inspects)
	}
}
