package api_test

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	nomad "github.com/hashicorp/nomad/api"

	"skerry/api"
	"skerry/edge/consul"
	"skerry/edge/consul/consultest"
	"skerry/edge/logins"
	"skerry/edge/machinekey"
	"skerry/edge/vault"
	"skerry/edge/vault/vaulttest"
	"skerry/fleet"
	hubapi "skerry/hub/api"
	"skerry/hub/state"
	"skerry/hub/workload"
	"skerry/internal/remoteapi"
	"skerry/syncproto/nodekey"
)

// newSigner returns a signer of identities with the key of the hub's secrets.
func (a *aclHub) newSigner(issuer string) workload.Signer {
	keys := secretsOf(a.hub)
	return workload.Signer{
		Key: func(ctx context.Context) (string, *rsa.PrivateKey, error) {
			key, err := keys.SigningKey(ctx)
			return key.KeyID, key.Private, err
		},
		Issuer: issuer, Now: func() time.Time { return a.now },
	}
}

// signIdentity places an allocation of the job shop, and signs an identity of its task.
func (a *aclHub) signIdentity(issuer string, w *fleet.WorkloadIdentity) (fleet.AllocID, string) {
	a.tb.Helper()
	mustApply(a.tb, a.hub, state.NodeRegister{Node: fleet.Node{ID: nodeID, Name: "edge1", Datacenter: "dc1", NodePool: "default", Resources: fleet.Resources{CPU: 4000, MemoryMB: 8192, DiskMB: 10000}}, Now: 1})
	mustApply(a.tb, a.hub, state.SessionOpen{NodeID: nodeID, Session: 1, Instance: "i", BootID: "b", Hub: "hub1", EvalSeed: "s", Now: 2})
	mustApply(a.tb, a.hub, state.JobRegister{Now: 3, Job: &fleet.Job{
		Namespace: "default", ID: "shop", Name: "shop", Type: fleet.JobTypeService, Datacenters: []string{"dc1"}, NodePool: "default", Priority: 50,
		TaskGroups: []fleet.TaskGroup{{Name: "web", Count: 1, Tasks: []fleet.Task{{Name: "main", Driver: "raw_exec"}}}},
	}})
	job, _ := a.hub.store.View().Job("default", "shop")
	placed := fleet.Alloc{
		ID: "5c6328f7-48c5-4d03-bada-91ef2e904d0d", Namespace: "default", Name: "shop.web[0]", NodeID: nodeID, JobID: "shop", Job: job, JobVersion: job.Version, JobHash: job.SpecHash,
		TaskGroup: "web", DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending,
	}
	mustApply(a.tb, a.hub, state.Plan{Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{nodeID: {placed}}}, Jobs: []*fleet.Job{job}, Now: 4})
	signer := a.newSigner(issuer)
	made, err := signer.SignIdentity(a.tb.Context(), &placed, &fleet.OwnedIdentity{Task: "main", WorkloadIdentity: *w})
	mustSucceed(a.tb, err)
	return placed.ID, made.Text
}

// TestIdentityIsVerifiedByOthers: an OIDC client finds the hub's keys at the issuer, and verifies a token with them.
func TestIdentityIsVerifiedByOthers(t *testing.T) {
	a := newACLHub(t)
	resp, err := http.Get(a.srv.URL + "/.well-known/openid-configuration")
	mustSucceed(t, err)
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound || !strings.Contains(string(text), "no issuer") || !strings.Contains(resp.Header.Get("X-Skerry-Hint"), "--oidc-issuer") {
		t.Errorf("without an issuer: %d %s", resp.StatusCode, text)
	}
	issuing, err := hubapi.New(hubapi.Config{State: a.hub.store, Cluster: a.hub, Edges: a.hub, Jobs: a.hub, Garbage: a.hub, Events: a.hub, Secrets: secretsOf(a.hub), Locks: locksOf(a.hub), Issuer: a.srv.URL})
	mustSucceed(t, err)
	a.srv.Config.Handler = issuing
	_, token := a.signIdentity(a.srv.URL, &fleet.WorkloadIdentity{Name: "vault", Audience: []string{"vault.io"}, TTL: time.Hour})
	provider, err := oidc.NewProvider(t.Context(), a.srv.URL)
	mustSucceed(t, err)
	verifier := provider.Verifier(&oidc.Config{ClientID: "vault.io", Now: func() time.Time { return a.now }})
	verified, err := verifier.Verify(t.Context(), token)
	if err != nil || verified.Subject != "global:default:shop:web:main:vault" || !verified.Expiry.Equal(a.now.Add(time.Hour)) {
		t.Fatalf("verified as %+v, %v", verified, err)
	}
	if _, err := provider.Verifier(&oidc.Config{ClientID: "other", Now: func() time.Time { return a.now }}).Verify(t.Context(), token); err == nil {
		t.Error("accepted for another audience")
	}
	if _, err := secretsOf(a.hub).Rotate(t.Context(), false); err != nil { // a verifier that asks only now gets both keys
		t.Fatal(err)
	}
	provider, err = oidc.NewProvider(t.Context(), a.srv.URL)
	mustSucceed(t, err)
	if _, err := provider.Verifier(&oidc.Config{ClientID: "vault.io", Now: func() time.Time { return a.now }}).Verify(t.Context(), token); err != nil {
		t.Errorf("after a rotation: %v", err)
	}
	_, other := a.signIdentityAgain(t, a.srv.URL)
	if _, err := verifier.Verify(t.Context(), other); err != nil { // it fetches the keys again
		t.Errorf("with a key that the verifier did not know: %v", err)
	}
}

// TestVaultTakesAnIdentity: a Vault that is configured as docs/vault.md says takes the identity of a task, by the hub's key
// set and the claims of its role; the role of another job does not.
func TestVaultTakesAnIdentity(t *testing.T) {
	a := newACLHub(t)
	a.now = time.Now() // Vault has no other clock
	_, token := a.signIdentity("", &fleet.WorkloadIdentity{Name: fleet.VaultIdentity, Audience: []string{fleet.DefaultVaultAudience}, TTL: fleet.DefaultVaultTTL})
	server := vaulttest.New(a.keySet)
	for _, job := range []string{"shop", "till"} {
		server.SetRole(job, vaulttest.Role{Audience: fleet.DefaultVaultAudience, TTL: time.Hour, Claims: map[string]string{"nomad_job_id": job, "nomad_task": "main", "nomad_namespace": "default"}})
	}
	client, err := vault.NewClient(vault.ClientConfig{Address: "https://vault.example.com", Transport: server})
	mustSucceed(t, err)
	key, _ := machinekey.New()
	keeper, err := vault.Open(client, logins.Config{Journal: emptyJournal{}, Sealer: key, Log: slog.New(slog.DiscardHandler)})
	mustSucceed(t, err)
	mustSucceed(t, keeper.Renew(t.Context(), client.Task("a", "main", &fleet.Vault{Role: "shop"}), token))
	if err := keeper.Renew(t.Context(), client.Task("b", "main", &fleet.Vault{Role: "till"}), token); !remoteapi.IsRefused(err) || !strings.Contains(err.Error(), "nomad_job_id") {
		t.Errorf("the role of another job: %v", err)
	}
}

// keySet is the hub's key set, as others read it.
func (a *aclHub) keySet() ([]byte, error) {
	resp, err := http.Get(a.srv.URL + "/.well-known/jwks.json")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// TestConsulTakesAnIdentity: an auth method of Consul takes the identity of a task, by the hub's key set and the task's claims; that
// for another job does not.
func TestConsulTakesAnIdentity(t *testing.T) {
	a := newACLHub(t)
	a.now = time.Now() // Consul has no other clock
	_, token := a.signIdentity("", &fleet.WorkloadIdentity{Name: fleet.ConsulIdentity, Audience: []string{fleet.DefaultConsulAudience}, TTL: fleet.DefaultConsulTTL})
	agent := consultest.New()
	for method, job := range map[string]string{consul.DefaultAuthMethod: "shop", "till": "till"} {
		agent.SetMethod(method, consultest.Method{Keys: a.keySet, Audience: fleet.DefaultConsulAudience, Claims: map[string]string{"nomad_job_id": job, "nomad_task": "main", "nomad_namespace": "default"}})
	}
	key, _ := machinekey.New()
	for method, want := range map[string]string{"": "", "till": "nomad_job_id"} {
		client, err := consul.NewClient(consul.ClientConfig{Address: "127.0.0.1:8500", TaskMethod: method, Transport: agent})
		mustSucceed(t, err)
		keeper, err := consul.OpenKeeper(client, logins.Config{Journal: emptyJournal{}, Sealer: key, Log: slog.New(slog.DiscardHandler)})
		mustSucceed(t, err)
		err = keeper.Renew(t.Context(), client.Task("a", "main"), token)
		if want == "" && err != nil || want != "" && (!remoteapi.IsRefused(err) || !strings.Contains(err.Error(), want)) {
			t.Errorf("method %q: %v, want %q", method, err, want)
		}
	}
}

// emptyJournal keeps nothing.
type emptyJournal struct{}

func (emptyJournal) PutHandle(context.Context, fleet.AllocID, string, []byte, ...fleet.Transition) error {
	return nil
}

func (emptyJournal) Handles(context.Context, fleet.AllocID) (map[string][]byte, error) {
	return nil, nil
}

// signIdentityAgain signs one more token, by the key that is active now.
func (a *aclHub) signIdentityAgain(t *testing.T, issuer string) (fleet.AllocID, string) {
	t.Helper()
	for alloc := range a.hub.store.View().AllocsByNode(nodeID) {
		signer := a.newSigner(issuer)
		made, err := signer.SignIdentity(context.Background(), alloc, &fleet.OwnedIdentity{Task: "main", WorkloadIdentity: fleet.WorkloadIdentity{Name: "vault", Audience: []string{"vault.io"}, TTL: time.Hour}})
		mustSucceed(t, err)
		return alloc.ID, made.Text
	}
	t.Fatal("there is no allocation")
	return "", ""
}

// TestNomadReadsKeySet: Nomad's client reads the keys without a token.
func TestNomadReadsKeySet(t *testing.T) {
	a := newACLHub(t)
	a.mustBootstrap()
	_, err := secretsOf(a.hub).SigningKey(t.Context())
	mustSucceed(t, err)
	body, err := a.clientOf("").Raw().Response("/.well-known/jwks.json", nil)
	mustSucceed(t, err)
	defer body.Close()
	var set struct {
		Keys []struct{ Kid, Kty, N, D string }
	}
	if err := json.NewDecoder(body).Decode(&set); err != nil || len(set.Keys) != 1 || set.Keys[0].Kty != "RSA" || set.Keys[0].N == "" || set.Keys[0].D != "" {
		t.Errorf("%+v, %v", set, err)
	}
}

// TestRequestsOfWorkload: a task asks the hub with its identity. It reads its job's variables and its namespace's services,
// and what an attached policy allows; nothing else. The audit names it.
func TestRequestsOfWorkload(t *testing.T) {
	a := newACLHub(t)
	admin, _ := a.mustBootstrap()
	for _, path := range []string{"nomad/jobs/shop/web/main", "nomad/jobs/till", "app/db"} {
		_, _, err := admin.Variables().Create(&nomad.Variable{Path: path, Items: nomad.VariableItems{"k": path}}, nil)
		mustSucceed(t, err)
	}
	id, token := a.signIdentity("", &fleet.WorkloadIdentity{Name: fleet.DefaultIdentity, Audience: []string{fleet.DefaultAudience}, TTL: time.Hour})
	task := a.clientOf(token)
	read, _, err := task.Variables().Read("nomad/jobs/shop/web/main", nil)
	if err != nil || read.Items["k"] != "nomad/jobs/shop/web/main" {
		t.Fatalf("its own variable: %+v, %v", read, err)
	}
	if list, _, err := task.Variables().List(nil); err != nil || len(list) != 1 {
		t.Errorf("it lists %v, %v", list, err)
	}
	_, _, err = task.Services().List(nil)
	mustSucceed(t, err)
	_, _, err = task.Services().List(&nomad.QueryOptions{Namespace: "team"})
	mustFailWith(t, err, "403")
	_, _, err = task.Variables().Read("nomad/jobs/till", nil)
	mustFailWith(t, err, "403")
	_, _, err = task.Variables().Create(&nomad.Variable{Path: "nomad/jobs/shop", Items: nomad.VariableItems{"k": "v"}}, nil)
	mustFailWith(t, err, "403", "capability \"write\"")
	_, _, err = task.Jobs().List(nil)
	mustFailWith(t, err, "403", "list-jobs")
	_, _, err = task.ACLTokens().Self(nil)
	mustFailWith(t, err, "403", "identity of a workload")
	_, _, err = task.ACLTokens().UpsertOneTimeToken(nil)
	mustFailWith(t, err, "403")

	_, err = admin.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "db", Rules: `namespace "default" { variables { path "app/*" { capabilities = ["read"] } } }`, JobACL: &nomad.JobACL{Namespace: "default", JobID: "shop"}}, nil)
	mustSucceed(t, err)
	if read, _, err := task.Variables().Read("app/db", nil); err != nil || read.Items["k"] != "app/db" {
		t.Errorf("by an attached policy: %+v, %v", read, err)
	}
	if own, _, err := task.ACLPolicies().List(nil); err != nil || len(own) != 1 || own[0].JobACL == nil || own[0].JobACL.JobID != "shop" {
		t.Errorf("its policies: %+v, %v", own, err)
	}

	a.now = a.now.Add(time.Hour)
	_, _, err = task.Variables().Read("nomad/jobs/shop/web/main", nil)
	mustFailWith(t, err, "403", "workload identity refused: it expired")
	a.audit.mu.Lock()
	defer a.audit.mu.Unlock()
	last := a.audit.entries[len(a.audit.entries)-1]
	if last.Status != http.StatusForbidden || last.Actor.AllocID != id || last.Actor.Workload != "global:default:shop:web:main:default" || last.Actor.Accessor != "" {
		t.Errorf("the audit of the refusal: %+v", last)
	}
	for _, e := range a.audit.entries {
		if text, _ := json.Marshal(e); strings.Contains(string(text), token[:20]) {
			t.Errorf("the audit has the token: %s", text)
		}
	}
}

// TestIdentityOfAnEdgeIsVerifiedByOthers: an OIDC client that trusts the issuer of a node verifies a token of its edge with
// the node's own keys. One that trusts the issuer of the hubs takes no token of an edge, whatever it says. All keys are in one
// document, until the node is revoked.
func TestIdentityOfAnEdgeIsVerifiedByOthers(t *testing.T) {
	a := newACLHub(t)
	issuing, err := hubapi.New(hubapi.Config{State: a.hub.store, Cluster: a.hub, Edges: a.hub, Jobs: a.hub, Garbage: a.hub, Events: a.hub, Secrets: secretsOf(a.hub), Locks: locksOf(a.hub), Issuer: a.srv.URL})
	mustSucceed(t, err)
	a.srv.Config.Handler = issuing
	identity := fleet.WorkloadIdentity{Name: "vault", Audience: []string{"vault.io"}, File: true, TTL: time.Hour, Offline: true}
	alloc, _ := a.signIdentity(a.srv.URL, &identity)
	a.allowOffline(alloc, identity)
	key, err := nodekey.New()
	mustSucceed(t, err)
	mustApply(t, a.hub, state.NodeRegister{Now: 6, Node: fleet.Node{
		ID: nodeID, Name: "edge1", Datacenter: "dc1", NodePool: "default", Attributes: map[string]string{nodekey.Attribute: key.Public()}, Resources: fleet.Resources{CPU: 4000, MemoryMB: 8192, DiskMB: 10000},
	}})
	sign := func(issuer string) string {
		token, err := key.Sign(nodeID, fmt.Appendf(nil, `{"iss":%q,"sub":"global:default:shop:web:main:vault","aud":"vault.io","iat":%d,"exp":%d}`, issuer, a.now.Unix(), a.now.Unix()+3600))
		mustSucceed(t, err)
		return token
	}
	verifier := func(issuer string) *oidc.IDTokenVerifier {
		provider, err := oidc.NewProvider(t.Context(), issuer)
		mustSucceed(t, err)
		return provider.Verifier(&oidc.Config{ClientID: "vault.io", Now: func() time.Time { return a.now }, SupportedSigningAlgs: []string{"RS256", "ES256"}})
	}
	own := nodekey.Issuer(a.srv.URL, nodeID)
	if verified, err := verifier(own).Verify(t.Context(), sign(own)); err != nil || verified.Subject != "global:default:shop:web:main:vault" {
		t.Fatalf("verified as %+v, %v", verified, err)
	}
	for _, issuer := range []string{own, a.srv.URL} {
		if _, err := verifier(a.srv.URL).Verify(t.Context(), sign(issuer)); err == nil {
			t.Errorf("who trusts the hubs takes a token of an edge with the issuer %s", issuer)
		}
	}
	get := func(path string) (int, string) {
		resp, err := http.Get(a.srv.URL + path)
		mustSucceed(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		mustSucceed(t, err)
		return resp.StatusCode, string(text)
	}
	id := nodekey.ID(nodeID, key.Public())
	exposed := func() (e api.NodeExposure) {
		_, text := get("/v1/node/" + string(nodeID) + "/exposure")
		mustSucceed(t, json.Unmarshal([]byte(text), &e))
		return e
	}
	if e := exposed(); e.IdentityKey != id || !e.Published || len(e.Identities) != 1 || !e.Identities[0].Offline || e.Identities[0].Name != "vault" || e.Identities[0].AllocID != alloc {
		t.Errorf("its exposure: %+v", e)
	}
	if _, all := get("/.well-known/jwks.json"); !strings.Contains(all, id) || strings.Count(all, `"kid"`) != 2 || strings.Contains(all, `"d"`) {
		t.Errorf("all keys: %s", all)
	}
	if _, hubs := get("/.well-known/hub-jwks.json"); strings.Contains(hubs, id) || strings.Count(hubs, `"kid"`) != 1 {
		t.Errorf("keys of hubs: %s", hubs)
	}
	mustApply(t, a.hub, state.NodeRevoke{NodeID: nodeID, EvalSeed: "s", Now: 7})
	if _, all := get("/.well-known/jwks.json"); strings.Contains(all, id) {
		t.Errorf("the key of a revoked node: %s", all)
	}
	if _, one := get("/v1/node/" + string(nodeID) + "/.well-known/jwks.json"); strings.Contains(one, "kid") {
		t.Errorf("the key of a revoked node: %s", one)
	}
	if e := exposed(); e.IdentityKey != id || e.Published || len(e.Identities) != 1 {
		t.Errorf("the exposure of a revoked node: %+v", e)
	}
	if code, text := get("/v1/node/" + string(nodeID) + "/.well-known/openid-configuration"); code != http.StatusNotFound {
		t.Errorf("the issuer of a revoked node: %d %s", code, text)
	}
}

// allowOffline gives the job of an allocation an identity.
func (a *aclHub) allowOffline(id fleet.AllocID, w fleet.WorkloadIdentity) {
	a.tb.Helper()
	placed, _ := a.hub.store.View().Alloc(id)
	job := *placed.Job
	job.TaskGroups = []fleet.TaskGroup{{Name: "web", Count: 1, Tasks: []fleet.Task{{Name: "main", Driver: "raw_exec", Identities: []fleet.WorkloadIdentity{w}}}}}
	mustApply(a.tb, a.hub, state.JobRegister{Job: &job, Now: 5})
	stored, _ := a.hub.store.View().Job(job.Namespace, job.ID)
	next := *placed
	next.Job, next.JobVersion, next.JobHash = stored, stored.Version, stored.SpecHash
	mustApply(a.tb, a.hub, state.Plan{Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{nodeID: {next}}}, Jobs: []*fleet.Job{stored}, Now: 5})
}
