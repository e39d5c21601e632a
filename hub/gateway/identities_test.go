package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/hub/workload"
	"skerry/syncproto"
	"skerry/syncproto/nodekey"
)

// countingSigner signs with numbers, one second after another.
type countingSigner struct {
	mu sync.Mutex
	n  int64
}

func (s *countingSigner) SignIdentity(_ context.Context, a *fleet.Alloc, w *fleet.OwnedIdentity) (workload.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	t := workload.Token{Text: fmt.Sprintf("%s/%s/%s#%d", a.JobID, w.Task, w.Name, s.n), Claims: workload.Claims{KeyID: "k1", IssuedAt: time.Now().Unix()}}
	if w.TTL > 0 {
		t.Expires = t.IssuedAt + int64(w.TTL/time.Second)
	}
	return t, nil
}

// keepingEdge is the part of an edge that keeps identities.
type keepingEdge struct {
	mu   sync.Mutex
	held map[string]syncproto.DeliveredIdentity
}

// serveIdentities keeps what is delivered, answers with what there is, and passes each request on.
func (w *testEdge) serveIdentities(ctx context.Context, keeps *keepingEdge, out chan<- string) {
	for {
		stream, err := w.conn.Accept(ctx)
		if err != nil {
			return
		}
		m, err := syncproto.NewReader(stream).Read()
		if err != nil {
			return
		}
		req := m.(syncproto.Request)
		keeps.mu.Lock()
		var names []string
		var all []syncproto.DeliveredIdentity
		for _, d := range req.Identities {
			names = append(names, d.Token)
			d.Token = ""
			keeps.held[string(d.Alloc)+d.Task+d.Name] = d
		}
		for _, d := range keeps.held {
			all = append(all, d)
		}
		keeps.mu.Unlock()
		text, err := syncproto.EncodeIdentities(all)
		if err != nil {
			return
		}
		if err := syncproto.NewWriter(stream).Write(syncproto.Reply{}); err != nil {
			return
		}
		if _, err := stream.Tell(text); err != nil {
			return
		}
		if err := stream.CloseWrite(); err != nil {
			return
		}
		select {
		case out <- strings.TrimRight(req.Kind+" "+strings.Join(names, ",")+" "+req.IdentityKey, " "):
		case <-ctx.Done():
			return
		}
	}
}

// placeWithIdentities places an allocation whose task has two identities, one of which ends, and the one for Vault.
func (h *hub) placeWithIdentities(node fleet.NodeID, id fleet.AllocID, ttl time.Duration) {
	h.tb.Helper()
	h.placeWith(node, id, &fleet.Vault{}, fleet.WorkloadIdentity{Name: "aws", File: true, TTL: ttl}, fleet.WorkloadIdentity{Name: "hidden"})
}

// placeWith places an allocation whose task has the default identity and others, and that vault block; nil: none.
func (h *hub) placeWith(node fleet.NodeID, id fleet.AllocID, vault *fleet.Vault, others ...fleet.WorkloadIdentity) {
	h.tb.Helper()
	job := &fleet.Job{
		Namespace: fleet.DefaultNamespace, ID: fleet.JobID("job-" + fleet.Short(id)), Name: "job", Type: fleet.JobTypeService, Datacenters: []string{"dc1"}, NodePool: fleet.DefaultPool, Priority: 50,
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1, Tasks: []fleet.Task{{Name: "t", Driver: "raw_exec", Vault: vault, Identity: &fleet.WorkloadIdentity{Name: "default", File: true}, Identities: others}}}},
	}
	h.mustApply(state.JobRegister{Job: job, Now: time.Now().UnixNano()})
	stored, _ := h.View().Job(job.Namespace, job.ID)
	h.mustPlan(node, fleet.Alloc{
		ID: id, Namespace: job.Namespace, Name: string(job.ID) + ".g[0]", NodeID: node, JobID: job.ID, Job: stored, JobVersion: stored.Version, JobHash: stored.SpecHash, TaskGroup: "g",
		DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending,
	})
}

// TestIdentitiesAreDelivered: an edge gets the tokens of its own tasks before it hears of their allocation. A new session
// signs nothing that the edge has. A token is renewed when half of its time is over.
func TestIdentitiesAreDelivered(t *testing.T) {
	t.Parallel()
	signer := &countingSigner{}
	h := newHub(t, options{sign: signer})
	h.mustApply(state.RootKeyStore{Key: state.RootKey{RootKey: fleet.RootKey{KeyID: "k1"}, Wrapped: []byte{1}, WrappedBy: "s"}})
	w := h.mustDial(t, node1)
	keeps, requests := &keepingEdge{held: map[string]syncproto.DeliveredIdentity{}}, make(chan string, 16)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go w.serveIdentities(ctx, keeps, requests)
	w.openSession(1, "agent-1")
	job := "job-" + fleet.Short(alloc1)
	next := func(want string) {
		t.Helper()
		select {
		case got := <-requests:
			if got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no request: want %s", want)
		}
	}
	h.mustDescribe(node2)
	h.placeWithIdentities(node2, alloc2, time.Hour) // another edge's
	h.placeWithIdentities(node1, alloc1, time.Hour)
	next("identities")
	next(fmt.Sprintf("identities %s/t/default#1,%s/t/aws#2,%s/t/vault_default#3", job, job, job))
	if d := expect[syncproto.Desired](w, syncproto.StreamDesired); len(d.Run) != 1 {
		t.Fatalf("desired %+v", d)
	}
	again := h.mustDial(t, node1)
	go again.serveIdentities(ctx, keeps, requests)
	again.openSession(2, "agent-1")
	next("identities")
	const second = fleet.AllocID("cccccccc-0000-4000-8000-000000000000")
	job = "job-" + fleet.Short(second)
	h.placeWithIdentities(node1, second, 2*time.Second)
	next(fmt.Sprintf("identities %s/t/default#4,%s/t/aws#5,%s/t/vault_default#6", job, job, job))
	next(fmt.Sprintf("identities %s/t/aws#7", job)) // a second later
}

// TestOfflineIdentitiesAreDelivered: an edge is told that it may sign a token itself, and which key of its own the hubs
// publish. A token that it has signed, or of which it does not know that it may, is replaced in the next session.
func TestOfflineIdentitiesAreDelivered(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{sign: &countingSigner{}})
	h.mustApply(state.RootKeyStore{Key: state.RootKey{RootKey: fleet.RootKey{KeyID: "k1"}, Wrapped: []byte{1}, WrappedBy: "s"}})
	keeps, requests := &keepingEdge{held: map[string]syncproto.DeliveredIdentity{}}, make(chan string, 16)
	next := func(want string) {
		t.Helper()
		select {
		case got := <-requests:
			if got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no request: want %s", want)
		}
	}
	session, node := uint64(0), describe(node1)
	connect := func() {
		t.Helper()
		session++
		w := h.mustDial(t, node1)
		go w.serveIdentities(t.Context(), keeps, requests)
		w.exchangeHello(w.newHello(session, "agent-1"))
		w.beats++
		w.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: w.beats, Node: node, Hash: []byte("h1")})
		expect[syncproto.HeartbeatAck](w, syncproto.StreamControl)
		expect[syncproto.Desired](w, syncproto.StreamDesired)
	}
	change := func(f func(d *syncproto.DeliveredIdentity)) {
		keeps.mu.Lock()
		defer keeps.mu.Unlock()
		d := keeps.held[string(alloc1)+"tvault"]
		if !d.Offline {
			t.Errorf("the edge is not told that it may sign %+v", d)
		}
		f(&d)
		keeps.held[string(alloc1)+"tvault"] = d
	}
	connect()
	h.placeWith(node1, alloc1, nil, fleet.WorkloadIdentity{Name: "vault", File: true, TTL: time.Hour, Offline: true})
	job := "identities job-" + fleet.Short(alloc1)
	next("identities")
	next(job + "/t/default#1," + job[len("identities "):] + "/t/vault#2")
	key, err := nodekey.New()
	if err != nil {
		t.Fatal(err)
	}
	id := nodekey.ID(node1, key.Public())
	node.Attributes = map[string]string{nodekey.Attribute: key.Public()}
	h.mustApply(state.NodeRegister{Node: *node, Now: time.Now().UnixNano()})
	next("identities  " + id)
	change(func(d *syncproto.DeliveredIdentity) { d.KeyID = id })
	connect()
	next("identities  " + id)
	next(job + "/t/vault#3 " + id)
	change(func(d *syncproto.DeliveredIdentity) { d.Offline = false })
	connect()
	next("identities  " + id)
	next(job + "/t/vault#4 " + id)
}
