package consul_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/consul"
	"skerry/edge/consul/consultest"
	"skerry/fleet"
)

const (
	node  = fleet.NodeID("0e000000-0000-4000-8000-000000000001")
	other = "0e000000-0000-4000-8000-000000000002"
	webID = "_nomad-task-a1-group-g-web-http"
	apiID = "_nomad-task-a1-t-api-8080"
)

// catalogue is what the agent must have; a change is told as the journal tells it.
type catalogue struct {
	mu      sync.Mutex
	list    []consul.Service
	changed chan struct{}
}

func (c *catalogue) put(list ...consul.Service) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = list
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *catalogue) services(context.Context) ([]consul.Service, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list), nil
}

func (c *catalogue) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// web is a service with a check, whose newest result is status.
func web(status string) consul.Service {
	return consul.Service{
		ID: webID, Name: "web", Tags: []string{"v1"}, Address: "192.0.2.5", Port: 20_000, Meta: map[string]string{"floor": "2"},
		Checks: []consul.Check{{ID: "_nomad-check-1", Name: "alive", Notes: "n", TTL: 42 * time.Second, Status: status, Output: "result " + status}},
	}
}

// api is a service without a check.
func api() consul.Service { return consul.Service{ID: apiID, Name: "api", Port: 8080} }

// bench has an agent, and a syncer that runs in virtual time.
type bench struct {
	agent *consultest.Agent
	want  *catalogue
	log   strings.Builder
	mu    sync.Mutex
}

func (b *bench) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

// mustRunSyncer runs a syncer until the returned function is called.
func (b *bench) mustRunSyncer(t *testing.T) (stop func()) {
	t.Helper()
	client, err := consul.NewClient(consul.ClientConfig{Address: "127.0.0.1:8500", Transport: b.agent})
	if err != nil {
		t.Fatal(err)
	}
	s, err := consul.NewSyncer(consul.Config{
		Client: client, Node: node, Services: b.want.services, Changed: b.want.next, Log: slog.New(slog.NewTextHandler(b, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-done }) }
	t.Cleanup(stop)
	return stop
}

// inVirtualTime runs a test with an agent and a running syncer.
func inVirtualTime(t *testing.T, test func(t *testing.T, b *bench, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{agent: consultest.New(), want: &catalogue{changed: make(chan struct{})}}
		test(t, b, b.mustRunSyncer(t))
	})
}

// settle lets the syncer collect changes and work, long before it compares the agent by itself.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

func wantServices(t *testing.T, a *consultest.Agent, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(a.Services())); !slices.Equal(got, want) {
		t.Fatalf("the agent has %q, want %q", got, want)
	}
}

func wantStatus(t *testing.T, a *consultest.Agent, want string) {
	t.Helper()
	if c := a.Checks()["_nomad-check-1"]; c.Status != want {
		t.Fatalf("the check is %+v, want %s", c, want)
	}
}

func TestServicesComeAndGo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, b *bench, _ func()) {
		full := web("")
		full.TaggedAddresses, full.Weights = map[string]string{"wan": "198.51.100.7:80", "lan": "192.0.2.9"}, fleet.ServiceWeights{Passing: 3, Warning: 1}
		b.want.put(full, api())
		settle()
		wantServices(t, b.agent, webID, apiID)
		want := consultest.Service{
			ID: webID, Service: "web", Tags: []string{"v1"}, Address: "192.0.2.5", Port: 20_000, Weights: consultest.Weights{Passing: 3, Warning: 1},
			Meta: map[string]string{"floor": "2", "external-source": "nomad", "skerry-node": string(node)},
			TaggedAddresses: map[string]consultest.Address{
				"wan": {Address: "198.51.100.7", Port: 80}, "lan": {Address: "192.0.2.9", Port: 20_000}, "lan_ipv4": {Address: "192.0.2.5", Port: 20_000},
			},
		}
		if got := b.agent.Services()[webID]; !reflect.DeepEqual(got, want) {
			t.Errorf("registered %+v, want %+v", got, want)
		}
		if c := b.agent.Checks()["_nomad-check-1"]; c.TTL != 42*time.Second || c.Name != "alive" || c.Notes != "n" || c.ServiceID != webID || c.Status != "critical" {
			t.Errorf("registered the check %+v", c)
		}
		b.agent.Writes()
		time.Sleep(time.Minute)
		if w := b.agent.Writes(); len(w) != 0 {
			t.Errorf("nothing changed, and the agent was changed: %q", w)
		}
		b.want.put(api())
		settle()
		wantServices(t, b.agent, apiID)
	})
}

// A service that others registered is never touched: that of another node, of Nomad, of a person.
func TestServicesOfOthersStay(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, b *bench, _ func()) {
		b.agent.PutService(consultest.Service{ID: "mysql", Service: "mysql", Meta: map[string]string{"skerry-node": string(node)}})
		b.agent.PutService(consultest.Service{ID: "_nomad-task-b1-g-x-1", Service: "x", Meta: map[string]string{"external-source": "nomad"}})
		b.agent.PutService(consultest.Service{ID: "_nomad-task-b2-g-x-1", Service: "x", Meta: map[string]string{"skerry-node": other}})
		b.agent.PutService(consultest.Service{ID: "_nomad-task-b3-g-x-1", Service: "x", Meta: map[string]string{"skerry-node": string(node)}})
		b.agent.PutCheck(consultest.Check{CheckID: "by-hand", ServiceID: webID, Status: "passing"})
		b.want.put(web("passing"))
		settle()
		wantServices(t, b.agent, webID, "mysql", "_nomad-task-b1-g-x-1", "_nomad-task-b2-g-x-1")
		b.agent.PutCheck(consultest.Check{CheckID: "by-hand", ServiceID: webID, Status: "passing"})
		b.agent.Writes()
		time.Sleep(11 * time.Second)
		if w := b.agent.Writes(); len(w) != 0 {
			t.Errorf("the check of a person made the edge write %q", w)
		}
	})
}

func TestResultsOfChecks(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, b *bench, _ func()) {
		b.want.put(web(""))
		settle()
		wantStatus(t, b.agent, "critical") // none yet
		for _, status := range []string{"passing", "warning", "critical", "passing"} {
			b.want.put(web(status))
			settle()
			wantStatus(t, b.agent, status)
			if c := b.agent.Checks()["_nomad-check-1"]; c.Output != "result "+status {
				t.Errorf("output of the check: %+v", c)
			}
		}
		before := b.agent.Checks()["_nomad-check-1"].Updates
		time.Sleep(10 * time.Minute)
		if n := b.agent.Checks()["_nomad-check-1"].Updates - before; n < 20 || n > 45 {
			t.Errorf("%d results in ten minutes keep a TTL of 42 s alive", n)
		}
		b.agent.ExpireChecks() // the machine slept
		time.Sleep(11 * time.Second)
		wantStatus(t, b.agent, "passing")
	})
}

func TestAgentIsAway(t *testing.T) {
	for name, fail := range map[string]func(a *consultest.Agent){
		"it is away":       func(a *consultest.Agent) { a.FailNetwork(errors.New("connection refused")) },
		"it answers 500":   func(a *consultest.Agent) { a.FailAll(500) },
		"token is refused": func(a *consultest.Agent) { a.RequireToken("secret") },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, b *bench, _ func()) {
				b.want.put(web("passing"))
				settle()
				fail(b.agent)
				b.want.put(api())
				time.Sleep(time.Hour)
				wantServices(t, b.agent, webID)
				if n := strings.Count(b.log.String(), "level=WARN"); n != 1 {
					t.Errorf("%d warnings in an hour:\n%s", n, b.log.String())
				}
				b.agent.FailNetwork(nil)
				b.agent.FailAll(0)
				b.agent.RequireToken("")
				time.Sleep(11 * time.Second)
				synctest.Wait()
				wantServices(t, b.agent, apiID)
			})
		})
	}
}

func TestAgentForgets(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, b *bench, _ func()) {
		b.want.put(web("passing"), api())
		settle()
		b.agent.Forget()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		wantServices(t, b.agent, webID, apiID)
		wantStatus(t, b.agent, "passing")
		one := b.agent.Services()[webID]
		one.Port = 1
		b.agent.PutService(one) // somebody changed it
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if got := b.agent.Services()[webID]; got.Port != 20_000 {
			t.Errorf("a changed service stays: %+v", got)
		}
	})
}

func TestOneRefusedServiceDoesNotBlockOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, b *bench, _ func()) {
		b.agent.RefuseService("web") // its id is the first one
		b.want.put(web("passing"), api())
		settle()
		wantServices(t, b.agent, apiID)
		if !strings.Contains(b.log.String(), "Invalid service") {
			t.Errorf("the log does not say why:\n%s", b.log.String())
		}
		b.agent.RefuseService("")
		time.Sleep(11 * time.Second)
		synctest.Wait()
		wantServices(t, b.agent, webID, apiID)
		wantStatus(t, b.agent, "passing")
	})
}

// The edge is restarted: what is registered stays as it is, and a check keeps its status until it has run again.
func TestRestartedEdgeChangesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, b *bench, stop func()) {
		b.want.put(web("passing"), api())
		settle()
		stop()
		wantServices(t, b.agent, webID, apiID)
		b.agent.Writes()
		b.want.put(web(""), api())
		b.mustRunSyncer(t)
		time.Sleep(30 * time.Second)
		if w := b.agent.Writes(); len(w) != 0 {
			t.Errorf("a restart changed the agent: %q", w)
		}
		wantStatus(t, b.agent, "passing")
	})
}

func TestChangedDefinitions(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, b *bench, _ func()) {
		b.want.put(web("passing"))
		settle()
		changed := web("passing")
		changed.Tags = []string{"v2"}
		b.want.put(changed)
		settle()
		if got := b.agent.Services()[webID].Tags; !slices.Equal(got, []string{"v2"}) {
			t.Errorf("tags %q", got)
		}
		another := changed.Checks[0]
		another.ID = "_nomad-check-2"
		changed.Checks = []consul.Check{another}
		b.want.put(changed)
		settle()
		if got := slices.Collect(maps.Keys(b.agent.Checks())); !slices.Equal(got, []string{"_nomad-check-2"}) {
			t.Errorf("checks %q", got)
		}
		changed.Checks = nil
		b.want.put(changed)
		settle()
		if got := b.agent.Checks(); len(got) != 0 {
			t.Errorf("checks %v", got)
		}
	})
}

func TestTagOverride(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, b *bench, _ func()) {
		s := web("passing")
		s.TagOverride = true
		b.want.put(s)
		settle()
		one := b.agent.Services()[webID]
		one.Tags = []string{"theirs"}
		b.agent.PutService(one)
		time.Sleep(30 * time.Second)
		s.Port = 20_001
		b.want.put(s)
		settle()
		if got := b.agent.Services()[webID]; !slices.Equal(got.Tags, []string{"theirs"}) || got.Port != 20_001 {
			t.Errorf("%+v", got)
		}
	})
}

func TestCheckIDsDiffer(t *testing.T) {
	c := fleet.ServiceCheck{Name: "alive", Type: fleet.CheckTCP, Interval: 10 * time.Second, Timeout: time.Second}
	ids := map[string]bool{consul.CheckID(webID, &c, 0): true}
	for _, change := range []func(c *fleet.ServiceCheck){
		func(c *fleet.ServiceCheck) { c.Name = "x" }, func(c *fleet.ServiceCheck) { c.Type = fleet.CheckHTTP },
		func(c *fleet.ServiceCheck) { c.Interval++ }, func(c *fleet.ServiceCheck) { c.Notes = "n" },
	} {
		changed := c
		change(&changed)
		ids[consul.CheckID(webID, &changed, 0)] = true
	}
	ids[consul.CheckID(webID, &c, 1)] = true
	ids[consul.CheckID(apiID, &c, 0)] = true
	if len(ids) != 7 || consul.CheckTTL(&c) != 42*time.Second {
		t.Errorf("%d ids of 7 checks, TTL %s", len(ids), consul.CheckTTL(&c))
	}
}
