package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/access"
	hubapi "skerry/hub/api"
	"skerry/hub/state"
)

// listEndpoint is a list endpoint: its route, how the lists test asks for it, what its items are
// known by, in the answer and for filters, and what makes the list another one.
type listEndpoint struct {
	route, path string
	known       string
	change      func(*listFixture)
}

// listEndpoints are all that answer with a list that grows with the fleet.
var listEndpoints = []listEndpoint{
	{"/v1/jobs", "/v1/jobs", "ID", (*listFixture).addJob},
	{"/v1/jobs/statuses", "/v1/jobs/statuses", "ID", (*listFixture).addJob},
	{"/v1/job/{id}/allocations", "/v1/job/j0/allocations", "ID", (*listFixture).addRunningAlloc},
	{"/v1/job/{id}/evaluations", "/v1/job/j0/evaluations", "ID", (*listFixture).addEvaluation},
	{"/v1/job/{id}/deployments", "/v1/job/j0/deployments", "ID", (*listFixture).addDeployment},
	{"/v1/job/{id}/prefetch", "/v1/job/j0/prefetch", "ID", (*listFixture).addPrefetch},
	{"/v1/job/{id}/services", "/v1/job/j0/services", "ID", (*listFixture).addRunningAlloc},
	{"/v1/allocations", "/v1/allocations", "ID", (*listFixture).addRunningAlloc},
	{"/v1/fleet/held", "/v1/fleet/held", "ID", (*listFixture).releaseAlloc},
	{"/v1/allocation/{id}/services", "/v1/allocation/FIRST/services", "ID", (*listFixture).moreOfFirst},
	{"/v1/evaluations", "/v1/evaluations", "ID", (*listFixture).addEvaluation},
	{"/v1/evaluation/{id}/allocations", "/v1/evaluation/EVALUATION/allocations", "ID", (*listFixture).addRunningAlloc},
	{"/v1/deployments", "/v1/deployments", "ID", (*listFixture).addDeployment},
	{"/v1/deployment/allocations/{id}", "/v1/deployment/allocations/DEPLOYMENT", "ID", (*listFixture).addRunningAlloc},
	{"/v1/nodes", "/v1/nodes", "ID", (*listFixture).addNode},
	{"/v1/node/{id}/allocations", "/v1/node/" + string(nodeID) + "/allocations", "ID", (*listFixture).addRunningAlloc},
	{"/v1/node/pools", "/v1/node/pools", "Name", (*listFixture).addNodePool},
	{"/v1/node/revocations", "/v1/node/revocations", "NodeID", (*listFixture).addRevocation},
	{"/v1/node/pool/{name}/nodes", "/v1/node/pool/default/nodes", "ID", (*listFixture).addNode},
	{"/v1/node/pool/{name}/jobs", "/v1/node/pool/default/jobs", "ID", (*listFixture).addJob},
	{"/v1/join/tokens", "/v1/join/tokens", "ID", (*listFixture).addJoinToken},
	{"/v1/volumes", "/v1/volumes", "ID", (*listFixture).addVolume},
	{"/v1/namespaces", "/v1/namespaces", "Name", (*listFixture).addNamespace},
	{"/v1/vars", "/v1/vars", "Path", (*listFixture).addVariable},
	{"/v1/operator/keyring/keys", "/v1/operator/keyring/keys", "KeyID", (*listFixture).addRootKey},
	{"/v1/acl/policies", "/v1/acl/policies", "Name", (*listFixture).addACLPolicy},
	{"/v1/acl/tokens", "/v1/acl/tokens", "AccessorID", (*listFixture).addACLToken},
	{"/v1/acl/roles", "/v1/acl/roles", "ID", (*listFixture).addACLRole},
	{"/v1/acl/auth-methods", "/v1/acl/auth-methods", "Name", (*listFixture).addAuthMethod},
	{"/v1/acl/binding-rules", "/v1/acl/binding-rules", "ID", (*listFixture).addBindingRule},
	{"/v1/acl/site-codes", "/v1/acl/site-codes", "ID", (*listFixture).addSiteCode},
	{"/v1/scaling/policies", "/v1/scaling/policies", "ID", (*listFixture).addJob},
	{"/v1/services", "/v1/services", "ServiceName", (*listFixture).addRunningAlloc},
	{"/v1/service/{name}", "/v1/service/s0", "ID", (*listFixture).addRunningAlloc},
}

// noLists are the other GETs. They answer with one object, with a stream, or with a list that is bounded by the number
// of hubs, by the versions and rows that are kept, or by one job.
var noLists = []string{
	"/.well-known/jwks.json", "/.well-known/hub-jwks.json", "/.well-known/openid-configuration",
	"/v1/node/{id}/.well-known/jwks.json", "/v1/node/{id}/.well-known/openid-configuration",
	"/v1/acl/why", "/v1/acl/policy/self", "/v1/acl/policy/{name}", "/v1/acl/token/self", "/v1/acl/token/{name}", "/v1/acl/role/{name}", "/v1/acl/role/name/{name}", "/v1/acl/auth-method/{name}", "/v1/acl/binding-rule/{name}",
	"/v1/agent/health", "/v1/client/gc", "/v1/client/allocation/{id}/gc", "/v1/agent/host", "/v1/agent/members", "/v1/agent/servers", "/v1/operator/autopilot/configuration", "/v1/agent/monitor", "/v1/agent/self", "/v1/allocation/{id}", "/v1/allocation/{id}/history",
	"/v1/client/allocation/{id}/checks", "/v1/client/allocation/{id}/exec", "/v1/client/allocation/{id}/stats", "/v1/client/stats",
	"/v1/client/fs/cat/{id}", "/v1/client/fs/logs/{id}", "/v1/client/fs/ls/{id}", "/v1/client/fs/readat/{id}", "/v1/client/fs/stat/{id}",
	"/v1/client/fs/stream/{id}", "/v1/deployment/progress/{id}", "/v1/deployment/{id}", "/v1/evaluation/{id}", "/v1/evaluations/count",
	"/v1/event/stream", "/v1/fleet/status", "/v1/job/{id}", "/v1/job/{id}/action", "/v1/job/{id}/actions", "/v1/job/{id}/deployment", "/v1/job/{id}/scale",
	"/v1/job/{id}/submission", "/v1/job/{id}/summary", "/v1/job/{id}/versions", "/v1/join/token/{id}", "/v1/metrics", "/v1/namespace/{name}", "/v1/node/{id}",
	"/v1/node/{id}/history", "/v1/node/{id}/exposure", "/v1/node/pool/{name}", "/v1/operator/audit", "/v1/operator/autopilot/health", "/v1/operator/ca", "/v1/operator/state-key", "/v1/operator/raft/configuration", "/v1/operator/scheduler/configuration",
	"/v1/operator/snapshot", "/v1/regions", "/v1/scaling/policy/{id}", "/v1/status/leader", "/v1/status/peers", "/v1/var/{path...}", "/v1/volume/host/{id}",
}

// TestEveryListIsKnown fails for an endpoint that is neither in listEndpoints, which the other tests try, nor in
// noLists.
func TestEveryListIsKnown(t *testing.T) {
	var routes []string
	for _, e := range newListFixture(t).api.Endpoints() {
		if slices.Contains(e.Methods, http.MethodGet) {
			routes = append(routes, e.Path)
		}
	}
	if len(routes) < 60 {
		t.Fatal(routes)
	}
	var known []string
	for _, l := range listEndpoints {
		known = append(known, l.route)
	}
	known = append(known, noLists...)
	for _, r := range routes {
		if !slices.Contains(known, r) {
			t.Errorf("GET %s is new: is it a list? Then it pages, filters and blocks, and belongs to listEndpoints", r)
		}
	}
	for _, r := range known {
		if !slices.Contains(routes, r) {
			t.Errorf("there is no GET %s", r)
		}
	}
}

// TestEveryList asks each list for its pages, both ways, for a part of it by filter and by
// prefix, and waits for a change of it.
func TestEveryList(t *testing.T) {
	for _, l := range listEndpoints {
		t.Run(l.route, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newListFixture(t).checkListOptions(l) })
		})
	}
}

// listFixture is a hub with several of everything.
type listFixture struct {
	t           *testing.T
	hub         *fakeHub
	api         *hubapi.API
	n           int // things made
	rows        fleet.Seq
	allocs      []fleet.AllocID
	released    int // of allocs, which somebody on site started again
	eval0       fleet.EvalID
	deployment0 fleet.DeploymentID
}

func newListFixture(t *testing.T) *listFixture {
	h := &fakeHub{store: state.New(), leader: "hub1"}
	a, err := hubapi.New(hubapi.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Hosts: testHosts, Drivers: validate.KnownDrivers{Names: []string{"sim"}},
		Access: access.New(access.Config{State: h.store})})
	if err != nil {
		t.Fatal(err)
	}
	l := &listFixture{t: t, hub: h, api: a, rows: 1}
	mustApply(t, h, state.ACLBootstrap{Token: state.ACLTokenRecord{Hash: access.HashSecret(listSecret), ACLToken: fleet.ACLToken{AccessorID: "a", Type: fleet.ACLTokenManagement}}})
	mustApply(t, h, state.NodeRegister{Node: fleet.Node{
		ID: nodeID, Name: "edge1", Datacenter: "dc1", NodePool: "default", Resources: fleet.Resources{CPU: 4000, MemoryMB: 8192, DiskMB: 100000},
		Attributes: map[string]string{fleet.AttributeIPAddress: "192.0.2.7"},
	}, Now: 1})
	mustApply(t, h, state.SessionOpen{NodeID: nodeID, Session: 1, Instance: "i", BootID: "b", Hub: "hub1", EvalSeed: "s", Now: 2})
	for range 5 {
		l.addJob()
	}
	for range 5 {
		l.addEvaluation()
		l.addDeployment()
		l.addNode()
		l.addNodePool()
		l.addNamespace()
		l.addVolume()
		l.addPrefetch()
		l.addRevocation()
		l.addJoinToken()
		l.addRootKey()
		l.addVariable()
		l.addACLPolicy()
		l.addACLToken()
		l.addACLRole()
		l.addAuthMethod()
		l.addBindingRule()
		l.addSiteCode()
	}
	for e := range h.store.View().EvalsByJob(fleet.DefaultNamespace, "j0") {
		l.eval0 = e.ID
	}
	for range 5 {
		l.addRunningAlloc()
	}
	for _, id := range l.allocs {
		l.holdAlloc(id)
	}
	return l
}

func (l *listFixture) addJob() { l.registerNamedJob(fmt.Sprintf("j%d", l.n)); l.n++ }

// registerNamedJob registers a job with five services and a scaling policy.
func (l *listFixture) registerNamedJob(id string) {
	var services []string
	for i := range 5 {
		services = append(services, fmt.Sprintf(`{"Name": "s%d", "Provider": "nomad", "PortLabel": "80%d"}`, i, i))
	}
	l.mustAnswerOK(http.MethodPost, "/v1/jobs", fmt.Sprintf(`{"Job": {"ID": %q, "Name": %q, "TaskGroups": [{"Name": "site", "Count": 2, "Scaling": {"Min": 0, "Max": 9},
		"Services": [%s], "Tasks": [{"Name": "main", "Driver": "sim"}]}]}}`, id, id, strings.Join(services, ", ")))
}

func (l *listFixture) addEvaluation() {
	l.mustAnswerOK(http.MethodPost, "/v1/job/j0/evaluate", `{"JobID": "j0"}`)
}

func (l *listFixture) addDeployment() {
	j, _ := l.hub.store.View().Job(fleet.DefaultNamespace, "j0")
	l.n++
	d := &fleet.Deployment{
		ID: fleet.DeploymentID(fleet.DeriveUUID("deployment", fmt.Sprint(l.n))), Namespace: j.Namespace, JobID: j.ID, JobVersion: j.Version,
		JobCreateIndex: j.CreateIndex, Status: fleet.DeploymentRunning, TaskGroups: map[string]fleet.DeploymentState{"site": {DesiredTotal: 2}},
	}
	if l.deployment0 == "" {
		l.deployment0 = d.ID
	}
	mustApply(l.t, l.hub, state.Plan{NewDeployment: d, Now: 3})
}

func (l *listFixture) addNode() {
	l.n++
	mustApply(l.t, l.hub, state.NodeRegister{Node: fleet.Node{
		ID: fleet.NodeID(fleet.DeriveUUID("node", fmt.Sprint(l.n))), Name: fmt.Sprintf("edge%d", l.n), Datacenter: "dc1", NodePool: "default",
	}, Now: 1})
}

// addRevocation expels an edge that was purged before.
func (l *listFixture) addRevocation() {
	l.n++
	id := fleet.DeriveUUID("revoked", fmt.Sprint(l.n))
	mustApply(l.t, l.hub, state.Certificate{Serial: fmt.Sprint(l.n), Subject: "edge:" + id})
	mustApply(l.t, l.hub, state.NodeRevoke{NodeID: fleet.NodeID(id), EvalSeed: "s", Now: 3})
}

func (l *listFixture) addJoinToken() {
	l.n++
	mustApply(l.t, l.hub, state.Token{Token: state.JoinToken{ID: fmt.Sprintf("token%03d", l.n), Hash: []byte{1}, Roles: []string{"edge"}}})
}

func (l *listFixture) addRootKey() {
	l.mustAnswerOK(http.MethodPut, "/v1/operator/keyring/rotate", "")
}

func (l *listFixture) addVariable() {
	l.n++
	l.mustAnswerOK(http.MethodPut, fmt.Sprintf("/v1/var/v%d", l.n), `{"Items": {"k": "v"}}`)
}

// listSecret is the secret of the token that the lists are asked for with.
const listSecret = "secret of the lists"

func (l *listFixture) addACLPolicy() {
	l.n++
	mustApply(l.t, l.hub, state.ACLPolicyStore{Policy: fleet.ACLPolicy{Name: fmt.Sprintf("policy%d", l.n)}})
}

func (l *listFixture) addACLToken() {
	l.n++
	accessor := fmt.Sprintf("accessor%03d", l.n)
	mustApply(l.t, l.hub, state.ACLTokenStore{Token: state.ACLTokenRecord{Hash: []byte(accessor), ACLToken: fleet.ACLToken{AccessorID: accessor, Type: fleet.ACLTokenManagement}}})
}

func (l *listFixture) addACLRole() {
	l.n++
	id := fmt.Sprintf("role%03d", l.n)
	mustApply(l.t, l.hub, state.ACLRoleStore{Role: fleet.ACLRole{ID: id, Name: id}})
}

func (l *listFixture) addAuthMethod() {
	l.n++
	mustApply(l.t, l.hub, state.ACLAuthMethodStore{Method: state.ACLAuthMethodRecord{ACLAuthMethod: fleet.ACLAuthMethod{
		Name: fmt.Sprintf("method%03d", l.n), Type: fleet.ACLAuthMethodJWT, TokenLocality: "global", MaxTokenTTL: fleet.TextDuration(time.Hour),
		Config: &fleet.ACLAuthMethodConfig{JWKSURL: "https://sso.example.com/keys"},
	}}})
}

func (l *listFixture) addBindingRule() {
	l.n++
	for method := range l.hub.store.View().ACLAuthMethods() {
		mustApply(l.t, l.hub, state.ACLBindingRuleStore{Rule: fleet.ACLBindingRule{
			ID: fmt.Sprintf("rule%03d", l.n), AuthMethod: method.Name, BindType: fleet.ACLBindManagement,
		}})
		break
	}
}

func (l *listFixture) addSiteCode() {
	l.n++
	mustApply(l.t, l.hub, state.SiteCodeStore{Code: state.SiteCodeRecord{SiteCode: fleet.SiteCode{
		ID: fmt.Sprintf("code%03d", l.n), Name: "Ann", Site: "*", NodePool: "*", ExpirationTime: time.Unix(4_102_444_800, 0).UTC(),
	}}})
}

func (l *listFixture) addNodePool() {
	l.n++
	mustApply(l.t, l.hub, state.Pool{Pool: fleet.Pool{Name: fmt.Sprintf("pool%d", l.n)}})
}

func (l *listFixture) addVolume() {
	l.n++
	mustApply(l.t, l.hub, state.VolumeStore{Volume: fleet.Volume{
		ID: fleet.VolumeID(fleet.DeriveUUID("volume", fmt.Sprint(l.n))), Name: fmt.Sprintf("data%d", l.n), Namespace: "default", NodeID: nodeID, PluginID: fleet.VolumePluginMkdir,
		RequestedCapabilities: []fleet.VolumeCapability{{AttachmentMode: fleet.AttachFileSystem, AccessMode: fleet.AccessWriter}},
	}})
}

// addPrefetch adds a prefetch of j0 on one more node.
func (l *listFixture) addPrefetch() {
	l.addNode()
	node := fleet.NodeID(fleet.DeriveUUID("node", fmt.Sprint(l.n)))
	mustApply(l.t, l.hub, state.PrefetchStore{Namespace: fleet.DefaultNamespace, JobID: "j0", Nodes: []fleet.NodeID{node}})
}

func (l *listFixture) addNamespace() {
	l.n++
	mustApply(l.t, l.hub, state.NamespaceStore{Namespace: fleet.Namespace{Name: fmt.Sprintf("team%d", l.n)}})
}

// addRunningAlloc places one more allocation of j0 that runs, as the first evaluation and the first
// deployment wanted it.
func (l *listFixture) addRunningAlloc() {
	j, _ := l.hub.store.View().Job(fleet.DefaultNamespace, "j0")
	l.n++
	a := fleet.Alloc{
		ID: fleet.AllocID(fleet.DeriveUUID("alloc", fmt.Sprint(l.n))), Namespace: j.Namespace, Name: fmt.Sprintf("j0.site[%d]", l.n), NodeID: nodeID,
		EvalID: l.eval0, DeploymentID: l.deployment0, JobID: j.ID, Job: j, JobVersion: j.Version, JobHash: j.SpecHash, TaskGroup: "site",
		DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending,
	}
	mustApply(l.t, l.hub, state.Plan{
		Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{nodeID: {a}}}, Jobs: []*fleet.Job{j}, Now: 3,
	})
	mustRun(l.t, l.hub, l.rows, a.ID)
	l.rows++
	l.allocs = append(l.allocs, a.ID)
}

// holdAlloc has somebody on site stop an allocation.
func (l *listFixture) holdAlloc(id fleet.AllocID) {
	mustReport(l.t, l.hub, l.rows, fleet.Transition{Kind: fleet.TransitionOperator, Alloc: id, Hold: &fleet.Hold{By: "anna", Reason: "smoke"}})
	l.rows++
}

// releaseAlloc has somebody on site start an allocation that is held.
func (l *listFixture) releaseAlloc() {
	mustReport(l.t, l.hub, l.rows, fleet.Transition{Kind: fleet.TransitionOperator, Alloc: l.allocs[l.released], Released: true})
	l.rows++
	l.released++
}

// moreOfFirst has the edge say something of the first allocation: it ends.
func (l *listFixture) moreOfFirst() {
	mustReport(l.t, l.hub, l.rows, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: l.allocs[0], ClientStatus: fleet.ClientComplete})
	l.rows++
}

// sendRequest sends a request; params are appended to the path.
func (l *listFixture) sendRequest(method, path, body string, params url.Values) *httptest.ResponseRecorder {
	path = strings.NewReplacer("FIRST", string(l.firstAllocID()), "DEPLOYMENT", string(l.deployment0), "EVALUATION", string(l.eval0)).Replace(path)
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(l.t.Context(), method, path+"?"+params.Encode(), strings.NewReader(body))
	r.Header.Set("X-Nomad-Token", listSecret)
	l.api.ServeHTTP(w, r)
	return w
}

func (l *listFixture) firstAllocID() fleet.AllocID {
	if len(l.allocs) == 0 {
		return ""
	}
	return l.allocs[0]
}

func (l *listFixture) mustAnswerOK(method, path, body string) {
	l.t.Helper()
	if w := l.sendRequest(method, path, body, nil); w.Code != http.StatusOK {
		l.t.Fatalf("%s %s answered %d %s", method, path, w.Code, w.Body)
	}
}

// fetchItems asks for a list, and returns what its items are known by.
func (l *listFixture) fetchItems(e listEndpoint, params url.Values) (known []string, h http.Header) {
	l.t.Helper()
	w := l.sendRequest(http.MethodGet, e.path, "", params)
	if w.Code != http.StatusOK {
		l.t.Fatalf("%s?%s answered %d %s", e.path, params.Encode(), w.Code, w.Body)
	}
	var items []map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &items); err != nil || items == nil {
		l.t.Fatalf("%s?%s is no list: %s, %v", e.path, params.Encode(), w.Body, err)
	}
	for _, it := range items {
		if services, ok := it["Services"].([]any); ok && e.route == "/v1/services" {
			for _, s := range services {
				known = append(known, s.(map[string]any)["ServiceName"].(string))
			}
			continue
		}
		known = append(known, it[e.known].(string))
	}
	return known, w.Header()
}

// walkPages reads all pages of a list, two items each.
func (l *listFixture) walkPages(e listEndpoint, params url.Values) (all []string) {
	l.t.Helper()
	params.Set("per_page", "2")
	for range 50 {
		some, h := l.fetchItems(e, params)
		next := h.Get(api.NextTokenHeader)
		if len(some) > 2 || len(some) < 2 && next != "" {
			l.t.Fatalf("a page of %d items, and the next one is %q", len(some), next)
		}
		if all = append(all, some...); next == "" {
			return all
		}
		params.Set("next_token", next)
	}
	l.t.Fatal("the pages do not end")
	return nil
}

func (l *listFixture) checkListOptions(e listEndpoint) {
	t := l.t
	all, h := l.fetchItems(e, nil)
	if len(all) < 5 {
		t.Fatalf("only %d items: %v", len(all), all)
	}
	turned := slices.Clone(all)
	slices.Reverse(turned)
	without := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return id == all[1] })
	filter := fmt.Sprintf("%s != %q", e.known, all[1])
	begins := all[1][:len(all[1])-1]
	var prefixed []string
	for _, id := range all {
		if strings.HasPrefix(id, begins) {
			prefixed = append(prefixed, id)
		}
	}
	slices.Sort(prefixed)
	for _, tc := range []struct {
		name   string
		params url.Values
		want   []string
	}{
		{"all pages", url.Values{}, all},
		{"the other way round", url.Values{"reverse": {"true"}}, turned},
		{"filtered", url.Values{"filter": {filter}}, without},
		{"by a prefix", url.Values{"prefix": {begins}}, prefixed},
		{"by a prefix that nothing has", url.Values{"prefix": {"~"}}, nil},
	} {
		got, _ := l.fetchItems(e, tc.params)
		pages := l.walkPages(e, tc.params)
		if tc.params.Has("prefix") { // in which order what begins with it comes is the list's
			slices.Sort(got)
			slices.Sort(pages)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s, at once: %v\nwant %v", tc.name, got, tc.want)
		}
		if !slices.Equal(pages, tc.want) {
			t.Errorf("%s, page by page: %v\nwant %v", tc.name, pages, tc.want)
		}
	}
	_, none := l.fetchItems(e, url.Values{"prefix": {"~"}})
	if got, want := none.Get("X-Nomad-Index"), h.Get("X-Nomad-Index"); got != want || got == "0" {
		t.Errorf("an empty list has index %s, and with all in it %s", got, want)
	}
	l.checkRefusals(e)
	l.checkBlocking(e, h.Get("X-Nomad-Index"), all)
}

// checkRefusals has the list asked for nonsense.
func (l *listFixture) checkRefusals(e listEndpoint) {
	_, h := l.fetchItems(e, url.Values{"per_page": {"1"}})
	token := h.Get(api.NextTokenHeader)
	for _, tc := range []struct {
		params url.Values
		says   string
	}{
		{url.Values{"per_page": {"-1"}}, "per_page"},
		{url.Values{"reverse": {"perhaps"}}, "reverse"},
		{url.Values{"index": {"x"}}, "index"},
		{url.Values{"wait": {"x"}}, "wait"},
		{url.Values{"next_token": {"x"}}, "next_token"},
		{url.Values{"filter": {e.known + ` == `}}, "filter"},
		{url.Values{"filter": {`Nonsense == "x"`}}, "Nonsense"},
		{url.Values{"filter": {e.known + ` != "x"`}, "next_token": {token}}, "another query"},
		{url.Values{"prefix": {"a"}, "next_token": {token}}, "another query"},
		{url.Values{"reverse": {"true"}, "next_token": {token}}, "another query"},
		{url.Values{"namespace": {"*"}, "next_token": {token}}, "another query"},
	} {
		if e.route == "/v1/job/{id}/services" && tc.params.Has("namespace") {
			continue // there the job itself is not found
		}
		if w := l.sendRequest(http.MethodGet, e.path, "", tc.params); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), tc.says) {
			l.t.Errorf("?%s answered %d %s, want 400 with %q", tc.params.Encode(), w.Code, w.Body, tc.says)
		}
	}
}

// checkBlocking waits for a change of the list, which does not come, and then does.
func (l *listFixture) checkBlocking(e listEndpoint, index string, all []string) {
	t, before := l.t, time.Now()
	got, h := l.fetchItems(e, url.Values{"index": {index}, "wait": {"10s"}})
	if waited := time.Since(before); waited < 10*time.Second || waited > 11*time.Second || h.Get("X-Nomad-Index") != index || !slices.Equal(got, all) {
		t.Errorf("nothing changed, and the answer came after %s with index %s, which was %s", waited, h.Get("X-Nomad-Index"), index)
	}
	type answer struct {
		known []string
		h     http.Header
	}
	answered := make(chan answer, 1)
	go func() {
		known, h := l.fetchItems(e, url.Values{"index": {index}, "wait": {"10s"}})
		answered <- answer{known, h}
	}()
	synctest.Wait()
	select {
	case a := <-answered:
		t.Fatalf("answered with %v before anything changed", a.known)
	default:
	}
	before = time.Now()
	e.change(l)
	a := <-answered
	if waited := time.Since(before); waited > 0 || a.h.Get("X-Nomad-Index") == index {
		t.Errorf("a change was answered %s after it, with index %s, which was %s", waited, a.h.Get("X-Nomad-Index"), index)
	}
	if now, _ := l.fetchItems(e, nil); e.route != "/v1/services" && slices.Equal(now, all) || !slices.Equal(now, a.known) {
		t.Errorf("after the change the answer is %v, and was %v: the list is %v", a.known, all, now)
	}
}
