package edge_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"skerry/edge"
	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
)

// movingDescriber describes a machine whose address changes.
type movingDescriber struct {
	mu      sync.Mutex
	node    fleet.Node
	changed chan struct{}
}

func (m *movingDescriber) Read(context.Context) (fleet.Node, error) { return m.Node(), nil }
func (m *movingDescriber) Run(ctx context.Context) error            { <-ctx.Done(); return nil }
func (m *movingDescriber) Node() fleet.Node                         { m.mu.Lock(); defer m.mu.Unlock(); return m.node }
func (m *movingDescriber) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

func (m *movingDescriber) changeAddress(ip string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.node.Attributes, m.node.DescriptionHash = map[string]string{fleet.AttributeIPAddress: ip}, ip
	close(m.changed)
	m.changed = make(chan struct{})
}

// mustCheckedService journals a desired allocation whose service is checked.
func mustCheckedService(t testing.TB, dir string) {
	t.Helper()
	mustDesireService(t, dir, fleet.Service{Name: "web", Provider: fleet.ProviderNomad})
}

// mustDesireService journals a desired allocation with a service on port 8080, which gets a check.
func mustDesireService(t testing.TB, dir string, s fleet.Service) {
	t.Helper()
	s.PortLabel = "8080"
	s.Checks = []fleet.ServiceCheck{{Name: "alive", Type: fleet.CheckTCP, Interval: time.Second, Timeout: time.Second}}
	body, err := syncproto.EncodeJob(&fleet.Job{ID: "shop", Name: "shop", TaskGroups: []fleet.TaskGroup{{
		Name: "g", Tasks: []fleet.Task{{Name: "t", Driver: "docker"}}, Services: []fleet.Service{s},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(journal.Config{Path: filepath.Join(dir, "journal.db"), BootID: boot1, Mono: func() time.Duration { return 2 * time.Minute }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.PutDesired(t.Context(), syncproto.Desired{
		Index: 10, Cluster: "c", Bodies: []syncproto.Body{{Hash: "checked", Job: body}},
		Run: []syncproto.DesiredAlloc{{ID: shop, Namespace: fleet.DefaultNamespace, JobID: "shop", JobHash: "checked", TaskGroup: "g", Name: "shop.g[0]"}},
	}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestChecksFollowTheMachinesAddress(t *testing.T) {
	dir := mustEnrolled(t)
	mustCheckedService(t, dir)
	machine := &movingDescriber{changed: make(chan struct{})}
	cfg := config(dir, nil, &logBuffer{})
	cfg.Describe = func(n fleet.Node) (edge.Describer, error) {
		machine.node = n
		machine.changeAddress("10.0.0.5")
		return machine, nil
	}
	dialed := make(chan string)
	cfg.DialCheck = func(ctx context.Context, _, address string) (net.Conn, error) {
		select {
		case dialed <- address:
		case <-ctx.Done():
		}
		return nil, errors.New("nobody listens")
	}
	mustStart(t, cfg)
	await := func(want string) {
		t.Helper()
		deadline := time.After(10 * time.Second)
		for {
			select {
			case got := <-dialed:
				if got == want {
					return
				}
			case <-deadline:
				t.Fatalf("no check of %s", want)
			}
		}
	}
	await("10.0.0.5:8080")
	machine.changeAddress("10.0.0.9")
	await("10.0.0.9:8080")
}
