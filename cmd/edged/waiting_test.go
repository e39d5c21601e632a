package edged

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/drivers"
	"skerry/edge"
	"skerry/edge/consul"
	"skerry/edge/consul/consultest"
	"skerry/edge/identities"
	"skerry/edge/logins"
	"skerry/edge/logins/loginstest"
	"skerry/edge/machinekey"
	"skerry/edge/runner"
	"skerry/edge/vault"
	"skerry/edge/vault/vaulttest"
	"skerry/fleet"
	"skerry/syncproto"
)

const waitingAlloc = fleet.AllocID("5c6328f7-48c5-4d03-bada-91ef2e904d0d")

// waitingTask is a task whose templates read Vault and Consul, on an edge with the hooks for that.
type waitingTask struct {
	t      *testing.T
	vault  *vaulttest.Server
	consul *consultest.Agent
	issuer *loginstest.Issuer
	hooks  []runner.Hook
	p      *runner.Preparation
	events loginstest.Events
}

func newWaitingTask(t *testing.T, list ...fleet.Template) *waitingTask {
	t.Helper()
	w := &waitingTask{t: t, issuer: loginstest.NewIssuer(), consul: consultest.New()}
	w.vault = vaulttest.New(w.issuer.Keys)
	w.vault.MountKV("kv", 1)
	w.vault.SetRole("shop", vaulttest.Role{Audience: "vault.io", TTL: time.Hour, MaxTTL: 2 * time.Hour})
	w.consul.SetMethod(consul.DefaultAuthMethod, consultest.Method{Keys: w.issuer.Keys, Audience: "consul.io", TTL: time.Hour})
	key, _ := machinekey.New()
	journal, log := &loginstest.Journal{}, slog.New(slog.DiscardHandler)
	vaultClient, err := vault.NewClient(vault.ClientConfig{Address: "https://vault.example.com:8200", Transport: w.vault})
	if err != nil {
		t.Fatal(err)
	}
	consulClient, err := consul.NewClient(consul.ClientConfig{Address: "127.0.0.1:8500", Transport: w.consul})
	if err != nil {
		t.Fatal(err)
	}
	m := edge.Machine{Key: key, Now: time.Now, Log: log}
	if m.Identities, err = identities.Open(identities.Config{Journal: journal, Sealer: key, Log: log}); err != nil {
		t.Fatal(err)
	}
	if m.Vault, err = vault.Open(vaultClient, logins.Config{Journal: journal, Sealer: key, Log: log}); err != nil {
		t.Fatal(err)
	}
	if m.Consul, err = consul.OpenKeeper(consulClient, logins.Config{Journal: journal, Sealer: key, Log: log}); err != nil {
		t.Fatal(err)
	}
	var given []syncproto.DeliveredIdentity
	for name, audience := range map[string]string{fleet.VaultIdentity: "vault.io", fleet.ConsulIdentity: "consul.io"} {
		given = append(given, syncproto.DeliveredIdentity{Alloc: waitingAlloc, Task: "main", Name: name, Token: w.issuer.Sign(audience, 1000*time.Hour, nil), KeyID: "k1", Issued: 1, Expires: 2})
	}
	if _, err := m.Identities.Accept(t.Context(), given, ""); err != nil {
		t.Fatal(err)
	}
	w.hooks = serverHooks(m)
	root := t.TempDir()
	dir := filepath.Join(root, "allocs", "a", "main")
	w.p = &runner.Preparation{
		Alloc: fleet.Alloc{ID: waitingAlloc}, Task: &fleet.Task{Name: "main", Vault: &fleet.Vault{Role: "shop"}, Consul: &fleet.Consul{}, Templates: list},
		Config: &drivers.TaskConfig{Dir: dir, LocalDir: filepath.Join(dir, "local"), SecretsDir: filepath.Join(dir, "secrets"), StateDir: filepath.Join(root, "tasks", "a", "main", "1")},
		Event:  func(_, message string) error { return w.events.Note(message) },
	}
	if err := os.MkdirAll(w.p.Config.SecretsDir, 0o700); err != nil {
		t.Fatal(err)
	}
	return w
}

// prepare lets the hooks prepare an attempt, until the test ends.
func (w *waitingTask) prepare() (done <-chan error) {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	result := make(chan error, 1)
	go func() {
		for _, h := range w.hooks {
			if err := h.Prepare(ctx, w.p); err != nil {
				result <- err
				return
			}
		}
		result <- nil
	}()
	return result
}

// mustEnd waits for the end of a preparation, for two minutes at most.
func (w *waitingTask) mustEnd(done <-chan error) {
	w.t.Helper()
	select {
	case err := <-done:
		if err != nil {
			w.t.Fatal(err)
		}
	case <-time.After(2 * time.Minute):
		w.t.Fatalf("the task still waits: %s", w.events.Take())
	}
}

// fileText is the content of a file in the secrets folder.
func (w *waitingTask) fileText(name string) string {
	b, _ := os.ReadFile(filepath.Join(w.p.Config.SecretsDir, name))
	return string(b)
}

var (
	readsSecret = fleet.Template{EmbeddedTmpl: `{{ with secret "kv/db" }}{{ .Data.password }}{{ end }}`, DestPath: "secrets/db"}
	readsKey    = fleet.Template{EmbeddedTmpl: `{{ key "shop/db" }}`, DestPath: "secrets/key"}
)

// TestWaitingTaskStaysLoggedIn: a secret and a key that come long after the first tokens of the task have ended are rendered, and
// the files have tokens that are valid then.
func TestWaitingTaskStaysLoggedIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaitingTask(t, readsSecret, readsKey)
		done := w.prepare()
		time.Sleep(3 * time.Hour)
		if got := w.events.Take(); strings.Count(got, ";") != 0 || !strings.Contains(got, "The task waits for Vault: render template 1 (secrets/db)") {
			t.Errorf("events: %s", got)
		}
		w.vault.RevokeAll()
		time.Sleep(10 * time.Minute)
		w.vault.Put("kv", "db", map[string]any{"password": "geheim"})
		time.Sleep(3 * time.Hour)
		if got := w.events.Take(); strings.Count(got, ";") != 0 || !strings.Contains(got, "The task waits for Consul: render template 2 (secrets/key)") {
			t.Errorf("events: %s", got)
		}
		w.consul.PutKey("shop/db", "value")
		w.mustEnd(done)
		if w.fileText("db") != "geheim" || w.fileText("key") != "value" {
			t.Errorf("rendered %q and %q", w.fileText("db"), w.fileText("key"))
		}
		if !slices.Contains(w.vault.Tokens(), w.fileText("vault_token")) || !slices.Contains(w.consul.Tokens(), w.fileText("consul_token")) {
			t.Errorf("the files have the tokens %q of %q and %q of %q", w.fileText("vault_token"), w.vault.Tokens(), w.fileText("consul_token"), w.consul.Tokens())
		}
	})
}

// TestWaitingTaskWithoutItsRole: logins that are refused while the task waits are tried again once a minute, one event has the
// reason, and the task starts when they are accepted. That holds with allow_token_expiration, too.
func TestWaitingTaskWithoutItsRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaitingTask(t, readsSecret)
		w.p.Task.Vault.AllowTokenExpiration = true
		done := w.prepare()
		time.Sleep(time.Minute)
		w.vault.SetRole("shop", vaulttest.Role{Audience: "another"})
		w.vault.RevokeAll()
		w.events.Take()
		w.vault.Requests()
		time.Sleep(time.Hour)
		asked := 0
		for _, request := range w.vault.Requests() {
			if strings.HasSuffix(request, "/login") {
				asked++
			}
		}
		if asked < 50 || asked > 65 {
			t.Errorf("%d logins in an hour", asked)
		}
		if got := w.events.Take(); strings.Count(got, ";") != 0 || !strings.Contains(got, "is not renewed while it waits") || !strings.Contains(got, "audience") {
			t.Errorf("events: %s", got)
		}
		w.vault.SetRole("shop", vaulttest.Role{Audience: "vault.io", TTL: time.Hour})
		w.vault.Put("kv", "db", map[string]any{"password": "geheim"})
		w.mustEnd(done)
		if w.fileText("db") != "geheim" {
			t.Errorf("rendered %q", w.fileText("db"))
		}
	})
}
