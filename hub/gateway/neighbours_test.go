package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

const alloc9 = fleet.AllocID("a9999999-0000-4000-8000-000000000000")

// neighbourTest is an edge of a site that says what it is sent.
type neighbourTest struct {
	*testing.T
	h        *hub
	mu       sync.Mutex
	held     map[string][]byte // sums of what the edge has, by id
	requests chan string
}

// serveServices keeps the services that are delivered, answers with what there is, and passes each request on.
func (n *neighbourTest) serveServices(ctx context.Context, w *testEdge) {
	for {
		stream, err := w.conn.Accept(ctx)
		if err != nil {
			return
		}
		m, err := syncproto.NewReader(stream).Read()
		if err != nil {
			return
		}
		said, text, err := n.takeServices(m.(syncproto.Request))
		if err == nil {
			err = syncproto.NewWriter(stream).Write(syncproto.Reply{})
		}
		if err == nil {
			_, err = stream.Tell(text)
		}
		if err != nil || stream.CloseWrite() != nil {
			return
		}
		select {
		case n.requests <- strings.Join(said, " "):
		case <-ctx.Done():
			return
		}
	}
}

// takeServices keeps what a request brings. It returns what the request says, and the answer to one that asks what there is.
func (n *neighbourTest) takeServices(req syncproto.Request) (said []string, text []byte, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	said = []string{req.Kind}
	if !req.Exact && len(req.Services) == 0 {
		said = append(said, "?")
		var held []syncproto.DeliveredService
		for id, sum := range n.held {
			held = append(held, syncproto.DeliveredService{ID: id, Sum: sum})
		}
		text, err = syncproto.EncodeServices(held)
	}
	for _, d := range req.Services {
		short := strings.TrimPrefix(d.ID, "_nomad-task-")
		if d.Removed {
			said = append(said, "-"+short)
			delete(n.held, d.ID)
			continue
		}
		said = append(said, fmt.Sprintf("%s=%s.%s@%s(%s):%s:%d:%t%q", short, d.Name, d.Namespace, d.NodeName, fleet.Short(d.Node), d.Address, d.Port, d.TCP, d.Tags))
		n.held[d.ID] = d.Sum
	}
	if req.Exact {
		said = append(said, "exact")
	}
	for _, id := range req.UnreachableNodes {
		said = append(said, "away "+fleet.Short(id))
	}
	return said, text, err
}

// heldServices returns a copy of the sums of what the edge has.
func (n *neighbourTest) heldServices() map[string][]byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.held)
}

// want waits for the next request, and compares.
func (n *neighbourTest) want(said ...string) {
	n.Helper()
	select {
	case got := <-n.requests:
		if want := strings.Join(append([]string{"services"}, said...), " "); got != want {
			n.Fatalf("the edge got %s\nwant %s", got, want)
		}
	case <-time.After(20 * time.Second):
		n.Fatalf("no request: want %s", said)
	}
}

// describeAt describes a node that stands at a site; hash tells its descriptions apart.
func (n *neighbourTest) describeAt(node fleet.NodeID, site, hash string) {
	n.Helper()
	d := describe(node)
	d.Site, d.DescriptionHash, d.Attributes = site, hash, map[string]string{fleet.AttributeIPAddress: "192.0.2." + hash}
	n.h.mustApply(state.NodeRegister{Node: *d, Now: time.Now().UnixNano()})
}

// place has an allocation with services run on a node.
func (n *neighbourTest) place(node fleet.NodeID, id fleet.AllocID, services ...fleet.Service) {
	n.Helper()
	job := &fleet.Job{
		Namespace: fleet.DefaultNamespace, ID: fleet.JobID("job-" + id), Name: "job", Type: fleet.JobTypeService,
		Datacenters: []string{"dc1"}, NodePool: fleet.DefaultPool, Priority: 50,
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1, Services: services, Tasks: []fleet.Task{{Name: "t", Driver: "raw_exec"}}}},
	}
	n.h.mustApply(state.JobRegister{Job: job, Now: time.Now().UnixNano()})
	stored, _ := n.h.View().Job(job.Namespace, job.ID)
	n.h.mustPlan(node, fleet.Alloc{
		ID: id, Namespace: job.Namespace, Name: string(job.ID) + ".g[0]", NodeID: node, JobID: job.ID, Job: stored,
		JobVersion: stored.Version, JobHash: stored.SpecHash, TaskGroup: "g", DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending,
	})
}

// run opens a session of an edge that reports its allocations as running.
func (n *neighbourTest) run(node fleet.NodeID, instance fleet.InstanceID, ids ...fleet.AllocID) *testEdge {
	n.Helper()
	w := n.h.mustDial(n.T, node)
	w.openSession(1, instance)
	n.report(w, 1, fleet.ClientRunning, ids...)
	return w
}

func (n *neighbourTest) report(w *testEdge, first fleet.Seq, status string, ids ...fleet.AllocID) {
	n.Helper()
	var rows []fleet.Transition
	for _, id := range ids {
		rows = append(rows, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: status})
	}
	w.sendMessage(syncproto.StreamUpdates, w.newUpdates(first, rows...))
	expect[syncproto.Applied](w, syncproto.StreamUpdates)
}

// TestServicesOfNeighboursAreDelivered: an edge gets the services of the other edges of its site, and no others. Only what
// changes travels, also after a reconnect, and an edge that leaves the site forgets all.
func TestServicesOfNeighboursAreDelivered(t *testing.T) {
	t.Parallel()
	n := &neighbourTest{T: t, h: newHub(t, options{}), held: map[string][]byte{"stale": {1}}, requests: make(chan string, 16)}
	till := fleet.Service{Name: "till", Provider: fleet.ProviderNomad, PortLabel: "80", Tags: []string{"main"}, Checks: []fleet.ServiceCheck{{Name: "up", Type: fleet.CheckTCP}}}
	dns := fleet.Service{Name: "dns", Provider: fleet.ProviderNomad, PortLabel: "53", Checks: []fleet.ServiceCheck{
		{Name: "script", Type: fleet.CheckScript}, {Name: "other", Type: fleet.CheckTCP, PortLabel: "54"}}}
	for _, id := range []fleet.NodeID{node1, node2, node9} {
		n.h.mustDescribe(id)
	}
	n.place(node2, alloc2, till, dns, fleet.Service{Name: "mesh", Provider: fleet.ProviderConsul, PortLabel: "81"})
	n.place(node9, alloc9, till)
	second, _ := n.run(node2, "agent-2", alloc2), n.run(node9, "agent-9", alloc9)
	n.describeAt(node9, "shop-18", "9")

	w := n.h.mustDial(t, node1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := make(chan struct{})
	go func() { defer close(served); n.serveServices(ctx, w) }()
	w.openSession(1, "agent-1")
	n.describeAt(node1, "shop-17", "1") // until now it has no site
	n.describeAt(node2, "shop-17", "2") // until now it has no neighbour, and is asked nothing
	id := string(alloc2) + "-group-g-"
	edge2 := fmt.Sprintf("edge-%s(%s)", fleet.Short(node2), fleet.Short(node2))
	tillAt := func(ip string) string { return id + "till-80=till.default@" + edge2 + ":" + ip + `:80:true["main"]` }
	dnsAt := func(ip string) string { return id + "dns-53=dns.default@" + edge2 + ":" + ip + ":53:false[]" }
	n.want("?")
	n.want("-stale", dnsAt("192.0.2.2"), tillAt("192.0.2.2"), "exact")

	n.place(node9, alloc1, till) // of another site: nothing is sent
	n.describeAt(node2, "shop-17", "3")
	n.want(dnsAt("192.0.2.3"), tillAt("192.0.2.3"), "exact")
	n.describeAt(node2, "shop-17", "3") // the same again
	n.h.mustApply(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: node2, Epoch: n.h.mustNode(node2).Epoch, Reason: "silent"}}, Now: time.Now().UnixNano()})
	n.want("exact", "away "+fleet.Short(node2))

	// The edge is away while its neighbour is back and one service changes.
	if err := w.endpoint.Close(); err != nil {
		t.Fatal(err)
	}
	<-served
	_ = second.endpoint.Close()
	back := n.h.mustDial(t, node2)
	hello := back.newHello(2, "agent-2")
	hello.Last, hello.ChainHash = 1, second.chain
	back.exchangeHello(hello)
	back.sendHeartbeat()
	back.chain = second.chain
	n.describeAt(node2, "shop-17", "3")
	before := maps.Clone(n.held)
	for sid := range n.held {
		if strings.Contains(sid, "dns") {
			n.held[sid] = []byte("older")
		}
	}
	again := n.h.mustDial(t, node1)
	go n.serveServices(ctx, again)
	again.openSession(2, "agent-1")
	n.describeAt(node1, "shop-17", "1")
	n.want("?")
	n.want(dnsAt("192.0.2.3"), "exact")
	if held := n.heldServices(); !maps.EqualFunc(before, held, slices.Equal) {
		t.Errorf("the edge has %q, want %q", held, before)
	}
	n.report(back, 2, fleet.ClientComplete, alloc2)
	n.want("-"+id+"dns-53", "-"+id+"till-80", "exact")
	n.place(node2, "a8888888-0000-4000-8000-000000000000", till)
	n.report(back, 3, fleet.ClientRunning, "a8888888-0000-4000-8000-000000000000")
	id = "a8888888-0000-4000-8000-000000000000-group-g-"
	n.want(tillAt("192.0.2.3"), "exact")
	n.describeAt(node1, "", "1")
	n.want("-"+id+"till-80", "exact")
}

const node9 = fleet.NodeID("99999999-9999-4999-8999-999999999999")

// syncBuffer is a buffer that several goroutines may use.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestServicesOfNeighboursAreBound: of too many services an edge gets those that were placed first, in requests of bounded
// size, and none that it could not keep. At a site with too many nodes it gets none.
func TestServicesOfNeighboursAreBound(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	n := &neighbourTest{T: t, h: newHub(t, options{log: slog.New(slog.NewTextHandler(&log, nil))}), held: map[string][]byte{}, requests: make(chan string, 64)}
	for _, id := range []fleet.NodeID{node1, node2} {
		n.h.mustDescribe(id)
	}
	services := make([]fleet.Service, syncproto.MaxServices)
	for i := range services {
		services[i] = fleet.Service{Name: fmt.Sprintf("s%03d", i), Provider: fleet.ProviderNomad, PortLabel: "80"}
	}
	services[7].Tags = []string{strings.Repeat("t", syncproto.MaxService)}
	n.place(node2, alloc2, services...)
	n.place(node2, alloc1, services[:2]...)
	n.run(node2, "agent-2", alloc1, alloc2)
	n.describeAt(node2, "shop-17", "2")
	w := n.h.mustDial(t, node1)
	go n.serveServices(t.Context(), w)
	w.openSession(1, "agent-1")
	n.describeAt(node1, "shop-17", "1")
	n.want("?")
	count, batches := map[string]int{}, 0
	for exact := false; !exact; batches++ {
		got := strings.Fields(<-n.requests)
		for _, s := range got[1:] {
			if exact = s == "exact"; !exact {
				owner, _, _ := strings.Cut(s, "-group")
				count[owner]++
			}
		}
	}
	if want := map[string]int{string(alloc2): syncproto.MaxServices - 1, string(alloc1): 1}; !maps.Equal(count, want) || batches != 4 {
		t.Errorf("in %d requests the edge gets of each allocation %v services, want %v in 4", batches, count, want)
	}
	if text := log.String(); strings.Count(text, "the other edges of the site have more than 256 services") != 1 || strings.Count(text, "services of its neighbours") != 2 {
		t.Errorf("the hub logs:\n%s", text)
	}
	for i := range 63 {
		n.describeAt(fleet.NodeID(fleet.DeriveUUID("node", fmt.Sprint(i))), "shop-17", "4")
	}
	for removed := 0; removed < syncproto.MaxServices; {
		removed += strings.Count(<-n.requests, " -")
	}
	if n.h.mustNode(node1).OwnSite() != "shop-17" {
		t.Error("the edge has left the site")
	}
}
