package vault_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/logins"
	"skerry/edge/logins/loginstest"
	"skerry/edge/machinekey"
	"skerry/edge/vault"
	"skerry/edge/vault/vaulttest"
	"skerry/fleet"
	"skerry/internal/remoteapi"
)

const shop = fleet.AllocID("5c6328f7-48c5-4d03-bada-91ef2e904d0d")

var issuer = sync.OnceValue(loginstest.NewIssuer)

// memory is a journal in memory.
type memory struct {
	mu      sync.Mutex
	handles map[string][]byte
	fail    error
}

func (m *memory) PutHandle(_ context.Context, _ fleet.AllocID, key string, handle []byte, _ ...fleet.Transition) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
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

func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.handles)
}

// fixture is a Keeper with its Vault.
type fixture struct {
	t       *testing.T
	server  *vaulttest.Server
	journal *memory
	key     *machinekey.Key
	keeper  *vault.Keeper
	ended   atomic.Bool // the allocation
	log     bytes.Buffer
	task    logins.Task
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, server: vaulttest.New(issuer().Keys), journal: &memory{handles: map[string][]byte{}}}
	f.key, _ = machinekey.New()
	f.server.SetRole("shop", vaulttest.Role{Audience: "vault.io", TTL: time.Hour, MaxTTL: 24 * time.Hour, Claims: map[string]string{"nomad_job_id": "shop"}})
	f.reopen()
	f.use(&fleet.Vault{Role: "shop"})
	return f
}

// use gives the task a vault block.
func (f *fixture) use(block *fleet.Vault) { f.task = f.keeper.Client().Task(shop, "main", block) }

// reopen makes the Keeper as after a restart of the agent.
func (f *fixture) reopen() {
	f.t.Helper()
	client, err := vault.NewClient(vault.ClientConfig{Address: "https://vault.example.com:8200", Transport: f.server})
	if err == nil {
		f.keeper, err = vault.Open(client, logins.Config{
			Journal: f.journal, Sealer: f.key, Log: slog.New(slog.NewTextHandler(&f.log, nil)),
			Needs: func(context.Context, fleet.AllocID) (bool, error) { return !f.ended.Load(), nil },
		})
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// jwt is an identity of the task that is valid for two days.
func (f *fixture) jwt() string {
	return issuer().Sign("vault.io", 48*time.Hour, map[string]any{"nomad_job_id": "shop"})
}

// mustLogIn logs in, and returns the token.
func (f *fixture) mustLogIn() string {
	f.t.Helper()
	if err := f.keeper.Renew(f.t.Context(), f.task, f.jwt()); err != nil {
		f.t.Fatal(err)
	}
	token := f.keeper.Token(f.task)
	if token == "" {
		f.t.Fatal("no token")
	}
	return token
}

// upkeep does for a time what a running task does.
func (f *fixture) upkeep(d time.Duration, jwt string) (last error) {
	f.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		next, err := f.keeper.Upkeep(f.t.Context(), f.task, jwt)
		if last = err; err != nil {
			next = time.Minute
		}
		time.Sleep(min(next, time.Minute))
	}
	return last
}

// mustRead reads a secret, and returns its data as text.
func (f *fixture) mustRead(path string) string {
	f.t.Helper()
	s, err := f.keeper.Secret(f.t.Context(), f.task, path, false)
	if err != nil {
		f.t.Fatalf("%s: %v", path, err)
	}
	return fmt.Sprint(s.Data)
}

// mustHaveNoSecret checks that the journal and the log have nothing in clear.
func (f *fixture) mustHaveNoSecret() {
	f.t.Helper()
	for key, raw := range f.journal.handles {
		if bytes.Contains(raw, []byte("marked")) || strings.Contains(key, "marked") {
			f.t.Errorf("the journal has %s in clear", key)
		}
	}
	if strings.Contains(f.log.String(), "marked") {
		f.t.Errorf("the log: %s", f.log.String())
	}
}

// TestTokenIsRenewed: a token is renewed, and replaced before its longest life is over: there is a valid one all the time.
func TestTokenIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		first, jwt := f.mustLogIn(), f.jwt()
		f.server.Requests()
		if err := f.upkeep(5*time.Hour, jwt); err != nil || f.keeper.Token(f.task) != first {
			t.Fatalf("%v, token %s, want %s", err, f.keeper.Token(f.task), first)
		}
		if asked := f.server.Requests(); len(asked) < 9 || len(asked) > 11 || asked[0] != "POST auth/token/renew-self" {
			t.Errorf("in five hours Vault was asked %q", asked)
		}
		for range 30 * 60 {
			if err := f.upkeep(time.Minute, jwt); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(f.server.Tokens(), f.keeper.Token(f.task)) {
				t.Fatalf("the token %s is not valid", f.keeper.Token(f.task))
			}
		}
		if f.keeper.Token(f.task) == first {
			t.Error("the token was not replaced after its longest life")
		}
	})
}

// TestTokensThatAreNotRenewed: one that cannot be renewed is replaced before its end, one that does not end is kept, and with
// allow_token_expiration nothing is renewed.
func TestTokensThatAreNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			role    vaulttest.Role
			expires bool
			valid   bool
			same    bool
		}{
			"fixed":   {vaulttest.Role{Audience: "vault.io", TTL: time.Hour, Fixed: true}, false, true, false},
			"endless": {vaulttest.Role{Audience: "vault.io"}, false, true, true},
			"expires": {vaulttest.Role{Audience: "vault.io", TTL: time.Hour}, true, false, true},
		} {
			f := newFixture(t)
			f.server.SetRole("shop", tc.role)
			f.use(&fleet.Vault{Role: "shop", AllowTokenExpiration: tc.expires})
			first, jwt := f.mustLogIn(), f.jwt()
			if err := f.upkeep(10*time.Hour, jwt); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			token := f.keeper.Token(f.task)
			if valid := slices.Contains(f.server.Tokens(), token); valid != tc.valid || (token == first) != tc.same {
				t.Errorf("%s: token %s after %s, valid %v", name, token, first, valid)
			}
			if err := f.keeper.Renew(t.Context(), f.task, jwt); err != nil || !slices.Contains(f.server.Tokens(), f.keeper.Token(f.task)) {
				t.Errorf("%s: at the next start: %v", name, err)
			}
		}
	})
}

// TestVaultIsAway: the task keeps its token and its secrets for as long as Vault is away, also over a restart, and logs in
// again when it is back. Nothing is on the disk in clear.
func TestVaultIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.server.MountKV("kv", 2)
		f.server.Put("kv", "db", map[string]any{"password": "marked-one"})
		token := f.mustLogIn()
		want := f.mustRead("kv/data/db")
		if !strings.Contains(want, "marked-one") {
			t.Fatal(want)
		}
		for name, fail := range map[string]func(away bool){
			"no network": func(away bool) {
				f.server.FailNetwork(map[bool]error{true: errors.New("connection refused")}[away])
			},
			"sealed":   func(away bool) { f.server.FailAll(map[bool]int{true: 503}[away]) },
			"too busy": func(away bool) { f.server.FailAll(map[bool]int{true: 429}[away]) },
		} {
			fail(true)
			if err := f.upkeep(2*time.Hour, f.jwt()); err == nil || remoteapi.IsRefused(err) {
				t.Errorf("%s: %v", name, err)
			}
			f.reopen()
			if err := f.keeper.Renew(t.Context(), f.task, f.jwt()); err == nil || remoteapi.IsRefused(err) {
				t.Errorf("%s: after a restart: %v", name, err)
			}
			if f.keeper.Token(f.task) != token || f.mustRead("kv/data/db") != want {
				t.Errorf("%s: token %q, secret %s", name, f.keeper.Token(f.task), f.mustRead("kv/data/db"))
			}
			if _, err := f.keeper.Secret(t.Context(), f.task, "kv/data/other", false); err == nil || fleet.CodeOf(err) == fleet.CodeInvalid {
				t.Errorf("%s: a secret that was never read: %v", name, err)
			}
			fail(false)
			if err := f.upkeep(time.Minute, f.jwt()); err != nil {
				t.Errorf("%s: back: %v", name, err)
			}
			if next := f.keeper.Token(f.task); next == token || !slices.Contains(f.server.Tokens(), next) {
				t.Errorf("%s: the token %s has ended, and now there is %s", name, token, next)
			}
			token = f.keeper.Token(f.task)
		}
		f.mustHaveNoSecret()

		f.key, _ = machinekey.New()
		f.reopen()
		if f.keeper.Token(f.task) != "" || !strings.Contains(f.log.String(), "has to log in again") {
			t.Errorf("with another key: %q, log %s", f.keeper.Token(f.task), f.log.String())
		}
	})
}

// TestRefusedLogins: Vault decides by the JWT and the role; the error has its reason, and no secret.
func TestRefusedLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		stranger := loginstest.NewIssuer()
		claims := map[string]any{"nomad_job_id": "shop"}
		for want, jwt := range map[string]string{
			"audience":  issuer().Sign("other", time.Hour, claims),
			"expired":   issuer().Sign("vault.io", -time.Second, claims),
			"signature": stranger.Sign("vault.io", time.Hour, claims),
			"claim":     issuer().Sign("vault.io", time.Hour, map[string]any{"nomad_job_id": "till"}),
		} {
			err := f.keeper.Renew(t.Context(), f.task, jwt)
			if !remoteapi.IsRefused(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), jwt) || f.keeper.Token(f.task) != "" {
				t.Errorf("%s: %v", want, err)
			}
		}
		if err := f.keeper.Renew(t.Context(), f.task, ""); err == nil || remoteapi.IsRefused(err) || !strings.Contains(err.Error(), "no identity vault_default") {
			t.Errorf("without an identity: %v", err)
		}
		f.use(&fleet.Vault{Role: "none"})
		if err := f.keeper.Renew(t.Context(), f.task, f.jwt()); !remoteapi.IsRefused(err) || !strings.Contains(err.Error(), `role "none" could not be found`) {
			t.Errorf("unknown role: %v", err)
		}
		f.journal.fail = errors.New("disk full")
		f.use(&fleet.Vault{Role: "shop"})
		if err := f.keeper.Renew(t.Context(), f.task, f.jwt()); err == nil || f.keeper.Token(f.task) != "" {
			t.Errorf("a token that is not journaled is used: %v", err)
		}
	})
}

// TestSecretsAreReadAgain: KV stores of both versions, with and without data in the path, are read again in time. What is
// deleted or denied later stays as it was.
func TestSecretsAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.server.SetRole("shop", vaulttest.Role{Audience: "vault.io", TTL: time.Hour, Paths: []string{"one", "two"}})
		for version, mount := range map[int]string{1: "one", 2: "two"} {
			f.server.MountKV(mount, version)
			f.server.Put(mount, "a/db", map[string]any{"password": "marked-1", "port": 5432})
			f.server.Put(mount, "a/web", map[string]any{"x": "y"})
		}
		f.server.MountKV("three", 2)
		if _, err := f.keeper.Secret(t.Context(), f.task, "one/a/db", false); err == nil || fleet.CodeOf(err) != fleet.CodeUnavailable {
			t.Errorf("before a login: %v", err)
		}
		f.mustLogIn()
		for path, want := range map[string]string{
			"one/a/db": "map[password:marked-1 port:5432]", "/two/data/a/db": "map[data:map[password:marked-1 port:5432] metadata:map[asked: version:1]]",
			"two/a/db": "map[data:map[password:marked-1 port:5432] metadata:map[asked: version:1]]", "two/a/db?version=3": "map[data:map[password:marked-1 port:5432] metadata:map[asked:3 version:1]]",
		} {
			if got := f.mustRead(path); got != want {
				t.Errorf("%s: %s, want %s", path, got, want)
			}
		}
		for _, path := range []string{"one/a", "one/a/", "two/a", "two/metadata/a"} {
			if s, err := f.keeper.Secret(t.Context(), f.task, path, true); err != nil || fmt.Sprint(s.Keys()) != "[db web]" {
				t.Errorf("list %s: %v, %v", path, s.Keys(), err)
			}
		}
		for path, want := range map[string]string{"one/none": "there is no secret one/none", "three/a": "permission denied", "nowhere/a": "permission denied"} {
			if _, err := f.keeper.Secret(t.Context(), f.task, path, false); err == nil || !strings.Contains(err.Error(), want) || fleet.CodeOf(err) == fleet.CodeInvalid {
				t.Errorf("%s: %v, want %s", path, err, want)
			}
		}
		for _, path := range []string{"", "/", "one/../sys", "one/a?list=true", "one/\x00", strings.Repeat("a", 2000), "%zz"} {
			if _, err := f.keeper.Secret(t.Context(), f.task, path, false); fleet.CodeOf(err) != fleet.CodeInvalid && fleet.CodeOf(err) != fleet.CodeUnsupported {
				t.Errorf("%.20q: %v", path, err)
			}
		}
		f.server.Put("one", "a/db", map[string]any{"password": "marked-2"})
		f.server.Delete("two", "a/db")
		if got := f.mustRead("one/a/db"); !strings.Contains(got, "marked-1") {
			t.Errorf("read again at once: %s", got)
		}
		if err := f.upkeep(10*time.Minute, f.jwt()); !remoteapi.IsRefused(err) && err != nil {
			t.Error(err)
		}
		if got := f.mustRead("one/a/db"); got != "map[password:marked-2]" {
			t.Errorf("not read again: %s", got)
		}
		if got := f.mustRead("two/a/db"); !strings.Contains(got, "marked-1") {
			t.Errorf("of what was deleted: %s", got)
		}
		f.mustHaveNoSecret()
	})
}

// TestLeasesAreRenewed: the lease of a dynamic secret is renewed, also by a restarted agent, and another secret is read before
// its longest life is over, or when its token was revoked.
func TestLeasesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.server.MountDynamic("db", time.Hour, 4*time.Hour)
		f.server.MountDynamic("short", time.Hour, time.Hour)
		f.mustLogIn()
		first, short := f.mustRead("db/creds/shop"), f.mustRead("short/creds/shop")
		if err := f.upkeep(90*time.Minute, f.jwt()); err != nil {
			t.Fatal(err)
		}
		f.reopen()
		if err := f.upkeep(90*time.Minute, f.jwt()); err != nil || f.mustRead("db/creds/shop") != first || f.mustRead("short/creds/shop") == short {
			t.Errorf("%v: %s after %s, %s after %s", err, f.mustRead("db/creds/shop"), first, f.mustRead("short/creds/shop"), short)
		}
		if err := f.upkeep(time.Hour, f.jwt()); err != nil || f.mustRead("db/creds/shop") == first {
			t.Errorf("%v: a lease at its end is kept: %s", err, first)
		}
		second := f.mustRead("db/creds/shop")
		f.server.RevokeAll()
		if err := f.upkeep(time.Hour, f.jwt()); err != nil || f.mustRead("db/creds/shop") == second {
			t.Errorf("%v: the lease of a revoked token is kept: %s", err, second)
		}
	})
}

// TestEndedAllocationsAreForgotten: nothing of them stays on the disk, and their tokens are revoked if Vault answers.
func TestEndedAllocationsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, away := range []error{nil, errors.New("no route")} {
			f := newFixture(t)
			f.mustLogIn()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- f.keeper.Run(ctx) }()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if f.journal.count() != 1 {
				t.Fatalf("journal: %d records", f.journal.count())
			}
			f.ended.Store(true)
			f.server.FailNetwork(away)
			time.Sleep(time.Minute)
			synctest.Wait()
			if f.journal.count() != 0 || f.keeper.Token(f.task) != "" || len(f.server.Tokens()) != map[bool]int{true: 0, false: 1}[away == nil] {
				t.Errorf("away %v: journal %d records, token %q, Vault has %q", away, f.journal.count(), f.keeper.Token(f.task), f.server.Tokens())
			}
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestRefusalsHavePauses: a task that looks for a secret every five seconds has its token checked once a minute while Vault refuses the
// secret, and logs in as seldom while Vault refuses that. A login that is accepted again is noticed within a minute.
func TestRefusalsHavePauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.server.MountKV("kv", 1)
		f.server.Put("kv", "db", map[string]any{"password": "marked"})
		refuses := vaulttest.Role{Audience: "vault.io", TTL: time.Hour, Paths: []string{"none"}}
		f.server.SetRole("shop", refuses)
		f.mustLogIn()
		jwt := f.jwt()
		poll := func(d time.Duration) (counts map[string]int, failed int) {
			f.server.Requests()
			for range d / (5 * time.Second) {
				if _, err := f.keeper.Secret(t.Context(), f.task, "kv/db", false); err == nil {
					t.Fatal("it could read the secret")
				}
				if _, err := f.keeper.Upkeep(t.Context(), f.task, jwt); err != nil {
					failed++
				}
				time.Sleep(5 * time.Second)
			}
			counts = map[string]int{}
			for _, request := range f.server.Requests() {
				counts[request]++
			}
			return counts, failed
		}
		const login, renewal = "POST auth/jwt-nomad/login", "POST auth/token/renew-self"
		if counts, failed := poll(time.Hour); counts[login] != 0 || counts[renewal] < 50 || counts[renewal] > 60 || failed != 0 {
			t.Errorf("a secret that is refused: in an hour %v, %d failures", counts, failed)
		}
		f.server.SetRole("shop", vaulttest.Role{Audience: "another"})
		f.server.RevokeAll()
		if counts, failed := poll(time.Hour); counts[login] < 50 || counts[login] > 65 || counts[login] != counts[renewal] || failed < 700 {
			t.Errorf("a login that is refused: in an hour %v, %d failures", counts, failed)
		}
		f.server.SetRole("shop", refuses)
		if counts, _ := poll(65 * time.Second); counts[login] < 1 || !slices.Contains(f.server.Tokens(), f.keeper.Token(f.task)) {
			t.Errorf("a login that is accepted again: %v", counts)
		}
	})
}

// TestSecretsAreBounded: a task has a bounded number of secrets, of a bounded size.
func TestSecretsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.server.MountKV("one", 1)
		f.server.Put("one", "large", map[string]any{"x": strings.Repeat("y", 600<<10)})
		f.server.Put("one", "huge", map[string]any{"x": strings.Repeat("y", 2<<20)})
		f.mustLogIn()
		if _, err := f.keeper.Secret(t.Context(), f.task, "one/large", false); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("large: %v", err)
		}
		if _, err := f.keeper.Secret(t.Context(), f.task, "one/huge", false); err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("huge: %v", err)
		}
		for i := range 65 {
			path := fmt.Sprint("many-", i)
			f.server.Put("one", path, map[string]any{"x": "y"})
			_, err := f.keeper.Secret(t.Context(), f.task, "one/"+path, false)
			if (err != nil) != (i == 64) {
				t.Errorf("secret %d: %v", i, err)
			}
		}
	})
}
