package access_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/access"
	"skerry/hub/state"
	"skerry/hub/workload"
)

const (
	shopAlloc = fleet.AllocID("5c6328f7-48c5-4d03-bada-91ef2e904d0d")
	shopNode  = fleet.NodeID("11111111-1111-4111-8111-111111111111")
	issuer    = "https://hubs.example.com"
)

// fixedKey is the signing key of the root key "k1".
type fixedKey struct{ private *rsa.PrivateKey }

func (k fixedKey) signingKey(context.Context) (string, *rsa.PrivateKey, error) {
	return "k1", k.private, nil
}

// workloads is a cluster with access control, where an allocation of the job shop runs.
type workloads struct {
	*cluster
	key fixedKey
	workload.Signer
}

func newWorkloads(t *testing.T) *workloads {
	t.Helper()
	w := &workloads{cluster: newCluster(t)}
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	w.key = fixedKey{private}
	w.Resolver = access.New(access.Config{State: w.store, Issuer: issuer, Now: func() time.Time { return w.now }})
	w.Signer = workload.Signer{Key: w.key.signingKey, Issuer: issuer, Now: func() time.Time { return w.now }}
	public, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	w.mustApply(state.ACLBootstrap{Token: token(0, fleet.ACLTokenManagement)})
	w.mustApply(state.RootKeyStore{Key: state.RootKey{
		RootKey: fleet.RootKey{KeyID: "k1", CreateTime: w.now.UnixNano()}, Wrapped: []byte{1}, WrappedBy: "s",
		Signing: &state.SigningKey{Public: public, Wrapped: []byte{1}, WrappedBy: "s"},
	}})
	w.mustApply(state.NodeRegister{Node: fleet.Node{ID: shopNode, Name: "edge", Datacenter: "dc1", NodePool: fleet.DefaultPool, Resources: fleet.Resources{CPU: 4000, MemoryMB: 4000, DiskMB: 4000}}, Now: 1})
	w.mustApply(state.SessionOpen{NodeID: shopNode, Session: 1, Instance: "i", BootID: "b", Hub: "hub1", EvalSeed: "s", Now: 2})
	job := &fleet.Job{
		Namespace: fleet.DefaultNamespace, ID: "shop", Name: "shop", Type: fleet.JobTypeService, Datacenters: []string{"dc1"}, NodePool: fleet.DefaultPool, Priority: 50,
		TaskGroups: []fleet.TaskGroup{{Name: "web", Count: 1, Tasks: []fleet.Task{{Name: "main", Driver: "sim"}, {Name: "side", Driver: "sim"}}}},
	}
	w.mustApply(state.JobRegister{Job: job, Now: 3})
	stored, _ := w.store.View().Job(job.Namespace, job.ID)
	w.mustApply(state.Plan{Jobs: []*fleet.Job{stored}, Now: 4, Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{shopNode: {{
		ID: shopAlloc, Namespace: job.Namespace, Name: "shop.web[0]", NodeID: shopNode, JobID: job.ID, Job: stored, JobVersion: stored.Version, JobHash: stored.SpecHash,
		TaskGroup: "web", DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending,
	}}}}})
	return w
}

func (w *workloads) alloc() *fleet.Alloc {
	a, _ := w.store.View().Alloc(shopAlloc)
	return a
}

// sign signs the default identity of a task.
func (w *workloads) sign(task string, ttl time.Duration) string {
	w.tb.Helper()
	made, err := w.SignIdentity(w.tb.Context(), w.alloc(), &fleet.OwnedIdentity{Task: task, WorkloadIdentity: fleet.WorkloadIdentity{Name: fleet.DefaultIdentity, Audience: []string{fleet.DefaultAudience}, TTL: ttl}})
	if err != nil {
		w.tb.Fatal(err)
	}
	return made.Text
}

func (w *workloads) mustMay(secret string, want bool, needs ...acl.Requirement) *access.Actor {
	w.tb.Helper()
	actor, err := w.Resolve(context.Background(), secret)
	if err != nil {
		w.tb.Fatal(err)
	}
	for _, r := range needs {
		if got := actor.ACL.Allows(r); got != want {
			w.tb.Errorf("%s is allowed: %v", r, got)
		}
		if e := actor.ACL.Explain(r); e.Allowed != want {
			w.tb.Errorf("%s is explained as allowed: %+v", r, e)
		}
	}
	return actor
}

func onVariable(c acl.Capability, namespace, path string) acl.Requirement {
	return acl.Requirement{Kind: acl.KindVariables, Name: namespace, Capability: c, Path: path}
}

// TestWorkload: a task may read the variables of its job, the services of its namespace, and what policies that are
// attached to it allow.
func TestWorkload(t *testing.T) {
	w := newWorkloads(t)
	secret := w.sign("main", 0)
	own := []acl.Requirement{{Kind: acl.KindNamespace, Name: "default", Capability: acl.ListServices}}
	for _, path := range []string{"nomad/jobs", "nomad/jobs/shop", "nomad/jobs/shop/web", "nomad/jobs/shop/web/main"} {
		own = append(own, onVariable(acl.Read, "default", path), onVariable(acl.List, "default", path))
	}
	actor := w.mustMay(secret, true, own...)
	if actor.Token != nil || actor.Workload.AllocID != shopAlloc || actor.Workload.Subject != "global:default:shop:web:main:default" {
		t.Errorf("the actor: %+v", actor)
	}
	others := []acl.Requirement{
		onVariable(acl.Write, "default", "nomad/jobs/shop"), onVariable(acl.Read, "team", "nomad/jobs/shop"), onVariable(acl.Read, "default", "nomad/jobs/shop/web/side"),
		onVariable(acl.Read, "default", "nomad/jobs/other"), onVariable(acl.Read, "default", "app"), {Kind: acl.KindNamespace, Name: "default", Capability: acl.ReadJob},
		{Kind: acl.KindNamespace, Name: "team", Capability: acl.ListServices}, {Kind: acl.KindManagement}, {Kind: acl.KindNode, Capability: acl.Read},
	}
	w.mustMay(secret, false, others...)
	if actor.ACL.AllowsNothing() || actor.ACL.AllowsSome(acl.KindNamespace, "team") || !actor.ACL.AllowsAny(acl.KindVariables, acl.Read) || actor.ACL.AllowsAny(acl.KindVariables, acl.Write) {
		t.Error("what it may do with some object")
	}

	attach := func(name string, at fleet.JobACL) {
		w.mustApply(state.ACLPolicyStore{Policy: fleet.ACLPolicy{Name: name, JobACL: &at, Rules: fmt.Sprintf(`namespace "*" { variables { path %q { capabilities = ["read"] } } }`, name)}})
	}
	attach("job", fleet.JobACL{Namespace: "default", JobID: "shop"})
	attach("group", fleet.JobACL{Namespace: "default", JobID: "shop", Group: "web"})
	attach("task", fleet.JobACL{Namespace: "default", JobID: "shop", Group: "web", Task: "main"})
	attach("side", fleet.JobACL{Namespace: "default", JobID: "shop", Group: "web", Task: "side"})
	attach("other-group", fleet.JobACL{Namespace: "default", JobID: "shop", Group: "db"})
	attach("other-job", fleet.JobACL{Namespace: "default", JobID: "till"})
	attach("other-namespace", fleet.JobACL{Namespace: "team", JobID: "shop"})
	w.storePolicy("tokens", `namespace "*" { variables { path "tokens" { capabilities = ["read"] } } }`)
	for _, name := range []string{"job", "group", "task"} {
		w.mustMay(secret, true, onVariable(acl.Read, "team", name))
	}
	for _, name := range []string{"side", "other-group", "other-job", "other-namespace", "tokens"} {
		w.mustMay(secret, false, onVariable(acl.Read, "team", name))
	}
	w.mustMay(secret, true, own...)
	w.mustMay(w.sign("side", 0), true, onVariable(acl.Read, "team", "side"))
	w.mustApply(state.ACLDelete{Policies: []string{"task"}})
	w.mustMay(secret, false, onVariable(acl.Read, "team", "task"))
	w.mustApply(state.ACLPolicyStore{Policy: fleet.ACLPolicy{Name: "job", Rules: "of a newer release", JobACL: &fleet.JobACL{Namespace: "default", JobID: "shop"}}})
	w.mustMay(secret, false, onVariable(acl.Read, "team", "group")) // a policy that cannot be read may deny it
	w.mustMay(secret, true, own...)
}

// part encodes one part of a token.
func part(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of texts
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// forge signs any claims with a header, by the cluster's own key.
func (w *workloads) forge(header map[string]any, claims any) string {
	text := part(header) + "." + part(claims)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, w.key.private, crypto.SHA256, sum[:])
	if err != nil {
		w.tb.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// TestWorkloadRefused: each token that does not count is refused with its reason, also after it was accepted before.
func TestWorkloadRefused(t *testing.T) {
	w := newWorkloads(t)
	rs256 := map[string]any{"alg": "RS256", "kid": "k1"}
	claims := func(change func(map[string]any)) map[string]any {
		all := map[string]any{
			"aud": "nomadproject.io", "iss": issuer, "iat": w.now.Unix(), "nbf": w.now.Unix(), "nomad_namespace": "default", "nomad_job_id": "shop",
			"nomad_allocation_id": shopAlloc, "nomad_task": "main", "sub": "global:default:shop:web:main:default",
		}
		if change != nil {
			change(all)
		}
		return all
	}
	set := func(key string, value any) map[string]any {
		return claims(func(m map[string]any) { m[key] = value })
	}
	w.mustMay(w.forge(rs256, claims(nil)), true)
	w.mustMay(w.forge(rs256, claims(func(m map[string]any) { delete(m, "iss"); m["aud"] = []string{"vault.io", "nomadproject.io"} })), true)
	deep := strings.Repeat(`[`, 1500) + strings.Repeat(`]`, 1500)
	for name, tc := range map[string]struct{ token, says string }{
		"no algorithm":       {part(map[string]any{"alg": "none", "kid": "k1"}) + "." + part(claims(nil)) + ".", "not signed with RS256"},
		"another algorithm":  {w.forge(map[string]any{"alg": "HS256", "kid": "k1"}, claims(nil)), "not signed with RS256"},
		"an unknown key":     {w.forge(map[string]any{"alg": "RS256", "kid": "k2"}, claims(nil)), `key "k2" is unknown`},
		"no key":             {w.forge(map[string]any{"alg": "RS256"}, claims(nil)), `key "" is unknown`},
		"changed claims":     {strings.Replace(w.forge(rs256, claims(nil)), "."+part(claims(nil))+".", "."+part(set("nomad_job_id", "till"))+".", 1), "signature is not of the key k1"},
		"no signature":       {part(rs256) + "." + part(claims(nil)) + ".", "refused"},
		"no JSON":            {w.forge(rs256, "text"), "claims cannot be read"},
		"nested":             {w.forge(rs256, json.RawMessage(`{"sub": `+deep+`}`)), "claims cannot be read"},
		"huge":               {w.forge(rs256, set("sub", strings.Repeat("x", 8<<10))), "at most 8192"},
		"expired":            {w.forge(rs256, set("exp", w.now.Unix())), "it expired at 2026-01-01"},
		"not valid yet":      {w.forge(rs256, set("nbf", w.now.Unix()+61)), "not valid before"},
		"another issuer":     {w.forge(rs256, set("iss", "https://evil.example")), "its issuer is"},
		"another audience":   {w.forge(rs256, set("aud", "vault.io")), "audience is not nomadproject.io"},
		"no audience":        {w.forge(rs256, claims(func(m map[string]any) { delete(m, "aud") })), "audience is not"},
		"unknown allocation": {w.forge(rs256, set("nomad_allocation_id", "none")), "no allocation none"},
		"another namespace":  {w.forge(rs256, set("nomad_namespace", "team")), "another job"},
		"another job":        {w.forge(rs256, set("nomad_job_id", "till")), "another job"},
		"no such task":       {w.forge(rs256, set("nomad_task", "none")), "no task"},
		"no token":           {"a.b.c", "cannot be read"},
	} {
		_, err := w.Resolve(t.Context(), tc.token)
		if fleet.CodeOf(err) != fleet.CodeForbidden || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, not %q", name, err, tc.says)
		}
	}
}

// TestWorkloadEnds: a token that was accepted is refused once it has expired, its allocation has to stop, its node is
// revoked or its key is gone. A clock that goes back revives none.
func TestWorkloadEnds(t *testing.T) {
	stopped := func(w *workloads) {
		a := *w.alloc()
		a.DesiredStatus = fleet.DesiredStop
		w.mustApply(state.Plan{Jobs: []*fleet.Job{a.Job}, Now: 5, Result: fleet.PlanResult{NodeUpdate: map[fleet.NodeID][]fleet.Alloc{shopNode: {a}}}})
	}
	for name, tc := range map[string]struct {
		says string
		end  func(w *workloads)
	}{
		"expired": {"it expired", func(w *workloads) {
			w.now = w.now.Add(time.Hour)
			w.mustMay(w.sign("main", 0), true)
			w.now = w.now.Add(-2 * time.Hour)
		}},
		"stopped": {"has ended", stopped},
		"revoked": {"", func(w *workloads) {
			w.mustApply(state.NodeRevoke{NodeID: shopNode, Reason: "stolen", EvalSeed: "s", Now: 6})
		}},
		"no key": {"was removed", func(w *workloads) {
			w.mustApply(state.RootKeyStore{Key: state.RootKey{RootKey: fleet.RootKey{KeyID: "k2"}, Wrapped: []byte{1}, WrappedBy: "s"}})
			w.mustApply(state.RootKeyDelete{KeyID: "k1"})
		}},
	} {
		w := newWorkloads(t)
		token := w.sign("main", time.Hour)
		w.mustMay(token, true)
		tc.end(w)
		actor, err := w.Resolve(t.Context(), token)
		if fleet.CodeOf(err) != fleet.CodeForbidden || !strings.Contains(err.Error(), tc.says) || actor == nil || actor.Workload.AllocID != shopAlloc || !actor.ACL.AllowsNothing() {
			t.Errorf("%s: %+v, %v, not %q", name, actor, err, tc.says)
		}
	}
}
