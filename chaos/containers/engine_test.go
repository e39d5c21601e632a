package containers_test

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/chaos/containers"
)

// mustEngine serves a daemon's API with answers by method and path, and returns a client and the requests that came.
func mustEngine(t *testing.T, answers map[string]string) (*containers.Engine, *[]string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "d.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v1.40")
		asked = append(asked, request)
		answer, known := answers[request]
		if !known {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"message": "No such object"}`
		}
		_, _ = w.Write([]byte(answer))
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	e := containers.NewEngine(socket)
	t.Cleanup(e.Close)
	return e, &asked
}

// TestRemoveImage checks that the containers of an image are removed before it, and that a container that is gone
// already is no error.
func TestRemoveImage(t *testing.T) {
	e, asked := mustEngine(t, map[string]string{
		"GET /containers/json":   `[{"Id": "one"}, {"Id": "gone"}]`,
		"DELETE /containers/one": "",
	})
	if err := e.RemoveImage(t.Context(), "localhost/x:1"); err != nil {
		t.Fatal(err)
	}
	want := "GET /containers/json, DELETE /containers/one, DELETE /containers/gone, DELETE /images/localhost/x:1"
	if got := strings.Join(*asked, ", "); got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

// TestCheckLocal checks that a daemon whose containers run on another machine is refused, and its container removed.
func TestCheckLocal(t *testing.T) {
	state, err := json.Marshal(map[string]any{"State": map[string]any{"Pid": os.Getpid()}}) // this process has no /probe
	if err != nil {
		t.Fatal(err)
	}
	e, asked := mustEngine(t, map[string]string{
		"POST /containers/create": `{"Id": "one"}`, "POST /containers/one/start": "", "GET /containers/one/json": string(state), "DELETE /containers/one": "",
	})
	dir := t.TempDir()
	if err := e.CheckLocal(t.Context(), "x", dir); err == nil || !strings.Contains(err.Error(), "runs its containers elsewhere") {
		t.Errorf("the check says %v", err)
	}
	if last := (*asked)[len(*asked)-1]; last != "DELETE /containers/one" {
		t.Errorf("the last request is %s", last)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the check leaves %v, %v", left, err)
	}
}

// TestErrorsOfTheDaemon checks that an error has the daemon's own words.
func TestErrorsOfTheDaemon(t *testing.T) {
	e, _ := mustEngine(t, nil)
	if _, err := e.Version(t.Context()); err == nil || !strings.Contains(err.Error(), "No such object") {
		t.Errorf("the error is %v", err)
	}
}
