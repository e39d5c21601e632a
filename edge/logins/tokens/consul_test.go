package tokens_test

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/consul"
	"skerry/edge/consul/consultest"
	"skerry/edge/logins"
	"skerry/edge/logins/tokens"
	"skerry/fleet"
	"skerry/syncproto"
)

// TestConsulTokenOfATask: the task waits for its token, has it in its file, and in its environment only where the job asks for it.
// The file has a valid token for as long as Consul answers, and the task is not disturbed.
func TestConsulTokenOfATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		agent := consultest.New()
		agent.SetMethod(consul.DefaultAuthMethod, consultest.Method{Keys: issuer().Keys, Audience: "consul.io", TTL: time.Hour})
		client, err := consul.NewClient(consul.ClientConfig{Address: "127.0.0.1:8500", Transport: agent})
		if err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.DiscardHandler)
		keeper, err := consul.OpenKeeper(client, logins.Config{Journal: f.journal, Sealer: f.key, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		f.p.Task = &fleet.Task{Name: "main", Consul: &fleet.Consul{}}
		f.hook = tokens.ForConsul(keeper, f.ids, log)
		file := func() string {
			b, _ := os.ReadFile(filepath.Join(f.p.Config.Dir, "secrets", "consul_token"))
			return string(b)
		}
		agent.FailNetwork(errors.New("connection refused"))
		done := make(chan error, 1)
		go func() { done <- f.hook.Prepare(t.Context(), f.p) }()
		time.Sleep(time.Minute)
		_, err = f.ids.Accept(t.Context(), []syncproto.DeliveredIdentity{{
			Alloc: shop, Task: "main", Name: fleet.ConsulIdentity, Token: issuer().Sign("consul.io", 1000*time.Hour, nil), KeyID: "k1", Issued: 1, Expires: 2,
		}}, "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := f.events.Take(); strings.Count(got, "The task waits for its Consul token") != 2 || file() != "" {
			t.Errorf("events: %s; the file has %q", got, file())
		}
		agent.FailNetwork(nil)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		first := keeper.Token(client.Task(shop, "main"))
		if first == "" || file() != first {
			t.Fatalf("the file has %q, want %q", file(), first)
		}
		environment := &tokens.Environment{Consul: keeper}
		for _, env := range []bool{false, true} {
			f.p.Task.Consul.Env, f.p.Config.Env = env, map[string]string{"CONSUL_HTTP_TOKEN_FILE": "/own"}
			want := map[string]string{"CONSUL_HTTP_ADDR": "http://127.0.0.1:8500", "CONSUL_HTTP_TOKEN_FILE": "/own"}
			if env {
				want["CONSUL_HTTP_TOKEN"], want["CONSUL_TOKEN"] = first, first
			}
			if err := environment.Prepare(t.Context(), f.p); err != nil || !maps.Equal(f.p.Config.Env, want) {
				t.Errorf("env %v: %v: %v", env, err, f.p.Config.Env)
			}
			if said := f.events.Take(); strings.Contains(said, "on the edge's disk, has CONSUL_HTTP_TOKEN and CONSUL_TOKEN") != env {
				t.Errorf("env %v: told %q", env, said)
			}
		}
		f.p.MemoryDir, f.p.Config.Env = func() (string, error) { return "/memory", nil }, nil
		if err := environment.Prepare(t.Context(), f.p); err != nil || f.p.Config.MemoryDir != "/memory" || f.p.Config.Env["CONSUL_TOKEN"] != first || f.events.Take() != "" {
			t.Errorf("in memory: %v: %+v", err, f.p.Config)
		}
		stop := f.watch()
		time.Sleep(10 * time.Hour)
		if got := f.events.Take(); got != "" || file() == first || !slices.Contains(agent.Tokens(), file()) {
			t.Errorf("after ten hours the task was told %q, and has %q of %q", got, file(), agent.Tokens())
		}
		last := file()
		agent.FailNetwork(errors.New("connection refused"))
		time.Sleep(7 * 24 * time.Hour)
		if got := f.events.Take(); strings.Count(got, ";") != 0 || !strings.Contains(got, "goes on with the Consul token and the keys that it has") || file() != last {
			t.Errorf("away: told %q", got)
		}
		stop()
		if err := f.hook.Prepare(t.Context(), f.p); err != nil || !strings.Contains(f.events.Take(), "starts with the Consul token that it had") {
			t.Errorf("a start while Consul is away: %v", err)
		}
	})
}

// TestConsulIsMissing: a task that logs in is refused by an edge without a Consul, and others are left alone.
func TestConsulIsMissing(t *testing.T) {
	f := newFixture(t, nil)
	f.hook = tokens.ForConsul(nil, f.ids, nil)
	f.mustPrepare()
	f.p.Task = &fleet.Task{Name: "main", Identities: []fleet.WorkloadIdentity{{Name: fleet.ConsulIdentity}}}
	if err := f.hook.Prepare(t.Context(), f.p); fleet.CodeOf(err) != fleet.CodeInvalid || !strings.Contains(fleet.AsError(err).Hint, "--consul-address") {
		t.Errorf("%v", err)
	}
}
