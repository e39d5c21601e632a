package files_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/drivers"
	"skerry/edge/identities"
	"skerry/edge/identities/files"
	"skerry/edge/machinekey"
	"skerry/edge/runner"
	"skerry/fleet"
	"skerry/syncproto"
)

const shop = fleet.AllocID("5c6328f7-48c5-4d03-bada-91ef2e904d0d")

// memory is a journal in memory.
type memory struct {
	mu      sync.Mutex
	handles map[string][]byte
}

func (m *memory) PutHandle(_ context.Context, _ fleet.AllocID, key string, handle []byte, _ ...fleet.Transition) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if handle == nil {
		delete(m.handles, key)
	} else {
		m.handles[key] = handle
	}
	return nil
}

func (m *memory) Handles(context.Context, fleet.AllocID) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.handles), nil
}

func delivered(name, token string) syncproto.DeliveredIdentity {
	return syncproto.DeliveredIdentity{Alloc: shop, Task: "main", Name: name, Token: token, KeyID: "k1", Issued: 1000, Expires: 4600}
}

// mustAccept delivers tokens.
func mustAccept(tb testing.TB, k *identities.Keeper, list ...syncproto.DeliveredIdentity) {
	tb.Helper()
	if _, err := k.Accept(tb.Context(), list, ""); err != nil {
		tb.Fatal(err)
	}
}

// fixture is a task with its folders, and the hook that writes its tokens.
type fixture struct {
	t      *testing.T
	keeper *identities.Keeper
	hook   *files.Hook
	p      *runner.Preparation
	events []string
}

func newFixture(t *testing.T, task *fleet.Task) *fixture {
	t.Helper()
	key, _ := machinekey.New()
	keeper, err := identities.Open(identities.Config{Journal: &memory{handles: map[string][]byte{}}, Sealer: key, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, keeper: keeper}
	f.hook = &files.Hook{Keeper: f.keeper, Log: slog.New(slog.DiscardHandler)}
	dir := filepath.Join(t.TempDir(), "main")
	f.p = &runner.Preparation{
		Alloc: fleet.Alloc{ID: shop}, Task: task, Config: &drivers.TaskConfig{Dir: dir, LocalDir: filepath.Join(dir, "local"), SecretsDir: filepath.Join(dir, "secrets")},
		Event: func(_, message string) error { f.events = append(f.events, message); return nil },
	}
	for _, folder := range []string{f.p.Config.LocalDir, f.p.Config.SecretsDir} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (f *fixture) wantFile(name, text string) {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.p.Config.Dir, name))
	if err != nil || string(b) != text {
		f.t.Errorf("%s has %q, %v, want %q", name, b, err, text)
	}
}

// TestPrepare: the files have Nomad's names. A task waits for a token that is not there yet, and says so once.
func TestPrepare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &fleet.Task{Name: "main", Identity: &fleet.WorkloadIdentity{Name: "default", File: true}, Identities: []fleet.WorkloadIdentity{
			{Name: "aws", File: true}, {Name: "own", File: true, Filepath: "local/own.jwt"}, {Name: "hidden"},
		}})
		mustAccept(t, f.keeper, delivered("default", "one"), delivered("aws", "two"))
		done := make(chan error, 1)
		go func() { done <- f.hook.Prepare(t.Context(), f.p) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(f.events) != 1 || !strings.Contains(f.events[0], "waits for its identity own") {
			t.Fatalf("events: %q", f.events)
		}
		mustAccept(t, f.keeper, delivered("own", "three"))
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		f.wantFile("secrets/nomad_token", "one")
		f.wantFile("secrets/nomad_aws.jwt", "two")
		f.wantFile("local/own.jwt", "three")
		if _, err := os.Stat(filepath.Join(f.p.Config.Dir, "secrets/nomad_hidden.jwt")); err == nil {
			t.Error("an identity without file = true has a file")
		}
		stopped, cancel := context.WithCancelCause(t.Context())
		cancel(fmt.Errorf("stopped"))
		f.p.Task = &fleet.Task{Name: "side", Identity: &fleet.WorkloadIdentity{Name: "default", File: true}}
		if err := f.hook.Prepare(stopped, f.p); err == nil || err.Error() != "stopped" {
			t.Errorf("of a task that is stopped: %v", err)
		}
	})
}

// TestTokenInTheEnvironment: with env = true a token is a secret variable by Nomad's name, and in a file only with file = true.
func TestTokenInTheEnvironment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &fleet.Task{Name: "main", Identity: &fleet.WorkloadIdentity{Name: "default", Env: true, ChangeMode: fleet.ChangeRestart}, Identities: []fleet.WorkloadIdentity{
			{Name: "aws", Env: true, File: true},
		}})
		mustAccept(t, f.keeper, delivered("default", "one"), delivered("aws", "two"))
		if err := f.hook.Prepare(t.Context(), f.p); fleet.CodeOf(err) != fleet.CodeUnsupported || len(f.p.Config.Env) > 0 {
			t.Errorf("without a folder in memory: %v, %q", err, f.p.Config.Env)
		}
		memory := t.TempDir()
		f.p.MemoryDir = func() (string, error) { return memory, nil }
		if err := f.hook.Prepare(t.Context(), f.p); err != nil {
			t.Fatal(err)
		}
		if want := map[string]string{"NOMAD_TOKEN": "one", "NOMAD_TOKEN_aws": "two"}; !maps.Equal(f.p.Config.Env, want) || f.p.Config.MemoryDir != memory {
			t.Errorf("%q, in %q", f.p.Config.Env, f.p.Config.MemoryDir)
		}
		f.wantFile("secrets/nomad_aws.jwt", "two")
		if _, err := os.Stat(filepath.Join(f.p.Config.Dir, "secrets/nomad_token")); err == nil {
			t.Error("an identity without file = true has a file")
		}

		mustAccept(t, f.keeper, delivered("default", "three")) // while no agent ran
		later := *f.p
		later.Config = &drivers.TaskConfig{Dir: f.p.Config.Dir, SecretsDir: f.p.Config.SecretsDir}
		if f.hook.RestoreVars(&later); later.Config.Env["NOMAD_TOKEN"] != "one" || !later.IsSecretVar("NOMAD_TOKEN_aws") {
			t.Errorf("the task has %q", later.Config.Env)
		}
		control := &told{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); f.hook.Watch(ctx, &later, control) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := control.take(); got != "restart: Renewed identity: default" {
			t.Errorf("the task was told %q", got)
		}
		cancel()
		<-done
	})
}

// told notes what a task is told.
type told struct {
	runner.TaskControl
	mu   sync.Mutex
	what []string
	fail error
}

func (c *told) note(what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.what = append(c.what, what)
	return c.fail
}

func (c *told) Restart(_ context.Context, reason string) error { return c.note("restart: " + reason) }
func (c *told) Signal(_ context.Context, signal, reason string) error {
	return c.note(signal + ": " + reason)
}
func (c *told) Event(context.Context, string, string) error { return c.note("event") }

func (c *told) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := strings.Join(c.what, "; ")
	c.what = nil
	return all
}

// TestRenewal: a renewed token is written, and the task told by the change mode. An identity whose token did not change
// tells nothing, also where the task has removed the file. What was renewed while no agent ran is told afterwards.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &fleet.Task{Name: "main", Identity: &fleet.WorkloadIdentity{Name: "default", File: true, ChangeMode: fleet.ChangeNoop}, Identities: []fleet.WorkloadIdentity{
			{Name: "hup", File: true, ChangeMode: fleet.ChangeSignal, ChangeSignal: "SIGHUP"}, {Name: "hard", File: true, ChangeMode: fleet.ChangeRestart},
		}})
		mustAccept(t, f.keeper, delivered("default", "d1"), delivered("hup", "s1"), delivered("hard", "r1"))
		if err := f.hook.Prepare(t.Context(), f.p); err != nil {
			t.Fatal(err)
		}
		control := &told{}
		watch := func() (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); f.hook.Watch(ctx, f.p, control) }()
			return func() { cancel(); <-done }
		}
		stop := watch()
		want := func(text string) {
			t.Helper()
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if got := control.take(); got != text {
				t.Errorf("the task was told %q, want %q", got, text)
			}
		}
		want("")
		mustAccept(t, f.keeper, delivered("default", "d2"))
		want("")
		f.wantFile("secrets/nomad_token", "d2")
		mustAccept(t, f.keeper, delivered("hup", "s2"))
		want("SIGHUP: Renewed identity: hup")
		f.wantFile("secrets/nomad_hup.jwt", "s2")
		if err := os.Remove(filepath.Join(f.p.Config.SecretsDir, "nomad_hard.jwt")); err != nil {
			t.Fatal(err)
		}
		other := delivered("default", "x")
		other.Task = "side"
		mustAccept(t, f.keeper, other)
		want("")
		mustAccept(t, f.keeper, delivered("hard", "r2"))
		want("restart: Renewed identity: hard")
		stop()
		mustAccept(t, f.keeper, delivered("hup", "s3"))
		stop = watch()
		want("SIGHUP: Renewed identity: hup")
		f.wantFile("secrets/nomad_hup.jwt", "s3")

		if err := os.Chmod(f.p.Config.SecretsDir, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(f.p.Config.SecretsDir, f.p.Config.SecretsDir+".away"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.p.Config.SecretsDir, nil, 0o600); err != nil { // no folder: nothing can be written
			t.Fatal(err)
		}
		mustAccept(t, f.keeper, delivered("hup", "s4"))
		want("event")
		want("")
		if err := os.Remove(f.p.Config.SecretsDir); err != nil {
			t.Fatal(err)
		}
		want("SIGHUP: Renewed identity: hup")
		f.wantFile("secrets/nomad_hup.jwt", "s4")
		stop()
	})
}
