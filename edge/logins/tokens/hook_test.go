package tokens_test

import (
	"context"
	"errors"
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
	"skerry/edge/logins"
	"skerry/edge/logins/loginstest"
	"skerry/edge/logins/tokens"
	"skerry/edge/machinekey"
	"skerry/edge/runner"
	"skerry/edge/vault"
	"skerry/edge/vault/vaulttest"
	"skerry/fleet"
	"skerry/syncproto"
)

const shop = fleet.AllocID("5c6328f7-48c5-4d03-bada-91ef2e904d0d")

var issuer = sync.OnceValue(loginstest.NewIssuer)

// memory is a journal in memory.
type memory struct {
	mu      sync.Mutex
	handles map[string][]byte
}

func (m *memory) PutHandle(_ context.Context, _ fleet.AllocID, key string, handle []byte, _ ...fleet.Transition) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handles[key] = handle
	return nil
}

func (m *memory) Handles(context.Context, fleet.AllocID) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.handles), nil
}

// fixture is a task with its folders, and the hooks that give it its token.
type fixture struct {
	t       *testing.T
	server  *vaulttest.Server
	ids     *identities.Keeper
	keeper  *vault.Keeper
	hook    *tokens.Hook
	p       *runner.Preparation
	events  loginstest.Events // of the preparation, and what the task was told
	journal *memory
	key     *machinekey.Key
}

func newFixture(t *testing.T, block *fleet.Vault) *fixture {
	t.Helper()
	f := &fixture{t: t, server: vaulttest.New(issuer().Keys), journal: &memory{handles: map[string][]byte{}}}
	f.key, _ = machinekey.New()
	f.server.SetRole("shop", vaulttest.Role{Audience: "vault.io", TTL: time.Hour})
	f.reopen()
	dir := filepath.Join(t.TempDir(), "main")
	f.p = &runner.Preparation{
		Alloc: fleet.Alloc{ID: shop}, Task: &fleet.Task{Name: "main", Vault: block},
		Config: &drivers.TaskConfig{Dir: dir, LocalDir: filepath.Join(dir, "local"), SecretsDir: filepath.Join(dir, "secrets")},
		Event:  func(_, message string) error { return f.events.Note(message) },
	}
	if err := os.MkdirAll(f.p.Config.SecretsDir, 0o700); err != nil {
		t.Fatal(err)
	}
	return f
}

// reopen makes the keepers as after a restart of the agent.
func (f *fixture) reopen() {
	f.t.Helper()
	log := slog.New(slog.DiscardHandler)
	client, err := vault.NewClient(vault.ClientConfig{Address: "https://vault.example.com:8200", Namespace: "", Transport: f.server})
	if err == nil {
		f.ids, err = identities.Open(identities.Config{Journal: f.journal, Sealer: f.key, Log: log})
	}
	if err == nil {
		f.keeper, err = vault.Open(client, logins.Config{Journal: f.journal, Sealer: f.key, Log: log})
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.hook = tokens.ForVault(f.keeper, f.ids, log)
}

// told is a task that notes what it is told.
type told struct {
	runner.TaskControl
	f *fixture
}

func (c told) Restart(_ context.Context, reason string) error {
	return c.f.events.Note("restart: " + reason)
}
func (c told) Signal(_ context.Context, signal, reason string) error {
	return c.f.events.Note(signal + ": " + reason)
}
func (c told) Event(_ context.Context, _, message string) error { return c.f.events.Note(message) }

// mustDeliver delivers the task's identity, as a hub does.
func (f *fixture) mustDeliver() {
	f.t.Helper()
	_, err := f.ids.Accept(f.t.Context(), []syncproto.DeliveredIdentity{{
		Alloc: shop, Task: "main", Name: fleet.VaultIdentity, Token: issuer().Sign("vault.io", 1000*time.Hour, nil), KeyID: "k1", Issued: 1, Expires: 2,
	}}, "")
	if err != nil {
		f.t.Fatal(err)
	}
}

// mustPrepare prepares an attempt.
func (f *fixture) mustPrepare() {
	f.t.Helper()
	if err := f.hook.Prepare(f.t.Context(), f.p); err != nil {
		f.t.Fatal(err)
	}
}

// fileText is the content of the token's file; "": there is none.
func (f *fixture) fileText() string {
	b, _ := os.ReadFile(filepath.Join(f.p.Config.Dir, "secrets", "vault_token"))
	return string(b)
}

// watch runs the watcher until stop.
func (f *fixture) watch() (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.hook.Watch(ctx, f.p, told{f: f}) }()
	return func() { cancel(); <-done }
}

// TestTokenOfATask: the task waits for its identity and for Vault, says each once, and then has the token in its file and in
// its environment.
func TestTokenOfATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &fleet.Vault{Env: true, Role: "shop", Namespace: "team"})
		f.server.FailNetwork(errors.New("connection refused"))
		done := make(chan error, 1)
		go func() { done <- f.hook.Prepare(t.Context(), f.p) }()
		time.Sleep(time.Hour)
		if got := f.events.Take(); strings.Count(got, "waits") != 1 || !strings.Contains(got, "no identity vault_default") {
			t.Errorf("events: %s", got)
		}
		f.mustDeliver()
		time.Sleep(time.Hour)
		if f.fileText() != "" {
			t.Errorf("the file has %q", f.fileText())
		}
		f.server.FailNetwork(nil)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		token := f.keeper.Token(f.keeper.Client().Task(shop, "main", f.p.Task.Vault))
		if token == "" || f.fileText() != token || strings.Contains(f.events.Take(), "marked") {
			t.Errorf("the file has %q, want %q", f.fileText(), token)
		}
		environment := &tokens.Environment{Vault: f.keeper}
		f.p.Config.Env = map[string]string{"VAULT_ADDR": "https://own:8200"}
		if err := environment.Prepare(t.Context(), f.p); err != nil || !maps.Equal(f.p.Config.Env, map[string]string{"VAULT_TOKEN": token, "VAULT_ADDR": "https://own:8200", "VAULT_NAMESPACE": "team"}) {
			t.Errorf("%v: %v", err, f.p.Config.Env)
		}
	})
}

// TestTokenIsHidden: env = false and disable_file = true leave the task without the token.
func TestTokenIsHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &fleet.Vault{Role: "shop", DisableFile: true})
		f.mustDeliver()
		f.mustPrepare()
		environment := &tokens.Environment{Vault: f.keeper}
		if err := environment.Prepare(t.Context(), f.p); err != nil || len(f.p.Config.Env) > 0 || f.fileText() != "" {
			t.Errorf("%v: %v, file %q", err, f.p.Config.Env, f.fileText())
		}
		f.p.Task = &fleet.Task{Name: "other"}
		if err := f.hook.Prepare(t.Context(), f.p); err != nil {
			t.Errorf("a task without a vault block: %v", err)
		}
		f.p.Task = &fleet.Task{Name: "main", Vault: &fleet.Vault{}}
		none := tokens.ForVault(nil, nil, nil)
		if err := none.Prepare(t.Context(), f.p); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("on an edge without a Vault: %v", err)
		}
	})
}

// TestChangeModes: a lost token is replaced, and the task told by its change_mode.
func TestChangeModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for mode, want := range map[string]string{
			fleet.ChangeNoop: "Vault gave the task another token", fleet.ChangeSignal: "SIGUSR1: Vault gave the task another token", fleet.ChangeRestart: "restart: Vault gave the task another token",
		} {
			f := newFixture(t, &fleet.Vault{Role: "shop", ChangeMode: mode, ChangeSignal: "SIGUSR1"})
			f.mustDeliver()
			f.mustPrepare()
			stop := f.watch()
			time.Sleep(5 * time.Hour)
			if got := f.events.Take(); got != "" {
				t.Errorf("%s: told without a reason: %s", mode, got)
			}
			first := f.fileText()
			f.server.RevokeAll()
			time.Sleep(time.Hour)
			if got := f.events.Take(); got != want || f.fileText() == first {
				t.Errorf("%s: told %q, want %q", mode, got, want)
			}
			stop()
			f.server.RevokeAll() // while no agent runs
			f.reopen()
			f.mustPrepareUnwritten()
			stop = f.watch()
			time.Sleep(time.Minute)
			if got := f.events.Take(); got != want {
				t.Errorf("%s: after a restart of the agent: told %q", mode, got)
			}
			stop()
		}
	})
}

// mustPrepareUnwritten logs in as an agent that dies before it writes the token's file.
func (f *fixture) mustPrepareUnwritten() {
	f.t.Helper()
	jwt, _, _ := f.ids.Token(shop, "main", fleet.VaultIdentity)
	if err := f.keeper.Renew(f.t.Context(), f.keeper.Client().Task(shop, "main", f.p.Task.Vault), jwt); err != nil {
		f.t.Fatal(err)
	}
}

// TestOutageStopsNothing: while Vault is away for a week, or refuses, a running task is told once and is left alone, and it
// starts again with the token that it had, also with an agent that has restarted.
func TestOutageStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, fail := range map[string]func(f *fixture){
			"away":    func(f *fixture) { f.server.FailNetwork(errors.New("connection refused")) },
			"sealed":  func(f *fixture) { f.server.FailAll(503) },
			"refuses": func(f *fixture) { f.server.FailAll(403) },
		} {
			f := newFixture(t, &fleet.Vault{Role: "shop", ChangeMode: fleet.ChangeRestart})
			f.mustDeliver()
			f.mustPrepare()
			first := f.fileText()
			stop := f.watch()
			fail(f)
			time.Sleep(7 * 24 * time.Hour)
			if got := f.events.Take(); strings.Count(got, ";") != 0 || !strings.Contains(got, "goes on with the Vault token") {
				t.Errorf("%s: told %q", name, got)
			}
			stop()
			f.reopen()
			f.mustPrepare()
			if got := f.events.Take(); !strings.Contains(got, "starts with the Vault token that it had") || f.fileText() != first {
				t.Errorf("%s: started with %q after %q: %s", name, f.fileText(), first, got)
			}
			f.server.FailNetwork(nil)
			f.server.FailAll(0)
			stop = f.watch()
			time.Sleep(10 * time.Minute)
			if got := f.events.Take(); !strings.Contains(got, "restart: ") || f.fileText() == first || f.fileText() == "" {
				t.Errorf("%s: back: told %q", name, got)
			}
			stop()
		}
	})
}

// TestRefusedSecretIsReportedOnce: a secret that was deleted is reported once, and once more when it is there again. Another one is
// read again in time meanwhile.
func TestRefusedSecretIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &fleet.Vault{Role: "shop"})
		f.mustDeliver()
		f.mustPrepare()
		f.server.MountKV("kv", 1)
		read := func(path string) string {
			s, err := f.keeper.Secret(t.Context(), f.keeper.Client().Task(shop, "main", f.p.Task.Vault), path, false)
			if err != nil {
				t.Fatal(err)
			}
			return s.Data["at"].(string)
		}
		for _, path := range []string{"gone", "stays"} {
			f.server.Put("kv", path, map[string]any{"at": "first"})
			read("kv/" + path)
		}
		stop := f.watch()
		defer stop()
		time.Sleep(time.Minute)
		f.server.Delete("kv", "gone")
		time.Sleep(24 * time.Hour)
		if got := f.events.Take(); strings.Contains(got, ";") || !strings.Contains(got, "there is no secret kv/gone") {
			t.Errorf("told %q", got)
		}
		f.server.Put("kv", "stays", map[string]any{"at": "second"})
		f.server.Requests()
		time.Sleep(time.Hour)
		asked := 0
		for _, request := range f.server.Requests() {
			if request == "GET kv/gone" {
				asked++
			}
		}
		if asked < 10 || asked > 14 || read("kv/stays") != "second" || read("kv/gone") != "first" {
			t.Errorf("asked %d times in an hour; the task has %s and %s", asked, read("kv/stays"), read("kv/gone"))
		}
		f.server.Put("kv", "gone", map[string]any{"at": "third"})
		time.Sleep(10 * time.Minute)
		if got := f.events.Take(); got != "Vault token and secrets are renewed again" || read("kv/gone") != "third" {
			t.Errorf("told %q, and the task has %s", got, read("kv/gone"))
		}
	})
}

// TestFileThatCannotBeWritten: the task is told once, and gets the token when it can.
func TestFileThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &fleet.Vault{Role: "shop", ChangeMode: fleet.ChangeNoop})
		f.mustDeliver()
		f.mustPrepare()
		stop := f.watch()
		defer stop()
		synctest.Wait()
		if err := os.RemoveAll(f.p.Config.SecretsDir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.p.Config.SecretsDir, nil, 0o600); err != nil { // no folder: nothing can be written
			t.Fatal(err)
		}
		f.server.RevokeAll()
		time.Sleep(time.Hour)
		if got := f.events.Take(); strings.Count(got, "write the Vault token") != 1 {
			t.Errorf("told %q", got)
		}
		if err := os.Remove(f.p.Config.SecretsDir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if got := f.events.Take(); got != "Vault gave the task another token" || f.fileText() == "" {
			t.Errorf("told %q", got)
		}
	})
}
