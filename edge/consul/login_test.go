package consul_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/consul"
	"skerry/edge/consul/consultest"
	"skerry/edge/logins"
	"skerry/edge/logins/loginstest"
	"skerry/edge/machinekey"
	"skerry/fleet"
	"skerry/fleet/template"
	"skerry/internal/remoteapi"
)

const shop = fleet.AllocID("5c6328f7-48c5-4d03-bada-91ef2e904d0d")

var issuer = sync.OnceValue(loginstest.NewIssuer)

// loginBench is a Keeper with its Consul.
type loginBench struct {
	t       *testing.T
	agent   *consultest.Agent
	journal loginstest.Journal
	key     *machinekey.Key
	keeper  *consul.Keeper
	task    logins.Task
	ended   atomic.Bool // the allocation
	log     bytes.Buffer
	jwt     string // of the task, valid for longer than the test
}

// inLogins runs a test in virtual time with a Consul whose tokens live for an hour.
func inLogins(t *testing.T, test func(t *testing.T, b *loginBench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &loginBench{t: t, agent: consultest.New()}
		b.key, _ = machinekey.New()
		b.agent.SetMethod(consul.DefaultAuthMethod, consultest.Method{Keys: issuer().Keys, Audience: "consul.io", Claims: map[string]string{"nomad_job_id": "shop"}, TTL: time.Hour, Prefixes: []string{"shop"}})
		b.jwt = issuer().Sign("consul.io", 1000*time.Hour, map[string]any{"nomad_job_id": "shop"})
		b.reopen()
		test(t, b)
	})
}

// reopen makes the Keeper as after a restart of the agent.
func (b *loginBench) reopen() {
	b.t.Helper()
	client, err := consul.NewClient(consul.ClientConfig{Address: "127.0.0.1:8500", TokenFile: "/none", Transport: b.agent})
	if err == nil {
		b.keeper, err = consul.OpenKeeper(client, logins.Config{
			Journal: &b.journal, Sealer: b.key, Log: slog.New(slog.NewTextHandler(&b.log, nil)),
			Needs: func(context.Context, fleet.AllocID) (bool, error) { return !b.ended.Load(), nil },
		})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.task = client.Task(shop, "main")
}

// mustLogIn logs in, and returns the token.
func (b *loginBench) mustLogIn() string {
	b.t.Helper()
	if err := b.keeper.Renew(b.t.Context(), b.task, b.jwt); err != nil {
		b.t.Fatal(err)
	}
	return b.keeper.Token(b.task)
}

// upkeep does for a time what a running task does.
func (b *loginBench) upkeep(d time.Duration) (last error) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		next, err := b.keeper.Upkeep(b.t.Context(), b.task, b.jwt)
		if last = err; err != nil {
			next = time.Minute
		}
		time.Sleep(min(next, time.Minute))
	}
	return last
}

// read returns the pairs of a query as text.
func (b *loginBench) read(key string, below bool) string {
	found, err := b.keeper.Pairs(b.t.Context(), b.task, template.KeyQuery{Key: key, Below: below})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(found)
}

// TestTaskIsLoggedIn: a token is replaced before its end, by a login, since Consul renews none: there is a valid one all the
// time. One that does not end, or that is revoked, is noticed.
func TestTaskIsLoggedIn(t *testing.T) {
	inLogins(t, func(t *testing.T, b *loginBench) {
		first := b.mustLogIn()
		for range 10 * 60 {
			if err := b.upkeep(time.Minute); err != nil || !slices.Contains(b.agent.Tokens(), b.keeper.Token(b.task)) {
				t.Fatalf("%v: token %q of %q", err, b.keeper.Token(b.task), b.agent.Tokens())
			}
		}
		last := b.keeper.Token(b.task)
		if last == first || len(b.agent.Tokens()) > 3 {
			t.Errorf("after ten hours: %s after %s, %q", last, first, b.agent.Tokens())
		}
		b.reopen()
		if err := b.keeper.Renew(t.Context(), b.task, ""); err != nil || b.keeper.Token(b.task) != last {
			t.Errorf("after a restart, without an identity: %q after %q, %v", b.keeper.Token(b.task), last, err)
		}
		b.agent.RevokeAll()
		if err := b.upkeep(time.Hour); err != nil || !slices.Contains(b.agent.Tokens(), b.keeper.Token(b.task)) {
			t.Errorf("revoked: %v", err)
		}
		b.agent.SetMethod(consul.DefaultAuthMethod, consultest.Method{Keys: issuer().Keys, Audience: "consul.io"})
		b.agent.RevokeAll()
		endless := b.mustLogIn()
		if err := b.upkeep(48 * time.Hour); err != nil || b.keeper.Token(b.task) != endless {
			t.Errorf("a token that does not end was replaced: %v", err)
		}
	})
}

// TestRefusedConsulLogins: Consul decides by the JWT and the auth method; the error has its reason, and no secret.
func TestRefusedConsulLogins(t *testing.T) {
	inLogins(t, func(t *testing.T, b *loginBench) {
		for want, jwt := range map[string]string{
			"audience": issuer().Sign("other", time.Hour, map[string]any{"nomad_job_id": "shop"}),
			"expired":  issuer().Sign("consul.io", -time.Second, map[string]any{"nomad_job_id": "shop"}),
			"claim":    issuer().Sign("consul.io", time.Hour, map[string]any{"nomad_job_id": "till"}),
		} {
			if err := b.keeper.Renew(t.Context(), b.task, jwt); !remoteapi.IsRefused(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), jwt) || b.keeper.Token(b.task) != "" {
				t.Errorf("%s: %v", want, err)
			}
		}
		if err := b.keeper.Renew(t.Context(), b.task, ""); err == nil || remoteapi.IsRefused(err) || !strings.Contains(err.Error(), "no identity consul_default") {
			t.Errorf("without an identity: %v", err)
		}
		b.task.Role = "none"
		if err := b.keeper.Renew(t.Context(), b.task, b.jwt); !remoteapi.IsRefused(err) || !strings.Contains(err.Error(), `auth method "none" not found`) {
			t.Errorf("unknown method: %v", err)
		}
	})
}

// TestKeysAreReadAgain: a key, its absence and the keys below one are read again in time. Consul may be away, and the edge
// restart: the task has what it had. What is refused stays as it was, and nothing is on the disk in clear.
func TestKeysAreReadAgain(t *testing.T) {
	inLogins(t, func(t *testing.T, b *loginBench) {
		b.agent.PutKey("shop/db", "marked-one")
		b.agent.PutKey("shop/a/x", "marked-x")
		b.agent.PutKey("shop/ab", "marked-ab")
		if got := b.read("shop/db", false); !strings.Contains(got, "no token yet") {
			t.Errorf("before a login: %s", got)
		}
		b.mustLogIn()
		want := map[string]string{"shop/db": "[{shop/db shop/db marked-one 0}]", "shop/none": "[]"}
		for key, pairs := range want {
			if got := b.read(key, false); got != pairs {
				t.Errorf("%s: %s, want %s", key, got, pairs)
			}
		}
		if got := b.read("/shop/a/", true); got != "[{shop/a/x x marked-x 0}]" {
			t.Errorf("below: %s", got)
		}
		if got := b.read("till/db", false); !strings.Contains(got, "Permission denied") {
			t.Errorf("of another job: %s", got)
		}
		if _, err := b.keeper.Pairs(t.Context(), b.task, template.KeyQuery{Key: "shop/none", Needed: true}); err == nil || !strings.Contains(err.Error(), "there is no key shop/none") || fleet.CodeOf(err) == fleet.CodeInvalid {
			t.Errorf("a key that is needed: %v", err)
		}
		b.agent.PutKey("shop/none", "marked-none")
		b.agent.FailNetwork(errors.New("no route"))
		if err := b.upkeep(3 * time.Hour); err == nil || b.read("shop/none", false) != "[]" || b.keeper.Token(b.task) == "" {
			t.Errorf("away: %v, %s", err, b.read("shop/none", false))
		}
		b.reopen()
		if got := b.read("shop/db", false); got != want["shop/db"] {
			t.Errorf("away, after a restart: %s", got)
		}
		b.agent.FailNetwork(nil)
		b.agent.DeleteKey("shop/a/x")
		if err := b.upkeep(2 * time.Minute); err != nil || b.read("shop/none", false) != "[{shop/none shop/none marked-none 0}]" || b.read("shop/a", true) != "[]" {
			t.Errorf("back: %v, %s, %s", err, b.read("shop/none", false), b.read("shop/a", true))
		}
		b.agent.SetMethod(consul.DefaultAuthMethod, consultest.Method{Keys: issuer().Keys, Audience: "consul.io", TTL: time.Hour, Prefixes: []string{"shop/none"}})
		if err := b.upkeep(10 * time.Minute); !remoteapi.IsRefused(err) && err != nil || b.read("shop/db", false) != want["shop/db"] {
			t.Errorf("refused: %v, %s", err, b.read("shop/db", false))
		}
		handles, _ := b.journal.Handles(t.Context(), "")
		for key, raw := range handles {
			if bytes.Contains(raw, []byte("marked")) || strings.Contains(b.log.String(), "marked") {
				t.Errorf("%s is in clear, or in the log", key)
			}
		}
	})
}

// TestRefusedKeyDelaysNoOther: while a key is refused, Upkeep says so each time, and when others are due.
func TestRefusedKeyDelaysNoOther(t *testing.T) {
	inLogins(t, func(t *testing.T, b *loginBench) {
		b.agent.PutKey("shop/a", "1")
		b.agent.PutKey("shop/b", "1")
		b.mustLogIn()
		if got := b.read("shop/a", false) + b.read("shop/b", false); strings.Count(got, " 1 ") != 2 {
			t.Fatal(got)
		}
		b.agent.SetMethod(consul.DefaultAuthMethod, consultest.Method{Keys: issuer().Keys, Audience: "consul.io", TTL: time.Hour, Prefixes: []string{"shop/b"}})
		for i := range 20 {
			time.Sleep(10 * time.Second)
			b.agent.PutKey("shop/b", fmt.Sprint(i))
			next, err := b.keeper.Upkeep(b.t.Context(), b.task, b.jwt)
			if !remoteapi.IsRefused(err) || next > 10*time.Second || next <= 0 {
				t.Fatalf("%d: %v, next in %s", i, err, next)
			}
			if got, want := b.read("shop/b", false), fmt.Sprintf("[{shop/b shop/b %d 0}]", i); got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		}
	})
}

// TestInvalidKeys: what is no key is refused before a request.
func TestInvalidKeys(t *testing.T) {
	inLogins(t, func(t *testing.T, b *loginBench) {
		b.mustLogIn()
		for _, key := range []string{"", "/", "a/../b", ".", "a\x00", strings.Repeat("a", 600), "a@b@c"} {
			if _, err := b.keeper.Pairs(t.Context(), b.task, template.KeyQuery{Key: key}); fleet.CodeOf(err) != fleet.CodeInvalid {
				t.Errorf("%.20q: %v", key, err)
			}
		}
	})
}

// TestEndedTasksAreLoggedOut: nothing of them stays on the disk, and they are logged out if Consul answers.
func TestEndedTasksAreLoggedOut(t *testing.T) {
	for _, away := range []error{nil, errors.New("no route")} {
		inLogins(t, func(t *testing.T, b *loginBench) {
			b.mustLogIn()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- b.keeper.Run(ctx) }()
			b.ended.Store(true)
			b.agent.FailNetwork(away)
			time.Sleep(time.Minute)
			synctest.Wait()
			handles, _ := b.journal.Handles(t.Context(), "")
			if len(handles) != 0 || b.keeper.Token(b.task) != "" || len(b.agent.Tokens()) != map[bool]int{true: 0, false: 1}[away == nil] {
				t.Errorf("away %v: %d records, Consul has %q", away, len(handles), b.agent.Tokens())
			}
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestServicesLogIn: a service with an identity is registered with the token of its own login, and again when it has another
// one. Without a login it is not registered, which keeps no other service from it.
func TestServicesLogIn(t *testing.T) {
	inLogins(t, func(t *testing.T, b *loginBench) {
		b.agent.SetMethod(consul.DefaultAuthMethod, consultest.Method{Keys: issuer().Keys, Audience: "consul.io", TTL: time.Hour})
		b.reopen()
		const identity = "consul-service_web-http"
		var jwt atomic.Value
		jwt.Store("")
		want := &catalogue{changed: make(chan struct{})}
		client, err := consul.NewClient(consul.ClientConfig{Address: "127.0.0.1:8500", Transport: b.agent})
		if err != nil {
			t.Fatal(err)
		}
		s, err := consul.NewSyncer(consul.Config{
			Client: client, Node: node, Services: want.services, Changed: want.next, Log: slog.New(slog.NewTextHandler(&b.log, nil)),
			Token: func(ctx context.Context, login logins.Task, renew bool) (string, error) {
				return b.keeper.ServiceToken(ctx, login, jwt.Load().(string), renew)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		defer func() { cancel(); <-done }()
		login := client.ServiceLogin("a1", "", identity)
		secured := web(consul.Passing)
		secured.Login = &login
		want.put(secured, api())
		settle()
		wantServices(t, b.agent, apiID)
		if !strings.Contains(b.log.String(), "no identity "+identity) {
			t.Errorf("the log: %s", b.log.String())
		}
		jwt.Store(issuer().Sign("consul.io", 1000*time.Hour, map[string]any{"nomad_service": "web"}))
		time.Sleep(11 * time.Second)
		synctest.Wait()
		wantServices(t, b.agent, apiID, webID)
		first := b.agent.RegisteredWith(webID)
		if first == "" || first != b.keeper.Token(login) || b.agent.RegisteredWith(apiID) != "" {
			t.Fatalf("registered with %q and %q", first, b.agent.RegisteredWith(apiID))
		}
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		if now := b.agent.RegisteredWith(webID); now == first || !slices.Contains(b.agent.Tokens(), now) || b.agent.Checks()["_nomad-check-1"].Status != consul.Passing {
			t.Errorf("after five hours it is registered with %q, of %q", now, b.agent.Tokens())
		}
		want.put(api())
		settle()
		wantServices(t, b.agent, apiID)
	})
}

// TestLoginsHang: while Consul does not answer logins, the results of checks are told in time with the tokens that the services have, and
// services without one are not registered with that of the node. All of them log in when Consul answers again.
func TestLoginsHang(t *testing.T) {
	inLogins(t, func(t *testing.T, b *loginBench) {
		b.agent.SetMethod(consul.DefaultAuthMethod, consultest.Method{Keys: issuer().Keys, Audience: "consul.io", TTL: time.Hour})
		client, err := consul.NewClient(consul.ClientConfig{Address: "127.0.0.1:8500", Transport: b.agent})
		if err != nil {
			t.Fatal(err)
		}
		var list []consul.Service
		for i := range 12 {
			one, login := web(consul.Passing), client.ServiceLogin("a1", "", fmt.Sprint("consul-service_web-", i))
			one.ID, one.Login, one.Checks[0].ID = fmt.Sprint(webID, i), &login, fmt.Sprint("_nomad-check-", i)
			list = append(list, one)
		}
		want := &catalogue{changed: make(chan struct{})}
		s, err := consul.NewSyncer(consul.Config{
			Client: client, Node: node, Services: want.services, Changed: want.next,
			Token: func(ctx context.Context, login logins.Task, renew bool) (string, error) {
				return b.keeper.ServiceToken(ctx, login, b.jwt, renew)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		defer func() { cancel(); <-done }()
		want.put(list[:10]...)
		settle()
		if n := len(b.agent.Services()); n != 10 {
			t.Fatalf("%d services are registered", n)
		}
		b.agent.HangLogins(true)
		want.put(list...)
		time.Sleep(40 * time.Minute) // each token is due
		before := b.agent.Checks()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		for id, c := range b.agent.Checks() {
			if n := c.Updates - before[id].Updates; n < 20 {
				t.Errorf("%s: %d results in ten minutes do not keep a TTL of 42 s alive", id, n)
			}
		}
		if n := len(b.agent.Services()); n != 10 {
			t.Errorf("%d services are registered, of which 10 have a token", n)
		}
		b.agent.HangLogins(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for _, one := range list {
			if with := b.agent.RegisteredWith(one.ID); !slices.Contains(b.agent.Tokens(), with) || with != b.keeper.Token(*one.Login) {
				t.Errorf("%s is registered with %q of %q", one.ID, with, b.agent.Tokens())
			}
		}
	})
}
