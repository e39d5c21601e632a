package gateway_test

import (
	"context"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// TestIdentitiesOfServicesAreDelivered: an edge gets the tokens of services that log in to Consul, a group's and a task's.
func TestIdentitiesOfServicesAreDelivered(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{sign: &countingSigner{}})
	h.mustApply(state.RootKeyStore{Key: state.RootKey{RootKey: fleet.RootKey{KeyID: "k1"}, Wrapped: []byte{1}, WrappedBy: "s"}})
	keeps, requests := &keepingEdge{held: map[string]syncproto.DeliveredIdentity{}}, make(chan string, 16)
	w := h.mustDial(t, node1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go w.serveIdentities(ctx, keeps, requests)
	w.openSession(1, "agent-1")
	service := func(name, identity string) []fleet.Service {
		return []fleet.Service{{Name: name, Provider: fleet.ProviderConsul, Identity: &fleet.WorkloadIdentity{Name: identity, TTL: time.Hour}}}
	}
	job := &fleet.Job{
		Namespace: fleet.DefaultNamespace, ID: "shop", Name: "shop", Type: fleet.JobTypeService, Datacenters: []string{"dc1"}, NodePool: fleet.DefaultPool, Priority: 50,
		TaskGroups: []fleet.TaskGroup{{
			Name: "g", Count: 1, Services: service("web", "consul-service_web-80"),
			Tasks: []fleet.Task{{Name: "t", Driver: "raw_exec", Services: service("api", "consul-service_t-api-81")}},
		}},
	}
	h.mustApply(state.JobRegister{Job: job, Now: time.Now().UnixNano()})
	stored, _ := h.View().Job(job.Namespace, job.ID)
	h.mustPlan(node1, fleet.Alloc{
		ID: alloc1, Namespace: job.Namespace, Name: "shop.g[0]", NodeID: node1, JobID: job.ID, Job: stored, JobVersion: stored.Version, JobHash: stored.SpecHash, TaskGroup: "g",
		DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending,
	})
	for _, want := range []string{"identities", "identities shop/t/consul-service_t-api-81#1,shop//consul-service_web-80#2"} {
		select {
		case got := <-requests:
			if got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no request: want %s", want)
		}
	}
}
