package api_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"skerry/fleet"
	hubapi "skerry/hub/api"
	"skerry/hub/state"
	"skerry/hub/state/statetest"
	"skerry/hub/workload"
	"skerry/syncproto/nodekey"
)

// fleetOfKeys is a cluster of edges that have told keys.
type fleetOfKeys struct {
	tb  testing.TB
	log *statetest.Log
}

func nodeNumber(n int) fleet.NodeID {
	return fleet.NodeID(fmt.Sprintf("%08d-1111-4111-8111-111111111111", n))
}

// addNode registers a node with a key, and returns its key id.
func (f *fleetOfKeys) addNode(n int, public string) string {
	f.tb.Helper()
	f.log.MustApply(f.tb, state.NodeRegister{Now: 1, Node: fleet.Node{
		ID: nodeNumber(n), Name: fmt.Sprint("edge-", n), Datacenter: "dc1", NodePool: fleet.DefaultPool, Attributes: map[string]string{nodekey.Attribute: public},
		Resources: fleet.Resources{CPU: 4000, MemoryMB: 4000, DiskMB: 4000},
	}})
	return nodekey.ID(nodeNumber(n), public)
}

// place places an allocation of a job on nodes.
func (f *fleetOfKeys) place(id fleet.JobID, w fleet.WorkloadIdentity, nodes ...int) {
	f.tb.Helper()
	f.log.MustApply(f.tb, state.JobRegister{Now: 2, Job: &fleet.Job{
		Namespace: fleet.DefaultNamespace, ID: id, Name: string(id), Type: fleet.JobTypeService, Datacenters: []string{"dc1"}, NodePool: fleet.DefaultPool, Priority: 50,
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: len(nodes), Tasks: []fleet.Task{{Name: "t", Driver: "sim", Identities: []fleet.WorkloadIdentity{w}}}}},
	}})
	job, _ := f.log.Store.View().Job(fleet.DefaultNamespace, id)
	placed := map[fleet.NodeID][]fleet.Alloc{}
	for _, n := range nodes {
		placed[nodeNumber(n)] = []fleet.Alloc{{
			ID: fleet.AllocID(fleet.DeriveUUID(string(id), fmt.Sprint(n))), Namespace: job.Namespace, Name: fmt.Sprintf("%s.g[%d]", id, n), NodeID: nodeNumber(n), JobID: id, Job: job,
			JobVersion: job.Version, JobHash: job.SpecHash, TaskGroup: "g", DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending,
		}}
	}
	f.log.MustApply(f.tb, state.Plan{Jobs: []*fleet.Job{job}, Now: 3, Result: fleet.PlanResult{NodeAllocation: placed}})
}

func (f *fleetOfKeys) ids(keys []workload.PublicKey) (ids []string) {
	for _, k := range keys {
		ids = append(ids, k.ID)
	}
	return ids
}

func mustPublic(tb testing.TB) string {
	tb.Helper()
	key, err := nodekey.New()
	if err != nil {
		tb.Fatal(err)
	}
	return key.Public()
}

var offline = fleet.WorkloadIdentity{Name: "vault", File: true, TTL: time.Hour, Offline: true}

// TestPublishedKeysOfNodes: a node's key is published while the node has an unfinished allocation with an offline identity
// and is not revoked, and only the one that it told last. The keys of the hubs can be had without them.
func TestPublishedKeysOfNodes(t *testing.T) {
	f := &fleetOfKeys{t, statetest.NewLog()}
	var cached hubapi.KeyCache
	want := func(what string, ids ...string) {
		t.Helper()
		v := f.log.Store.View()
		all, index := cached.AllKeys(v)
		if got := f.ids(all); !slices.Equal(got, ids) {
			t.Errorf("%s: published are %v, want %v", what, got, ids)
		}
		if index != v.Index() {
			t.Errorf("%s: the keys are as of entry %d, want %d", what, index, v.Index())
		}
		for n := range 5 {
			one := f.ids(hubapi.NodeKeys(v, nodeNumber(n)))
			if id, _ := v.PublishedIdentityKey(nodeNumber(n)); id != "" && (!slices.Contains(ids, id) || !slices.Equal(one, []string{id})) || id == "" && len(one) > 0 {
				t.Errorf("%s: node %d has %s, %v", what, n, id, one)
			}
		}
		if got := f.ids(hubapi.HubKeys(v)); len(got) != 0 {
			t.Errorf("%s: keys of hubs: %v", what, got)
		}
	}
	want("nothing")
	first, second := f.addNode(1, mustPublic(t)), f.addNode(2, mustPublic(t))
	f.addNode(3, mustPublic(t))
	f.addNode(4, "no key")
	want("nobody may sign")
	f.place("online", fleet.WorkloadIdentity{Name: "vault", File: true, TTL: time.Hour}, 1, 2, 3, 4)
	hidden := offline
	hidden.File = false
	f.place("hidden", hidden, 3)
	want("no job allows it")
	f.place("shop", offline, 1, 2, 4)
	want("two may sign", first, second)
	first = f.addNode(1, mustPublic(t))
	want("one has another key", first, second)
	f.log.MustApply(t, state.NodeRevoke{NodeID: nodeNumber(2), EvalSeed: "s", Now: 4})
	want("one is revoked", first)
	f.log.MustApply(t, state.Certificate{Serial: "of a node that was purged", Subject: "edge:" + string(nodeNumber(9))})
	f.log.MustApply(t, state.NodeRevoke{NodeID: nodeNumber(9), EvalSeed: "s", Now: 5})
	want("one that was purged is revoked", first)
	a, _ := f.log.Store.View().Alloc(fleet.AllocID(fleet.DeriveUUID("shop", "1")))
	stopped := *a
	stopped.DesiredStatus = fleet.DesiredStop
	f.log.MustApply(t, state.Plan{Jobs: []*fleet.Job{a.Job}, Now: 6, Result: fleet.PlanResult{NodeUpdate: map[fleet.NodeID][]fleet.Alloc{nodeNumber(1): {stopped}}}})
	want("its allocation has to stop")
}

// TestKeysOfAFleet: the keys of 4,000 edges are one document of a bounded size.
func TestKeysOfAFleet(t *testing.T) {
	const edges = 4000
	f := &fleetOfKeys{t, statetest.NewLog()}
	public := mustPublic(t)
	nodes := make([]int, edges)
	for n := range nodes {
		nodes[n] = n
		f.addNode(n, public)
	}
	for n := 0; n < edges; n += 500 {
		f.place(fleet.JobID(fmt.Sprint("shop-", n)), offline, nodes[n:n+500]...)
	}
	var cached hubapi.KeyCache
	began := time.Now()
	keys, _ := cached.AllKeys(f.log.Store.View())
	b, err := json.Marshal(workload.KeySet(keys))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d keys are %d KiB, made in %s", edges, len(b)>>10, time.Since(began).Round(time.Millisecond))
	if perKey := len(b) / edges; perKey < 200 || perKey > 290 {
		t.Errorf("%d bytes for each key", perKey)
	}
}

// TestKeySetOfHubs: verifiers read the public halves of the keys that have signed.
func TestKeySetOfHubs(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	mustSucceed(t, err)
	public, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	mustSucceed(t, err)
	log := statetest.NewLog()
	log.MustApply(t, state.RootKeyStore{Key: state.RootKey{RootKey: fleet.RootKey{KeyID: "k1"}, Wrapped: []byte{1}, WrappedBy: "s", Signing: &state.SigningKey{Public: public, Wrapped: []byte{1}, WrappedBy: "s"}}})
	log.MustApply(t, state.RootKeyStore{Key: state.RootKey{RootKey: fleet.RootKey{KeyID: "k2"}, Wrapped: []byte{1}, WrappedBy: "s"}})
	b, err := json.Marshal(workload.KeySet(hubapi.HubKeys(log.Store.View())))
	var set struct{ Keys []map[string]string }
	if err == nil {
		err = json.Unmarshal(b, &set)
	}
	if err != nil || len(set.Keys) != 1 || set.Keys[0]["kid"] != "k1" || set.Keys[0]["kty"] != "RSA" || set.Keys[0]["alg"] != "RS256" || set.Keys[0]["use"] != "sig" || set.Keys[0]["d"] != "" {
		t.Fatalf("%s, %v", b, err)
	}
	if b, err := json.Marshal(workload.KeySet(hubapi.HubKeys(state.New().View()))); err != nil || string(b) != `{"keys":[]}` {
		t.Fatalf("without a key: %s, %v", b, err)
	}
}
