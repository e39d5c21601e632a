package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"skerry/edge/local"
	"skerry/fleet"
)

// fakeAgent is an Agent that records its calls.
type fakeAgent struct {
	asked []string
	fail  error
	// execEnded is closed when a command that waits has ended.
	execEnded chan struct{}
	output    func(ctx context.Context) io.ReadCloser
}

var status = local.Status{NodeID: "n1", Uptime: time.Minute, Allocs: []local.Alloc{{ID: "a1", Tasks: map[string]fleet.TaskState{"web": {State: fleet.TaskRunning}}}}}

func (a *fakeAgent) recordCall(format string, args ...any) error {
	a.asked = append(a.asked, fmt.Sprintf(format, args...))
	return a.fail
}

func (a *fakeAgent) Status(context.Context) (local.Status, error) {
	return status, a.recordCall("status")
}

func (a *fakeAgent) History(_ context.Context, id fleet.AllocID) ([]fleet.Transition, error) {
	return []fleet.Transition{{Seq: 7, Kind: fleet.TransitionAlloc, Alloc: id}}, a.recordCall("history %s", id)
}

func (a *fakeAgent) Exec(ctx context.Context, req local.ExecRequest, x fleet.Exec) (int, error) {
	if a.fail != nil {
		return 0, a.fail
	}
	if req.Command[0] == "wait" {
		fmt.Fprint(x.Stdout, "begun")
		<-ctx.Done()
		close(a.execEnded)
		return 0, ctx.Err()
	}
	typed, err := io.ReadAll(x.Stdin)
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(x.Stdout, "%s %s %q %t: %s", req.Alloc, req.Task, req.Command, req.TTY, typed)
	fmt.Fprint(x.Stderr, "oops")
	return 7, nil
}

func (a *fakeAgent) Services(_ context.Context, namespace, name string) ([]local.Service, error) {
	return []local.Service{{ServiceRegistration: fleet.ServiceRegistration{ServiceName: name, Port: 80}, Failing: "alive"}}, a.recordCall("services %s %s", namespace, name)
}

func (a *fakeAgent) Checks(_ context.Context, id fleet.AllocID) ([]local.Check, error) {
	return []local.Check{{Alloc: id, CheckResult: fleet.CheckResult{Check: "alive"}}}, a.recordCall("checks %s", id)
}

func (a *fakeAgent) Logs(ctx context.Context, req local.LogRequest) (io.ReadCloser, error) {
	if err := a.recordCall("logs %+v", req); err != nil {
		return nil, err
	}
	return a.output(ctx), nil
}

func (a *fakeAgent) Stop(_ context.Context, req local.StopRequest) error {
	return a.recordCall("stop %+v", req)
}

func (a *fakeAgent) Start(_ context.Context, id fleet.AllocID, reason string) (local.Started, error) {
	return local.Started{Name: "shop.till[0]", Waiting: 1}, a.recordCall("start %s %s", id, reason)
}

func (a *fakeAgent) Restart(_ context.Context, id fleet.AllocID, task, reason string) error {
	return a.recordCall("restart %s %s %s", id, task, reason)
}

func mustServe(t testing.TB, path string, a local.Agent) *local.Client {
	t.Helper()
	socket, err := local.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s := local.New(path, socket, a, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("the socket is left behind")
		}
	})
	return local.NewClient(path)
}

func TestClientAndServer(t *testing.T) {
	ctx := context.Background()
	a := &fakeAgent{output: func(context.Context) io.ReadCloser { return io.NopCloser(strings.NewReader("hello")) }}
	path := filepath.Join(t.TempDir(), "local.sock")
	c := mustServe(t, path, a)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("socket: %v, %v", info, err)
	}
	if s, err := c.Status(ctx); err != nil || !reflect.DeepEqual(s, status) {
		t.Fatalf("status: %+v, %v", s, err)
	}
	if ts, err := c.History(ctx, "a1"); err != nil || len(ts) != 1 || ts[0].Seq != 7 {
		t.Fatalf("history: %+v, %v", ts, err)
	}
	if list, err := c.Services(ctx, "ops", "till"); err != nil || len(list) != 1 || list[0].ServiceName != "till" || list[0].Failing != "alive" {
		t.Fatalf("services: %+v, %v", list, err)
	}
	if list, err := c.Checks(ctx, "a1"); err != nil || len(list) != 1 || list[0].Alloc != "a1" || list[0].Check != "alive" {
		t.Fatalf("checks: %+v, %v", list, err)
	}
	out, err := c.Logs(ctx, local.LogRequest{Alloc: "a1", Task: "web", Stream: "stderr", Offset: 5, Origin: "end"})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(out); err != nil || string(b) != "hello" {
		t.Fatalf("logs: %q, %v", b, err)
	}
	if err := errors.Join(out.Close(), c.Stop(ctx, local.StopRequest{Alloc: "a1", Reason: "too loud"}), c.Stop(ctx, local.StopRequest{Alloc: "a1", NoShutdownDelay: true, MayReturn: true}), c.Restart(ctx, "a1", "web", "odd")); err != nil {
		t.Fatal(err)
	}
	if s, err := c.Start(ctx, "a1", "mended"); err != nil || s.Name != "shop.till[0]" || s.Waiting != 1 {
		t.Fatalf("start: %+v, %v", s, err)
	}
	want := []string{
		"status", "history a1", "services ops till", "checks a1", "logs {Alloc:a1 Task:web Stream:stderr Offset:5 Origin:end Follow:false}",
		"stop {Alloc:a1 Reason:too loud NoShutdownDelay:false MayReturn:false}", "stop {Alloc:a1 Reason: NoShutdownDelay:true MayReturn:true}", "restart a1 web odd",
		"start a1 mended",
	}
	if !reflect.DeepEqual(a.asked, want) {
		t.Fatalf("the agent was asked %q", a.asked)
	}
}

func TestErrorsCrossTheSocket(t *testing.T) {
	a := &fakeAgent{fail: fleet.Errorf(fleet.CodeConflict, "it has ended").WithHint("look at its history")}
	c := mustServe(t, filepath.Join(t.TempDir(), "local.sock"), a)
	err := c.Stop(context.Background(), local.StopRequest{Alloc: "a1"})
	var e *fleet.Error
	if !errors.As(err, &e) || e.Code != fleet.CodeConflict || e.Hint != "look at its history" {
		t.Fatalf("stop: %v", err)
	}
	a.fail = errors.New("odd")
	if _, err := c.Status(context.Background()); fleet.CodeOf(err) != fleet.CodeInternal {
		t.Fatalf("status: %v", err)
	}
}

func TestFollowerEndsWithItsClient(t *testing.T) {
	ended := make(chan struct{})
	a := &fakeAgent{output: func(ctx context.Context) io.ReadCloser {
		r, w := io.Pipe()
		go func() {
			defer close(ended)
			fmt.Fprint(w, "line")
			<-ctx.Done()
			w.CloseWithError(ctx.Err())
		}()
		return r
	}}
	c := mustServe(t, filepath.Join(t.TempDir(), "local.sock"), a)
	out, err := c.Logs(context.Background(), local.LogRequest{Alloc: "a1", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	if _, err := io.ReadFull(out, b); err != nil || string(b) != "line" {
		t.Fatalf("what was there: %q, %v", b, err)
	}
	out.Close()
	<-ended
}

func TestDeepDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c := mustServe(t, filepath.Join(dir, "local.sock"), &fakeAgent{})
	if _, err := c.Status(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestNobodyAnswers(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))} {
		c := local.NewClient(filepath.Join(dir, "local.sock"))
		_, err := c.Status(context.Background())
		var e *fleet.Error
		if !errors.As(err, &e) || e.Code != fleet.CodeUnavailable || e.Hint == "" {
			t.Fatalf("status: %v", err)
		}
	}
}

func FuzzRequest(f *testing.F) {
	path := filepath.Join(f.TempDir(), "local.sock")
	a := &fakeAgent{output: func(context.Context) io.ReadCloser { return io.NopCloser(strings.NewReader("")) }}
	mustServe(f, path, a)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial}}
	f.Add("GET", "/v1/logs", "alloc=a&offset=x")
	f.Add("POST", "/v1/stop", "alloc=%zz")
	f.Add("GET", "/v1/../status", "")
	f.Fuzz(func(t *testing.T, method, path, query string) {
		req, err := http.NewRequest(method, "http://edge/", nil)
		if err != nil {
			return
		}
		req.URL.Path, req.URL.RawQuery = path, query
		resp, err := client.Do(req)
		if err != nil {
			return // not sendable
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode >= http.StatusInternalServerError {
			t.Fatalf("%s %s: %s", method, path, resp.Status)
		}
	})
}

// The kernel names the user that asks, and a group may get access.
func TestPeersAndGroups(t *testing.T) {
	path := filepath.Join(t.TempDir(), "local.sock")
	a := &peerAgent{}
	c := mustServe(t, path, a)
	if err := c.Stop(t.Context(), local.StopRequest{Alloc: "a1"}); err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" && a.who != me.Username {
		t.Errorf("the agent was asked by %q, not %q", a.who, me.Username)
	}
	group, err := user.LookupGroupId(me.Gid)
	if err != nil {
		t.Skipf("this user's group has no name: %v", err)
	}
	for before, after := range map[os.FileMode]os.FileMode{0o700: 0o710, 0o750: 0o710, 0o711: 0o711} { // tasks of other users pass through 0711
		if err := os.Chmod(filepath.Dir(path), before); err != nil {
			t.Fatal(err)
		}
		if err := local.Share(path, group.Name); err != nil {
			t.Fatal(err)
		}
		for at, want := range map[string]os.FileMode{path: 0o660, filepath.Dir(path): after} {
			if info, err := os.Stat(at); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v, want %v", at, info.Mode(), err, want)
			}
		}
	}
	if err := local.Share(path, "no such group"); fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Errorf("an unknown group: %v", err)
	}
}

// peerAgent remembers who asked it last.
type peerAgent struct {
	fakeAgent
	who string
}

func (a *peerAgent) Stop(ctx context.Context, _ local.StopRequest) error {
	a.who = local.PeerOf(ctx)
	return nil
}

func TestExec(t *testing.T) {
	a := &fakeAgent{execEnded: make(chan struct{})}
	c := mustServe(t, filepath.Join(t.TempDir(), "local.sock"), a)
	var out, wrong strings.Builder
	long := strings.Repeat("x", 100_000)
	code, err := c.Exec(t.Context(), local.ExecRequest{Alloc: "a1", Task: "web", Command: []string{"/bin/sh", "-c"}},
		fleet.Exec{Stdin: io.NopCloser(strings.NewReader(long)), Stdout: &out, Stderr: &wrong})
	if want := `a1 web ["/bin/sh" "-c"] false: ` + long; err != nil || code != 7 || out.String() != want || wrong.String() != "oops" {
		t.Errorf("code %d, %v, %d and %d bytes", code, err, out.Len(), wrong.Len())
	}
	ctx, cancel := context.WithCancel(t.Context())
	stdin, typing := io.Pipe()
	defer typing.Close()
	if _, err := c.Exec(ctx, local.ExecRequest{Alloc: "a1", Command: []string{"wait"}}, fleet.Exec{Stdin: stdin, Stdout: cancelWriter{cancel}, Stderr: io.Discard}); err == nil {
		t.Error("a command that was left has no error")
	}
	select {
	case <-a.execEnded:
	case <-time.After(time.Minute):
		t.Error("the command goes on without its client")
	}
	a.fail = fleet.Errorf(fleet.CodeForbidden, "the job does not allow that")
	if _, err := c.Exec(t.Context(), local.ExecRequest{Alloc: "a1", Command: []string{"x"}}, fleet.Exec{Stdin: io.NopCloser(strings.NewReader("")), Stdout: io.Discard, Stderr: io.Discard}); fleet.CodeOf(err) != fleet.CodeForbidden {
		t.Errorf("what the job forbids: %v", err)
	}
	if _, err := c.Exec(t.Context(), local.ExecRequest{Alloc: "a1"}, fleet.Exec{Stdin: io.NopCloser(strings.NewReader(""))}); fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Errorf("no command: %v", err)
	}
}

// cancelWriter cancels once something is written.
type cancelWriter struct{ cancel context.CancelFunc }

func (w cancelWriter) Write(b []byte) (int, error) {
	w.cancel()
	return len(b), nil
}
