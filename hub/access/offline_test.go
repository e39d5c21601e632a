package access_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/state"
	"skerry/syncproto/nodekey"
)

const otherNode = fleet.NodeID("22222222-2222-4222-8222-222222222222")

// edges is a cluster where two nodes have told a key. The allocation of the job shop runs on shopNode; the default identity
// of its task main is offline, the other ones and that of side are not.
type edges struct {
	*workloads
	key, other *nodekey.Key
}

func newEdges(t *testing.T) *edges {
	t.Helper()
	e := &edges{workloads: newWorkloads(t)}
	e.key, e.other = mustNodeKey(t), mustNodeKey(t)
	e.describe(shopNode, e.key.Public())
	e.describe(otherNode, e.other.Public())
	audience := []string{fleet.DefaultAudience}
	job := *e.alloc().Job
	job.TaskGroups = []fleet.TaskGroup{{Name: "web", Count: 1, Tasks: []fleet.Task{
		{Name: "main", Driver: "sim", Identity: &fleet.WorkloadIdentity{Name: "default", Audience: audience, File: true, TTL: time.Hour, Offline: true}, Identities: []fleet.WorkloadIdentity{
			{Name: "long", Audience: audience, File: true, TTL: time.Hour}, {Name: "hidden", Audience: audience, TTL: time.Hour, Offline: true},
			{Name: "vault", Audience: []string{"vault.io"}, File: true, TTL: time.Hour, Offline: true},
		}},
		{Name: "side", Driver: "sim", Identity: &fleet.WorkloadIdentity{Name: "default", Audience: audience, File: true, TTL: time.Hour}},
	}}}
	e.mustApply(state.JobRegister{Job: &job, Now: 5})
	stored, _ := e.store.View().Job(job.Namespace, job.ID)
	a := *e.alloc()
	a.Job, a.JobVersion, a.JobHash = stored, stored.Version, stored.SpecHash
	e.mustApply(state.Plan{Jobs: []*fleet.Job{stored}, Now: 6, Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{shopNode: {a}}}})
	return e
}

func mustNodeKey(t *testing.T) *nodekey.Key {
	t.Helper()
	key, err := nodekey.New()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// describe has a node tell a public key.
func (e *edges) describe(node fleet.NodeID, public string) {
	e.tb.Helper()
	e.mustApply(state.NodeRegister{Now: 1, Node: fleet.Node{
		ID: node, Name: "edge-" + string(node[:1]), Datacenter: "dc1", NodePool: fleet.DefaultPool, Attributes: map[string]string{nodekey.Attribute: public},
		Resources: fleet.Resources{CPU: 4000, MemoryMB: 4000, DiskMB: 4000},
	}})
}

// claims are those of a token that the edge of a node has signed now for the task main, with a change.
func (e *edges) claims(node fleet.NodeID, change func(map[string]any)) map[string]any {
	now := e.now.Unix()
	all := map[string]any{
		"iss": nodekey.Issuer(issuer, node), "sub": "global:default:shop:web:main:default", "aud": "nomadproject.io", "iat": now, "nbf": now, "exp": now + 3600, "jti": "j",
		"nomad_namespace": "default", "nomad_job_id": "shop", "nomad_allocation_id": shopAlloc, "nomad_task": "main", "skerry_node_id": node, "skerry_offline": true,
	}
	if change != nil {
		change(all)
	}
	return all
}

// signAs signs claims with the key of an edge, in the name of a node.
func (e *edges) signAs(key *nodekey.Key, node fleet.NodeID, claims map[string]any) string {
	e.tb.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		e.tb.Fatal(err)
	}
	token, err := key.Sign(node, payload)
	if err != nil {
		e.tb.Fatal(err)
	}
	return token
}

// TestOfflineIdentity: a hub takes the token that an edge has signed for its own task, as it takes one of a hub.
func TestOfflineIdentity(t *testing.T) {
	e := newEdges(t)
	token := e.signAs(e.key, shopNode, e.claims(shopNode, nil))
	own := onVariable(acl.Read, "default", "nomad/jobs/shop/web/main")
	actor := e.mustMay(token, true, own)
	if actor.Workload.SignedBy != shopNode || !actor.Workload.Offline || actor.Workload.Subject != "global:default:shop:web:main:default" {
		t.Errorf("the actor: %+v", actor.Workload)
	}
	e.mustMay(token, false, onVariable(acl.Read, "default", "nomad/jobs/shop/web/side"), onVariable(acl.Write, "default", "nomad/jobs/shop"))
	e.mustMay(e.signAs(e.key, shopNode, e.claims(shopNode, func(m map[string]any) { m["iss"] = nodekey.Issuer("", shopNode) })), true, own)
}

// TestForgedOfflineIdentities: whoever has the key of an edge gets no token accepted but for what the hubs have placed there,
// with what its job says.
func TestForgedOfflineIdentities(t *testing.T) {
	e := newEdges(t)
	own := func(change func(map[string]any)) string {
		return e.signAs(e.key, shopNode, e.claims(shopNode, change))
	}
	set := func(key string, value any) string { return own(func(m map[string]any) { m[key] = value }) }
	good := own(nil)
	parts := strings.Split(good, ".")
	header := map[string]any{"alg": "ES256", "kid": nodekey.ID(shopNode, e.key.Public())}
	for name, tc := range map[string]struct{ token, says string }{
		"another node's allocation":     {e.signAs(e.other, otherNode, e.claims(otherNode, nil)), "is on node " + string(shopNode)},
		"that, in the name of its node": {e.signAs(e.other, otherNode, e.claims(shopNode, nil)), "its issuer is"},
		"with the name of its node":     {e.signAs(e.other, shopNode, e.claims(shopNode, nil)), "is not the one of node " + string(shopNode)},
		"with the id of its key":        {part(header) + "." + parts[1] + "." + strings.Split(e.signAs(e.other, shopNode, e.claims(shopNode, nil)), ".")[2], "signature is not of the key"},
		"another issuer, that of hubs":  {set("iss", issuer), "its issuer is"},
		"without an issuer":             {own(func(m map[string]any) { delete(m, "iss") }), "its issuer is"},
		"of another node":               {set("skerry_node_id", otherNode), "does not say that node " + string(shopNode)},
		"as if a hub had signed it":     {own(func(m map[string]any) { delete(m, "skerry_offline") }), "does not say"},
		"a task that may not":           {own(func(m map[string]any) { m["nomad_task"], m["sub"] = "side", "global:default:shop:web:side:default" }), "no identity of task"},
		"an identity that may not":      {set("sub", "global:default:shop:web:main:long"), "no identity of task"},
		"an identity that is not given": {set("sub", "global:default:shop:web:main:hidden"), "no identity of task"},
		"another subject":               {set("sub", "global:default:till:web:main:default"), "no identity of task"},
		"another identity's audience":   {set("sub", "global:default:shop:web:main:vault"), "audience is not that of identity vault"},
		"another audience":              {set("aud", "vault.io"), "audience is not nomadproject.io"},
		"two audiences":                 {set("aud", []string{"nomadproject.io", "vault.io"}), "audience is not that of identity default"},
		"a day":                         {set("exp", e.now.Unix()+86400), "it lasts longer"},
		"for ever":                      {own(func(m map[string]any) { delete(m, "exp") }), "it lasts longer"},
		"ahead of time":                 {own(func(m map[string]any) { m["iat"] = e.now.Unix() + 3600; m["exp"] = e.now.Unix() + 7200 }), "it lasts longer"},
		"not yet":                       {own(func(m map[string]any) { m["iat"], m["nbf"] = e.now.Unix()+61, e.now.Unix()+61 }), "not valid before"},
		"expired": {own(func(m map[string]any) {
			m["iat"], m["nbf"], m["exp"] = e.now.Unix()-3600, e.now.Unix()-3600, e.now.Unix()
		}), "it expired"},
		"another job":                     {set("nomad_job_id", "till"), "another job"},
		"no such allocation":              {set("nomad_allocation_id", "none"), "no allocation none"},
		"no algorithm":                    {part(map[string]any{"alg": "none", "kid": header["kid"]}) + "." + parts[1] + ".", "not signed with"},
		"the algorithm of hubs":           {part(map[string]any{"alg": "RS256", "kid": header["kid"]}) + "." + parts[1] + "." + parts[2], "signature is not of the key"},
		"a hub's key for an edge":         {e.forge(map[string]any{"alg": "RS256", "kid": header["kid"]}, e.claims(shopNode, nil)), "signature is not of the key"},
		"the key id of a hub":             {part(map[string]any{"alg": "ES256", "kid": "k1"}) + "." + parts[1] + "." + parts[2], "signature is not of the key"},
		"a key id without a node":         {part(map[string]any{"alg": "ES256", "kid": "node//x"}) + "." + parts[1] + "." + parts[2], "is unknown"},
		"an unknown node":                 {e.signAs(e.key, "33333333-3333-4333-8333-333333333333", e.claims(shopNode, nil)), "node that is unknown"},
		"a public key as a shared secret": {part(map[string]any{"alg": "HS256", "kid": header["kid"]}) + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString([]byte(e.key.Public())), "not signed with"},
	} {
		actor, err := e.Resolve(t.Context(), tc.token)
		if fleet.CodeOf(err) != fleet.CodeForbidden || !strings.Contains(fmt.Sprint(err), tc.says) {
			t.Errorf("%s: %+v, %v, not %q", name, actor, err, tc.says)
		}
	}
	e.mustMay(good, true)
}

// TestOfflineIdentityEnds: a token of an edge that was accepted is refused at once when its node is revoked or removed, has
// another key, or claims another node's; and when its allocation has to stop.
func TestOfflineIdentityEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		says string
		end  func(e *edges)
	}{
		"revoked":           {"is revoked", func(e *edges) { e.mustApply(state.NodeRevoke{NodeID: shopNode, EvalSeed: "s", Now: 7}) }},
		"another key":       {"was removed", func(e *edges) { e.describe(shopNode, mustNodeKey(t).Public()) }},
		"another's key":     {"was removed", func(e *edges) { e.describe(shopNode, e.other.Public()) }},
		"no key":            {"was removed", func(e *edges) { e.describe(shopNode, "") }},
		"an unreadable key": {"was removed", func(e *edges) { e.describe(shopNode, "AAAA") }},
		"expired":           {"it expired", func(e *edges) { e.now = e.now.Add(time.Hour) }},
		"stopped": {"has ended", func(e *edges) {
			a := *e.alloc()
			a.DesiredStatus = fleet.DesiredStop
			e.mustApply(state.Plan{Jobs: []*fleet.Job{a.Job}, Now: 7, Result: fleet.PlanResult{NodeUpdate: map[fleet.NodeID][]fleet.Alloc{shopNode: {a}}}})
		}},
	} {
		e := newEdges(t)
		token := e.signAs(e.key, shopNode, e.claims(shopNode, nil))
		e.mustMay(token, true)
		tc.end(e)
		actor, err := e.Resolve(t.Context(), token)
		if fleet.CodeOf(err) != fleet.CodeForbidden || !strings.Contains(err.Error(), tc.says) || actor == nil || !actor.ACL.AllowsNothing() {
			t.Errorf("%s: %+v, %v, not %q", name, actor, err, tc.says)
		}
	}
	e := newEdges(t)
	e.describe(otherNode, e.key.Public()) // a node that tells the key of another one
	e.mustMay(e.signAs(e.key, shopNode, e.claims(shopNode, nil)), true)
	if _, err := e.Resolve(t.Context(), e.signAs(e.key, otherNode, e.claims(otherNode, nil))); err == nil || !strings.Contains(err.Error(), "is on node") {
		t.Errorf("in the name of the node that copied the key: %v", err)
	}
}
