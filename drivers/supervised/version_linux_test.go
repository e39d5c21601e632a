package supervised_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/drivers/supervised"
	"skerry/fleet"
)

// Records that an earlier release has written are read.
func TestRecordsOfVersion1(t *testing.T) {
	for name, want := range map[string]int{"spec": 3, "task": 4711, "exit": 0} {
		b := *mustRead(t, filepath.Join("testdata", "v1", name+".json"))
		if n, err := supervised.Decode(name, b); n != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", name, n, err, want)
		}
	}
}

// A task of an earlier release is adopted when its supervisor was killed, and can be stopped.
func TestTaskOfVersion1(t *testing.T) {
	cfg := newTaskConfig(t, forever)
	h, _ := mustStart(t, mustDriver(t, ""), cfg)
	pid := pids(t, cfg, 1)[0]
	super := supervisorOf(t, pid)
	mustKill(t, super, syscall.SIGKILL)
	mustBeGone(t, super)
	for _, name := range []string{"spec.json", "task.json"} {
		path := filepath.Join(cfg.StateDir, name)
		old := bytes.Replace(*mustRead(t, path), []byte(`"version":2`), []byte(`"version":1`), 1)
		if err := os.WriteFile(path, old, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.Version = 1
	task, err := mustDriver(t, "").Recover(t.Context(), cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	if task.Ended() {
		t.Fatal("it counts as ended")
	}
	if err := task.Stop(t.Context(), "SIGTERM", time.Minute); err != nil {
		t.Fatal(err)
	}
	mustBeGone(t, pid)
}

// A runtime that meets a full disk says so in its log, or loses the cause, or has no room for a log: the task may start
// later. So it may if its process was killed before it began; these are messages of runc 1.1, whose process was killed 250 times.
func TestRuntimeErrors(t *testing.T) {
	exit := exec.Command("false").Run()
	const room = 1 << 30
	for _, c := range []struct {
		log  string
		err  error
		free int64
		want bool
	}{
		{"", exit, room, true},
		{"", exec.ErrNotFound, room, false},
		{`{"level":"error","msg":"mkdir /x/etc: no space left on device"}`, exit, room, true},
		{`{"level":"error","msg":"write x: No space left on device"}`, exit, room, true},
		{`{"level":"error","msg":"unable to store init state: %!w(<nil>)"}`, exit, room, true},
		{`{"level":"error","msg":"exec: no such file"}`, exit, 4096, true},
		{`{"level":"error","msg":"exec: no such file"}`, exit, room, false},
		{`{"level":"error","msg":"unable to start container process: error during container init: exec: \"/x\": permission denied"}`, exit, room, false},
		{`{"level":"error","msg":"unable to start container process: can't copy bootstrap data to pipe: write init-p: broken pipe"}`, exit, room, true},
		{`{"level":"error","msg":"unable to start container process: error during container init: read init-p: connection reset by peer"}`, exit, room, true},
		{`{"level":"error","msg":"unable to start container process: can't get final child's PID from pipe: EOF"}`, exit, room, true},
		{`{"level":"error","msg":"unable to start container process: waiting for init preliminary setup: EOF"}`, exit, room, true},
		{`{"level":"error","msg":"unable to start container process: error during container init: %!w(<nil>)"}`, exit, room, true},
		{`{"level":"error","msg":"unable to start container process: error waiting for our first child to exit: signal: killed"}`, exit, room, true},
		{`{"level":"error","msg":"unable to start container process: error getting pipe fds for pid 2419: readlink /proc/2419/fd/0: no such file or directory"}`, exit, room, true},
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(c.log+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := supervised.RuntimeError(path, c.err, c.free); drivers.IsRecoverable(err) != c.want {
			t.Errorf("log %s, %d bytes free: the error %v is recoverable: %v, want %v", c.log, c.free, err, !c.want, c.want)
		}
	}
}

// A log of a runtime is read without a panic; only entries of the level error count.
func FuzzRuntimeError(f *testing.F) {
	f.Add([]byte(`{"level":"error","msg":"no such file"}` + "\n"))
	f.Add([]byte(`{"level":"warning","msg":"x"}` + "\n{"))
	f.Add([]byte("not json"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if message := supervised.LastRuntimeError(path); message != "" && !bytes.Contains(bytes.ToLower(b), []byte("msg")) {
			t.Errorf("%q: message %q", b, message)
		}
	})
}

// A bundle is read without a panic. A command beside the container has its arguments, and the restrictions of the
// bundle's process.
func FuzzExecProcess(f *testing.F) {
	f.Add([]byte(`{"process":{"args":["sleep"],"env":["A=b"],"noNewPrivileges":true,"user":{"uid":65534}}}`), true)
	f.Add([]byte(`{"process":{"env":[1,null]}}`), true)
	f.Add([]byte(`{"process":7}`), false)
	f.Add([]byte(`{}`), false)
	f.Fuzz(func(t *testing.T, b []byte, tty bool) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "process.json")
		if supervised.ExecProcess(dir, path, fleet.Exec{Command: []string{"id"}, TTY: tty}) != nil {
			return
		}
		var got struct {
			Args     []string `json:"args"`
			Terminal bool     `json:"terminal"`
		}
		if err := json.Unmarshal(*mustRead(t, path), &got); err != nil || !slices.Equal(got.Args, []string{"id"}) || got.Terminal != tty {
			t.Errorf("%s: %+v, %v", b, got, err)
		}
	})
}
