package artifacts_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/drivers"
	"skerry/edge/artifacts"
	"skerry/edge/runner"
	"skerry/fleet"
	"skerry/fleet/taskenv"
)

// taskOf is a task of an allocation on a site, with its folders and the events of its preparations.
type taskOf struct {
	*site
	state  string
	spec   fleet.Task
	events []string
}

func newTask(tb testing.TB, list ...fleet.TaskArtifact) *taskOf {
	tb.Helper()
	t := &taskOf{site: newSite(tb), spec: fleet.Task{Name: "web", Artifacts: list}}
	t.state = filepath.Join(t.dir, "data", "tasks")
	for _, dir := range []string{"web/local", "web/secrets", "alloc"} {
		if err := os.MkdirAll(filepath.Join(t.root, dir), 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	return t
}

// prepare is the preparation of an attempt, by an agent that has just started.
func (t *taskOf) prepare(tb testing.TB) error {
	tb.Helper()
	t.restart(tb)
	h, err := artifacts.NewHook(t.fetcher, t.state)
	if err != nil {
		tb.Fatal(err)
	}
	t.events = nil
	return h.Prepare(context.Background(), &runner.Preparation{
		Alloc: fleet.Alloc{ID: "alloc-1"}, Task: &t.spec,
		Config: &drivers.TaskConfig{
			User: t.spec.User,
			Env:  map[string]string{"FILE": "a"}, Dir: filepath.Join(t.root, "web"), AllocDir: filepath.Join(t.root, "alloc"),
			LocalDir: filepath.Join(t.root, "web", "local"), SecretsDir: filepath.Join(t.root, "web", "secrets"),
			StateDir: filepath.Join(t.state, "alloc-1", "web", "1"),
		},
		Folders: taskenv.Place{AllocDir: "/alloc", TaskDir: "/local", SecretsDir: "/secrets"},
		Event: func(kind, message string) error {
			t.events = append(t.events, kind+": "+message)
			return nil
		},
	})
}

func TestHookFetchesOnce(t *testing.T) {
	srv, n := serve(t, map[string][]byte{"a": []byte("content")})
	task := newTask(t,
		fleet.TaskArtifact{GetterSource: srv.URL + "/${FILE}"},
		fleet.TaskArtifact{GetterSource: srv.URL + "/a?v=2", RelativeDest: "/alloc/data/x", GetterMode: fleet.ArtifactFile},
		fleet.TaskArtifact{GetterSource: srv.URL + "/a?v=3", RelativeDest: "secrets/key", GetterMode: fleet.ArtifactFile})
	if err := task.prepare(t); err != nil || len(task.events) != 1 || !strings.HasPrefix(task.events[0], fleet.TaskDownloadingArtifacts) {
		t.Fatalf("%v, %q", err, task.events)
	}
	task.mustHave(t, "web/local/a", "content")
	task.mustHave(t, "alloc/data/x", "content")
	task.mustHave(t, "web/secrets/key", "content")

	srv.Close()
	if err := os.WriteFile(filepath.Join(task.root, "web/local/a"), []byte("changed by the task"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := task.prepare(t); err != nil || len(task.events) != 0 || n.Load() != 3 {
		t.Errorf("a restart: %v, %q, %d requests", err, task.events, n.Load())
	}
	task.mustHave(t, "web/local/a", "changed by the task")

	if err := os.Remove(filepath.Join(task.root, "web/secrets/key")); err != nil { // the machine booted
		t.Fatal(err)
	}
	if err := task.prepare(t); err != nil {
		t.Errorf("after a boot: %v", err)
	}
	task.mustHave(t, "web/secrets/key", "content")
	task.mustHave(t, "web/local/a", "changed by the task")
}

// The files are there and the mark is not: an agent that died between the two fetches again, from the store.
func TestHookWhoseAgentDied(t *testing.T) {
	srv, _ := serve(t, map[string][]byte{"a": []byte("content")})
	task := newTask(t, fleet.TaskArtifact{GetterSource: srv.URL + "/a"})
	if err := task.prepare(t); err != nil {
		t.Fatal(err)
	}
	srv.Close()
	for _, lost := range []string{filepath.Join(task.state, "alloc-1", "web", "artifacts"), filepath.Join(task.root, "web", "local", "a")} {
		if err := os.Remove(lost); err != nil {
			t.Fatal(err)
		}
	}
	if err := task.prepare(t); err != nil || len(task.events) != 2 || !strings.Contains(task.events[1], "comes from the edge's store") {
		t.Errorf("%v, %q", err, task.events)
	}
	task.mustHave(t, "web/local/a", "content")
}

func TestHookFails(t *testing.T) {
	srv, _ := serve(t, map[string][]byte{"a": []byte("content")})
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for source, recoverable := range map[string]bool{
		srv.URL + "/none": true, gone.URL + "/a": true, srv.URL + "/a?checksum=md5:" + zeros(32): false, "nothing": false,
	} {
		task := newTask(t, fleet.TaskArtifact{GetterSource: source})
		err := task.prepare(t)
		if err == nil || drivers.IsRecoverable(err) != recoverable {
			t.Errorf("%s: %v, recoverable %v", source, err, drivers.IsRecoverable(err))
		}
		if n := len(task.events); n == 0 || !strings.HasPrefix(task.events[n-1], fleet.TaskFailedArtifactDownload) {
			t.Errorf("%s: events %q", source, task.events)
		}
	}
	task := newTask(t, fleet.TaskArtifact{GetterSource: srv.URL + "/a", RelativeDest: "../../x"})
	if err := task.prepare(t); fleet.CodeOf(err) != fleet.CodeInvalid || drivers.IsRecoverable(err) {
		t.Errorf("a destination outside: %v", err)
	}
}

// Contents stay while the allocation is known, and may go when it has ended, also while no agent ran.
func TestHookPins(t *testing.T) {
	srv, _ := serve(t, map[string][]byte{"a": []byte("content")})
	task := newTask(t, fleet.TaskArtifact{GetterSource: srv.URL + "/a"})
	if err := task.prepare(t); err != nil {
		t.Fatal(err)
	}
	if got := task.store.PinnedAllocs(); len(got) != 1 {
		t.Errorf("pinned by %v", got)
	}
	if err := os.RemoveAll(filepath.Join(task.state, "alloc-1")); err != nil {
		t.Fatal(err)
	}
	task.restart(t)
	h, err := artifacts.NewHook(task.fetcher, task.state)
	if err = errors.Join(err, h.Release(context.Background(), fleet.Alloc{ID: "alloc-1"})); err != nil {
		t.Fatal(err)
	}
	if got := task.store.PinnedAllocs(); len(got) != 0 {
		t.Errorf("pinned by %v", got)
	}
}

func TestArtifactIsGivenToTheTasksUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	srv, _ := serve(t, map[string][]byte{"a": []byte("content")})
	task := newTask(t, fleet.TaskArtifact{
		GetterSource: srv.URL + "/a", GetterOptions: map[string]string{"filename": "${FILE}.bin"}, RelativeDest: "local/own", Chown: true,
	})
	task.spec.User = "12345:54321"
	if err := task.prepare(t); err != nil {
		t.Fatal(err)
	}
	task.mustHave(t, "web/local/own/a.bin", "content")
	for _, name := range []string{"web/local/own", "web/local/own/a.bin"} {
		if uid, gid := mustOwner(t, filepath.Join(task.root, name)); uid != 12345 || gid != 54321 {
			t.Errorf("%s belongs to %d:%d", name, uid, gid)
		}
	}
}

func TestInsecureAndHeaders(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Header.Get("X-Token") + " " + r.Host))
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer srv.Close()
	a := fleet.TaskArtifact{GetterSource: srv.URL + "/f", GetterHeaders: map[string]string{"X-Token": "t-${FILE}", "Host": "shop.example"}}
	if err := newTask(t, a).prepare(t); !drivers.IsRecoverable(err) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that nobody knows: %v", err)
	}
	a.GetterInsecure = true
	task := newTask(t, a)
	if err := task.prepare(t); err != nil {
		t.Fatal(err)
	}
	task.mustHave(t, "web/local/f", "t-a shop.example")
}
