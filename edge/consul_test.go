package edge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skerry/edge"
	"skerry/edge/consul"
	"skerry/edge/consul/consultest"
	"skerry/edge/local"
	"skerry/edge/logins/loginstest"
	"skerry/fleet"
	"skerry/syncproto"
)

// Services of Consul are registered with the agent beside the edge and removed again. An agent that fails when the edge
// starts, and restarts of the edge, disturb neither.
func TestServicesOfConsulAreRegistered(t *testing.T) {
	dir := mustEnrolled(t)
	mustDesireService(t, dir, fleet.Service{
		Name: "web", Provider: fleet.ProviderConsul, Tags: []string{"v1"}, Meta: map[string]string{"floor": "2"}, EnableTagOverride: true,
		Weights: &fleet.ServiceWeights{Passing: 3, Warning: 1}, TaggedAddresses: map[string]string{"wan": "198.51.100.7:80"},
	})
	agent := consultest.New()
	server := httptest.NewServer(agent)
	defer server.Close()
	client, err := consul.NewClient(consul.ClientConfig{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(dir, nil, &logBuffer{})
	cfg.Consul = client
	cfg.Describe = func(n fleet.Node) (edge.Describer, error) {
		n.Attributes, n.DescriptionHash = map[string]string{fleet.AttributeIPAddress: "192.0.2.5"}, "h"
		return description{n}, nil
	}
	var broken atomic.Bool
	cfg.DialCheck = func(context.Context, string, string) (net.Conn, error) {
		if broken.Load() {
			return nil, errors.New("nobody listens")
		}
		ours, theirs := net.Pipe()
		return ours, theirs.Close()
	}
	agent.FailAll(500)
	l := mustStart(t, cfg)
	mustAwait(t, "the check passes although Consul fails", func(ctx context.Context) (bool, string) {
		results, err := l.Client.Checks(ctx, shop)
		return len(results) == 1 && results[0].Status == "success", fmt.Sprint(results, err)
	})
	agent.FailAll(0)
	broken.Store(true)
	status := func(want string) {
		t.Helper()
		mustAwait(t, "the check is "+want, func(context.Context) (bool, string) {
			all := agent.Checks()
			for id, c := range all {
				if strings.HasPrefix(id, "_nomad-check-") && c.Status == want && c.Name == "alive" && c.TTL == 33*time.Second && c.Updates > 0 {
					return len(all) == 1, fmt.Sprint(all)
				}
			}
			return false, fmt.Sprint(all)
		})
	}
	status("critical")
	broken.Store(false)
	status("passing")
	id := "_nomad-task-" + string(shop) + "-group-g-web-8080"
	s := agent.Services()[id]
	if s.Service != "web" || s.Address != "192.0.2.5" || s.Port != 8080 || !slices.Equal(s.Tags, []string{"v1"}) || s.Meta["floor"] != "2" ||
		s.Meta["skerry-node"] != string(l.NodeID()) || !s.EnableTagOverride || s.Weights != (consultest.Weights{Passing: 3, Warning: 1}) ||
		s.TaggedAddresses["wan"] != (consultest.Address{Address: "198.51.100.7", Port: 80}) {
		t.Errorf("registered %+v", agent.Services())
	}
	if list, err := l.Client.Services(t.Context(), "", ""); err != nil || len(list) != 0 {
		t.Errorf("the edge's own catalogue has a service of Consul: %+v, %v", list, err)
	}
	if err := l.stop(); err != nil {
		t.Fatal(err)
	}
	agent.Writes()
	l = mustStart(t, cfg)
	mustAwait(t, "the restarted edge tells a result", func(context.Context) (bool, string) {
		w := agent.Writes()
		if slices.ContainsFunc(w, func(s string) bool { return !strings.HasPrefix(s, "update ") }) || agent.Services()[id].Service != "web" {
			t.Fatalf("a restart of the edge changed the registration: %q", w)
		}
		return len(w) > 0, fmt.Sprint(w)
	})
	if err := l.Client.Stop(t.Context(), local.StopRequest{Alloc: shop, Reason: "test", MayReturn: true}); err != nil {
		t.Fatal(err)
	}
	mustAwait(t, "the service is removed", func(context.Context) (bool, string) {
		return len(agent.Services()) == 0, fmt.Sprint(slices.Collect(maps.Keys(agent.Services())))
	})
}

// TestServicesLogInToConsul: a service with an identity is registered with the token of its own login, also after a reboot
// without a hub, and nothing on the disk has that in clear.
func TestServicesLogInToConsul(t *testing.T) {
	issuer := loginstest.NewIssuer()
	dir := mustEnrolled(t)
	const identity = "consul-service_web-8080"
	jwt := issuer.Sign("consul.io", time.Hour, map[string]any{"nomad_service": "web"})
	mustDeliverIdentity(t, dir, syncproto.DeliveredIdentity{Alloc: shop, Name: identity, Token: jwt, KeyID: "k1", Issued: 1, Expires: 2})
	mustDesireService(t, dir, fleet.Service{Name: "web", Provider: fleet.ProviderConsul, Identity: &fleet.WorkloadIdentity{Name: identity}})
	agent := consultest.New()
	agent.RequireToken("marked-node")
	agent.SetMethod("services", consultest.Method{Keys: issuer.Keys, Audience: "consul.io", TTL: time.Hour})
	server := httptest.NewServer(agent)
	defer server.Close()
	tokenFile := filepath.Join(t.TempDir(), "token")
	mustWriteFile(t, tokenFile, []byte("marked-node"))
	id := "_nomad-task-" + string(shop) + "-group-g-web-8080"
	token := ""
	for _, boot := range []fleet.BootID{boot1, boot2} {
		client, err := consul.NewClient(consul.ClientConfig{Address: server.URL, TokenFile: tokenFile, ServiceMethod: "services"})
		if err != nil {
			t.Fatal(err)
		}
		logs := &logBuffer{}
		cfg := config(dir, nil, logs)
		cfg.BootID, cfg.Consul = boot, client
		cfg.Describe = func(n fleet.Node) (edge.Describer, error) {
			n.Attributes, n.DescriptionHash = map[string]string{fleet.AttributeIPAddress: "192.0.2.5"}, "h"
			return description{n}, nil
		}
		l := mustStart(t, cfg)
		mustAwait(t, "the service is registered with its own token", func(context.Context) (bool, string) {
			with := agent.RegisteredWith(id)
			return strings.HasPrefix(with, "marked-token-") && (token == "" || with == token), fmt.Sprintf("%q: %s", with, logs.String())
		})
		token = agent.RegisteredWith(id)
		if err := l.stop(); err != nil {
			t.Fatal(err)
		}
		mustHaveNowhere(t, dir, "marked", "")
		if strings.Contains(logs.String(), "marked") {
			t.Errorf("the log: %s", logs.String())
		}
		agent.SetMethod("services", consultest.Method{Keys: func() ([]byte, error) { return nil, errors.New("no hub answers") }})
		agent.Forget()
	}
}

// mustAwait polls until a condition holds.
func mustAwait(t *testing.T, what string, holds func(ctx context.Context) (ok bool, state string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, state := holds(ctx)
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %s", what, state)
		}
	}
}
