package docker_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"skerry/drivers/docker"
)

// TestAStartThatIsGivenUpDoesNotWaitForTheDaemon: an agent that ends while a daemon hangs in the start of a container does
// not wait for the removal of that container, which it asks for.
func TestAStartThatIsGivenUpDoesNotWaitForTheDaemon(t *testing.T) {
	goOn, starting, removing := make(chan struct{}), make(chan struct{}), make(chan struct{})
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
			close(removing)
			<-goOn
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
	<-removing
	close(goOn)
}
