package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/access"
	hubapi "skerry/hub/api"
	"skerry/hub/state"
)

// tenants is a hub that two teams share. Everything of the namespace blue has blueMark in its name or in its answer.
type tenants struct {
	*accessFixture
	job                   *fleet.Job
	alloc                 fleet.AllocID
	eval                  fleet.EvalID
	deployment            fleet.DeploymentID
	volume, secretNode    string
	child                 fleet.JobID // a dispatch of blue, whose payload and meta have blueMark
	entryBeforeEverything fleet.Index
	values                *strings.Replacer
}

const (
	blueMark = "bluesecret"
	// tenantPolicy is what a team usually has.
	tenantPolicy = `namespace "red" { policy = "write"  capabilities = ["alloc-exec"] }
		namespace "red" { variables { path "team/*" { capabilities = ["read", "write", "destroy"] } } }
		host_volume "red-*" { policy = "write" }
		node_pool "reserved" { policy = "deny" }`
)

// jobText returns the JSON of a job with more fields of its group.
func jobText(namespace, id, pool, group string) string {
	return fmt.Sprintf(`{"Job": {"ID": %q, "Name": %q, "Namespace": %q, "NodePool": %q, "Meta": {"owner": %q}, "TaskGroups": [{"Name": "site", "Count": 1, "Scaling": {"Min": 0, "Max": 9},
		"Services": [{"Name": %q, "Provider": "nomad", "PortLabel": "8080"}]%s, "Tasks": [{"Name": "main", "Driver": "sim"}]}]}}`,
		id, id, namespace, pool, id, id, group)
}

func newTenants(t *testing.T) *tenants {
	f := newAccessFixture(t)
	storeToken(t, f.hub, "red", tenantPolicy)
	for secret, rules := range map[string]string{
		"reader":  `namespace "red" { policy = "read" }`,
		"lister":  `namespace "red" { capabilities = ["list-jobs"] }`,
		"logs":    `namespace "red" { capabilities = ["read-logs"] }`,
		"glob":    `namespace "r*" { policy = "write" }`,
		"north":   `site "north-*" { policy = "write" }`,
		"nodes":   `node { policy = "read" }`,
		"op":      `operator { policy = "write" }`,
		"agent":   `agent { policy = "read" }`,
		"nothing": `quota { policy = "read" }`,
	} {
		storeToken(t, f.hub, secret, rules)
	}
	w := &tenants{accessFixture: f, entryBeforeEverything: f.hub.index}
	for _, name := range []string{"red", "blue"} {
		mustApply(t, f.hub, state.NamespaceStore{Namespace: fleet.Namespace{Name: name, Description: map[string]string{"blue": blueMark}[name]}})
	}
	mustApply(t, f.hub, state.Pool{Pool: fleet.Pool{Name: "reserved", Description: blueMark}})
	w.secretNode = fleet.DeriveUUID("node", "south")
	mustApply(t, f.hub, state.NodeRegister{Node: fleet.Node{ID: fleet.NodeID(w.secretNode), Name: "south-1", Site: "south-1", Datacenter: "dc1", NodePool: "default", Meta: map[string]string{"owner": blueMark}}, Now: 1})
	w.storeBlueACL()
	w.storeVariable("blue", "team/"+blueMark)
	w.storeVariable("red", "team/own")
	w.registerJobOf("red", "redjob", `, "Volumes": {"v": {"Type": "host", "Source": "blue-data"}}`)
	w.registerJobOf("red", "redjob", "")
	w.registerJobOf("blue", blueMark+"job", "")
	w.placeBlue()
	w.dispatchBatch()
	w.values = strings.NewReplacer("ALLOC", string(w.alloc), "EVAL", string(w.eval), "DEPLOY", string(w.deployment), "JOB", string(w.job.ID), "CHILD", string(w.child),
		"VOLUME", w.volume, "SOUTH", w.secretNode, "ENTRY", fmt.Sprint(w.entryBeforeEverything+1), "NODE", string(nodeID), "BLUE", blueMark)
	return w
}

// storeBlueACL stores one object of each kind of access control, with blueMark in its name.
func (w *tenants) storeBlueACL() {
	w.t.Helper()
	const policy, method = blueMark + "policy", blueMark + "method"
	for _, c := range []state.Command{
		state.ACLPolicyStore{Policy: fleet.ACLPolicy{Name: policy, Rules: `namespace "blue" { policy = "read" }`}},
		state.ACLRoleStore{Role: fleet.ACLRole{ID: "blue", Name: blueMark + "role", Policies: []fleet.ACLRolePolicy{{Name: policy}}}},
		state.ACLTokenStore{Token: state.ACLTokenRecord{Hash: access.HashSecret("blue"), ACLToken: fleet.ACLToken{
			AccessorID: blueMark + "token", Name: blueMark, Type: fleet.ACLTokenClient, Policies: []string{policy},
		}}},
		state.ACLAuthMethodStore{Method: state.ACLAuthMethodRecord{ACLAuthMethod: fleet.ACLAuthMethod{
			Name: method, Type: fleet.ACLAuthMethodJWT, TokenLocality: "global", MaxTokenTTL: fleet.TextDuration(time.Hour),
			Config: &fleet.ACLAuthMethodConfig{JWKSURL: "https://sso.example.com/keys"},
		}}},
		state.ACLBindingRuleStore{Rule: fleet.ACLBindingRule{ID: blueMark + "rule", AuthMethod: method, BindType: fleet.ACLBindPolicy, BindName: policy}},
	} {
		mustApply(w.t, w.hub, c)
	}
}

// dispatchBatch registers parameterized jobs, of the same id in red and blue, and dispatches those of blue.
func (w *tenants) dispatchBatch() {
	w.t.Helper()
	payload, _ := json.Marshal([]byte(blueMark))
	for _, j := range []struct{ namespace, id string }{{"red", "redbatch"}, {"blue", "redbatch"}, {"blue", blueMark + "batch"}} {
		w.putUnfrozen("/v1/jobs", fmt.Sprintf(`{"Job": {"ID": %q, "Name": %q, "Namespace": %q, "Type": "batch", "ParameterizedJob": {"Payload": "optional", "MetaOptional": ["namespace"]},
			"TaskGroups": [{"Name": "g", "Tasks": [{"Name": "main", "Driver": "sim"}]}]}}`, j.id, j.id, j.namespace))
		if j.namespace == "blue" {
			w.putUnfrozen("/v1/job/"+j.id+"/dispatch?namespace=blue&idempotency_token="+blueMark,
				fmt.Sprintf(`{"Payload": %s, "Meta": {"namespace": %q}, "IdPrefixTemplate": %q}`, payload, blueMark, blueMark))
		}
	}
	for j := range w.hub.store.View().Jobs("blue", "redbatch/") {
		w.child = j.ID
	}
}

// storeVariable stores a variable whose value has blueMark in it.
func (w *tenants) storeVariable(namespace, path string) {
	w.t.Helper()
	w.putUnfrozen("/v1/var/"+path+"?namespace="+namespace, `{"Items": {"password": "`+blueMark+`"}}`)
}

// registerJobOf registers a version of a job.
func (w *tenants) registerJobOf(namespace, id, group string) {
	w.t.Helper()
	w.putUnfrozen("/v1/jobs", jobText(namespace, id, "default", group))
}

// putUnfrozen makes a change by a hub without access control.
func (w *tenants) putUnfrozen(path, body string) {
	w.t.Helper()
	rec := httptest.NewRecorder()
	w.newUnfrozen(nil).ServeHTTP(rec, httptest.NewRequestWithContext(w.t.Context(), http.MethodPut, path, strings.NewReader(body)))
	if rec.Code != http.StatusOK {
		w.t.Fatal(rec.Body)
	}
}

// newUnfrozen makes an API whose changes are applied. Without a resolver, it has no access control.
func (w *tenants) newUnfrozen(resolver *access.Resolver) *hubapi.API {
	w.t.Helper()
	a, err := hubapi.New(hubapi.Config{
		State: w.hub.store, Cluster: w.hub, Edges: w.hub, Jobs: w.hub, Garbage: w.hub, Events: w.hub, Secrets: secretsOf(w.hub), Locks: locksOf(w.hub), Hosts: testHosts,
		Drivers: validate.KnownDrivers{Names: []string{"sim"}}, Access: resolver, Logins: loginsOf(w.hub),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// placeBlue gives the job of blue an allocation, a deployment and a volume.
func (w *tenants) placeBlue() {
	w.t.Helper()
	v := w.hub.store.View()
	w.job, _ = v.Job("blue", blueMark+"job")
	for e := range v.EvalsByJob("blue", w.job.ID) {
		w.eval = e.ID
	}
	w.deployment = fleet.DeploymentID(fleet.DeriveUUID("deployment", "blue"))
	w.alloc = fleet.AllocID(fleet.DeriveUUID("alloc", "blue"))
	j := w.job
	mustApply(w.t, w.hub, state.Plan{NewDeployment: &fleet.Deployment{
		ID: w.deployment, Namespace: "blue", JobID: j.ID, JobVersion: j.Version, JobCreateIndex: j.CreateIndex, Status: fleet.DeploymentRunning,
		TaskGroups: map[string]fleet.DeploymentState{"site": {DesiredTotal: 1}},
	}, Now: 3})
	a := fleet.Alloc{
		ID: w.alloc, Namespace: "blue", Name: string(j.ID) + ".site[0]", NodeID: nodeID, EvalID: w.eval, DeploymentID: w.deployment, JobID: j.ID, Job: j,
		JobVersion: j.Version, JobHash: j.SpecHash, TaskGroup: "site", DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending,
	}
	mustApply(w.t, w.hub, state.Plan{Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{nodeID: {a}}}, Jobs: []*fleet.Job{j}, Now: 3})
	mustRun(w.t, w.hub, w.rows, a.ID)
	w.rows++
	w.volume = fleet.DeriveUUID("volume", "blue")
	mustApply(w.t, w.hub, state.VolumeStore{Volume: fleet.Volume{
		ID: fleet.VolumeID(w.volume), Name: blueMark + "volume", Namespace: "blue", NodeID: nodeID, PluginID: fleet.VolumePluginMkdir,
		RequestedCapabilities: []fleet.VolumeCapability{{AttachmentMode: fleet.AttachFileSystem, AccessMode: fleet.AccessWriter}},
	}})
}

// TestTenants tries each attempt: none changes or learns anything of another tenant's.
func TestTenants(t *testing.T) { synctest.Test(t, checkTenants) }

func checkTenants(t *testing.T) {
	w := newTenants(t)
	if len(attempts) != 142 {
		t.Errorf("%d attempts, and docs/security.md names 142", len(attempts))
	}
	before := w.hub.store.View().Index()
	for i, a := range attempts {
		if rec, learned := w.try(a); rec.Code != a.status || learned {
			t.Errorf("attempt %d: %q %s %s: %d %.300s, want %d", i+1, a.secret, a.method, a.path, rec.Code, rec.Body, a.status)
		}
	}
	if after := w.hub.store.View().Index(); after != before {
		t.Errorf("the state has changed: entry %d, and it was %d", after, before)
	}
	// The same requests show something to those who may: each hides something.
	for _, path := range []string{"/v1/jobs?namespace=*", "/v1/allocation/ALLOC", "/v1/event/stream?namespace=*&index=ENTRY", "/v1/node/NODE/allocations",
		"/v1/event/stream?topic=ACLToken&index=ENTRY", "/v1/event/stream?topic=ACLPolicy&index=ENTRY", "/v1/event/stream?topic=ACLRole&index=ENTRY",
		"/v1/event/stream?topic=ACLAuthMethod&index=ENTRY", "/v1/event/stream?topic=ACLBindingRule&index=ENTRY", "/v1/node/SOUTH", "/v1/job/CHILD?namespace=blue"} {
		if rec := w.ask(http.MethodGet, w.values.Replace(path), "", listSecret); rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), blueMark) {
			t.Errorf("a management token asks for %s: %d %.300s", path, rec.Code, rec.Body)
		}
	}
}

// try sends an attempt. learned reports whether the answer has anything of blue.
func (w *tenants) try(a attempt) (rec *httptest.ResponseRecorder, learned bool) {
	w.t.Helper()
	path, asked := w.values.Replace(a.path), w.values.Replace(a.body)
	rec = w.ask(a.method, path, asked, a.secret)
	body := rec.Body.String()
	if strings.Contains(path+asked, blueMark) && rec.Code >= 400 { // a refusal repeats what was asked for
		body = strings.ReplaceAll(body, blueMark, "")
	}
	return rec, strings.Contains(body, blueMark) || rec.Code == http.StatusOK && strings.Contains(body, string(w.alloc))
}

// forwarded are headers by which proxies and other servers say who sent a request that they forward, and where to.
var forwarded = http.Header{
	"Forwarded": {"for=127.0.0.1;host=localhost;proto=https"}, "X-Forwarded-For": {"127.0.0.1"}, "X-Real-Ip": {"127.0.0.1"}, "X-Forwarded-User": {"hub1"},
	"X-Remote-User": {"root"}, "X-Nomad-Region": {"other"}, "X-Nomad-Forwarded": {"true"}, "X-Nomad-Namespace": {"blue"}, "X-Skerry-Hub": {"hub1"},
	"X-Skerry-Forwarded": {"hub1"}, "X-Http-Method-Override": {"GET"}, "X-Original-Url": {"/v1/status/leader"}, "X-Rewrite-Url": {"/v1/status/leader"},
}

// TestForgedForwarding tries each attempt as a request that another hub seems to have forwarded: the answers are the same.
func TestForgedForwarding(t *testing.T) { synctest.Test(t, checkForgedForwarding) }

func checkForgedForwarding(t *testing.T) {
	w := newTenants(t)
	w.headers = forwarded
	before := w.hub.store.View().Index()
	for i, a := range attempts {
		if rec, learned := w.try(a); rec.Code != a.status || learned {
			t.Errorf("attempt %d: %q %s %s: %d %.300s, want %d", i+1, a.secret, a.method, a.path, rec.Code, rec.Body, a.status)
		}
	}
	if after := w.hub.store.View().Index(); after != before {
		t.Errorf("the state has changed: entry %d, and it was %d", after, before)
	}
}

// TestTenantsChangeOnlyTheirOwn tries each attempt at a hub whose state is not frozen: those that come to the state change
// nothing outside their own namespace.
func TestTenantsChangeOnlyTheirOwn(t *testing.T) { synctest.Test(t, checkTenantsChangeOnlyTheirOwn) }

func checkTenantsChangeOnlyTheirOwn(t *testing.T) {
	w := newTenants(t)
	w.api = w.newUnfrozen(access.New(access.Config{State: w.hub.store}))
	before := w.hub.store.View()
	for i, a := range attempts {
		want := []int{a.status}
		if a.status == http.StatusInternalServerError {
			want = []int{http.StatusOK, http.StatusNotFound} // a change of red, or of nothing
		}
		if rec, learned := w.try(a); !slices.Contains(want, rec.Code) || learned {
			t.Errorf("attempt %d: %q %s %s: %d %.300s, want %d", i+1, a.secret, a.method, a.path, rec.Code, rec.Body, want)
		}
	}
	after, dispatched := w.hub.store.View(), 0
	for _, happened := range after.EventsAfter(before.Index()) {
		for _, e := range happened {
			if e.Namespace != "red" {
				t.Errorf("an attempt has changed %s %s of namespace %q", e.Topic, e.Key, e.Namespace)
			}
			if e.Job != nil {
				dispatched++
			}
		}
	}
	if dispatched == 0 {
		t.Error("no attempt has changed anything of its own: the state is frozen")
	}
	id := fleet.VolumeID(w.volume)
	was, _ := before.Volume(id)
	if now, ok := after.Volume(id); !ok || now.Deleting || now.ModifyIndex != was.ModifyIndex {
		t.Errorf("the volume of blue has changed: %+v, and it was %+v", now, was)
	}
}

// TestHiddenIsAsMissing compares the answers for objects of another tenant with those for objects that do not exist.
func TestHiddenIsAsMissing(t *testing.T) { synctest.Test(t, checkHiddenIsAsMissing) }

func checkHiddenIsAsMissing(t *testing.T) {
	w := newTenants(t)
	const none = "99999999-9999-4999-8999-999999999999"
	for _, path := range []string{
		"/v1/allocation/ALLOC", "/v1/allocation/ALLOC/history", "/v1/evaluation/EVAL", "/v1/evaluation/EVAL/allocations", "/v1/deployment/DEPLOY",
		"/v1/deployment/allocations/DEPLOY", "/v1/client/fs/logs/ALLOC?task=main", "/v1/client/fs/cat/ALLOC", "/v1/volume/host/VOLUME?namespace=*",
	} {
		hidden := w.ask(http.MethodGet, w.values.Replace(path), "", "red")
		missing := w.ask(http.MethodGet, strings.NewReplacer("ALLOC", none, "EVAL", none, "DEPLOY", none, "VOLUME", none).Replace(path), "", "red")
		id := strings.NewReplacer(string(w.alloc), none, string(w.eval), none, string(w.deployment), none, w.volume, none)
		if hidden.Code != missing.Code || id.Replace(hidden.Body.String()) != missing.Body.String() || fmt.Sprint(hidden.Header()) != fmt.Sprint(missing.Header()) {
			t.Errorf("%s: %d %s %v, and one that does not exist: %d %s %v", path, hidden.Code, hidden.Body, hidden.Header(), missing.Code, missing.Body, missing.Header())
		}
	}
}

// TestRefusalsHelp asks without a capability: the refusal names it if the token may know of the namespace.
func TestRefusalsHelp(t *testing.T) { synctest.Test(t, checkRefusalsHelp) }

func checkRefusalsHelp(t *testing.T) {
	w := newTenants(t)
	for _, tc := range []struct{ secret, path, says, rule string }{
		{"lister", "/v1/job/redjob?namespace=red", `Permission denied: this needs capability "read-job" in namespace "red"`, `namespace "red" { capabilities = ["read-job"] }`},
		{"lister", "/v1/job/redjob?namespace=blue", "Permission denied", ""},
		{"lister", "/v1/acl/tokens", "Permission denied: this needs a management token", ""},
		{"nodes", "/v1/agent/self", `Permission denied: this needs capability "read" on agent`, `agent { policy = "read" }`},
		{"", "/v1/agent/self", "Permission denied", ""},
	} {
		rec := w.ask(http.MethodGet, tc.path, "", tc.secret)
		said, hint := rec.Body.String(), rec.Header().Get("X-Skerry-Hint")
		if rec.Code != http.StatusForbidden || !strings.HasPrefix(said, tc.says) || tc.says == "Permission denied" && said != tc.says || !strings.HasSuffix(hint, tc.rule) || tc.rule == "" && hint != "" {
			t.Errorf("%q asks for %s: %d %s, hint %q", tc.secret, tc.path, rec.Code, said, hint)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/jobs?namespace=red", nil)
	r.Header.Set("Authorization", "bearer red")
	rec := httptest.NewRecorder()
	if w.api.ServeHTTP(rec, r); rec.Code != http.StatusOK {
		t.Errorf("a token as Bearer: %d %s", rec.Code, rec.Body)
	}
}

// TestRevokedWhileWaiting revokes the tokens of a blocking query and of streams.
func TestRevokedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t)
		index := fmt.Sprint(w.hub.store.View().Index())
		answers := map[string]chan *httptest.ResponseRecorder{}
		for _, path := range []string{"/v1/jobs?namespace=red&wait=1h&index=" + index, "/v1/event/stream?namespace=red&index=" + index, "/v1/agent/monitor"} {
			answered := make(chan *httptest.ResponseRecorder, 1)
			answers[path] = answered
			secret := "red"
			if path == "/v1/agent/monitor" {
				secret = "agent"
			}
			go func() {
				rec := httptest.NewRecorder()
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
				r.Header.Set("X-Nomad-Token", secret)
				w.api.ServeHTTP(rec, r)
				answered <- rec
			}()
		}
		synctest.Wait()
		began := time.Now()
		mustApply(t, w.hub, state.ACLDelete{Tokens: []string{"red"}})
		mustApply(t, w.hub, state.ACLDelete{Tokens: []string{"agent"}})
		w.registerJobOf("red", "later", "")
		for path, answered := range answers {
			rec := <-answered
			if strings.Contains(rec.Body.String(), "later") || strings.HasPrefix(path, "/v1/jobs") && rec.Code != http.StatusForbidden {
				t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
			}
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("the last of them ended %s after the tokens", waited)
		}
	})
}

// TestSeesWhatIsAllowed is the contrary: a tenant sees its own.
func TestSeesWhatIsAllowed(t *testing.T) { synctest.Test(t, checkSeesWhatIsAllowed) }

func checkSeesWhatIsAllowed(t *testing.T) {
	w := newTenants(t)
	var stubs []struct{ ID, Namespace string }
	rec := w.ask(http.MethodGet, "/v1/jobs?namespace=*", "", "red")
	if err := json.Unmarshal(rec.Body.Bytes(), &stubs); err != nil || len(stubs) != 2 || stubs[0].ID != "redbatch" || stubs[1].ID != "redjob" {
		t.Errorf("jobs of red: %s", rec.Body)
	}
	rec = w.ask(http.MethodGet, w.values.Replace("/v1/event/stream?namespace=*&index=ENTRY"), "", "red")
	if !strings.Contains(rec.Body.String(), `"redjob"`) {
		t.Errorf("events of red: %s", rec.Body)
	}
	var names []struct{ Name string }
	rec = w.ask(http.MethodGet, "/v1/namespaces", "", "red")
	if err := json.Unmarshal(rec.Body.Bytes(), &names); err != nil || len(names) != 1 || names[0].Name != "red" {
		t.Errorf("namespaces of red: %s", rec.Body)
	}
	var nodes []struct{ Site string }
	storeToken(t, w.hub, "south", `site "south-*" { policy = "read" }`)
	rec = w.ask(http.MethodGet, "/v1/nodes", "", "south")
	if err := json.Unmarshal(rec.Body.Bytes(), &nodes); err != nil || len(nodes) != 1 || nodes[0].Site != "south-1" {
		t.Errorf("nodes of a site: %s", rec.Body)
	}
	if !slices.Contains([]int{200, 500}, w.ask(http.MethodPut, "/v1/jobs", jobText("red", "x", "default", `, "Volumes": {"v": {"Type": "host", "Source": "red-data"}}`), "red").Code) {
		t.Error("a job with the tenant's own volume is refused")
	}
}

// TestWritersDoNotRead changes a variable with a token that may write it alone: no answer has the items that it did not
// send.
func TestWritersDoNotRead(t *testing.T) {
	w := newTenants(t)
	storeToken(t, w.hub, "writer", `namespace "red" { variables { path "team/*" { capabilities = ["write"] } } }`)
	w.api = w.newUnfrozen(access.New(access.Config{State: w.hub.store}))
	for _, tc := range []struct {
		query, body string
		status      int
	}{
		{"&cas=0", `{"Items": {"k": "v"}}`, 409},
		{"&lock-acquire", `{"Lock": {"TTL": "15s"}}`, 200},
		{"", `{"Items": {"k": "v"}}`, 409}, // it is locked
	} {
		rec := w.ask(http.MethodPut, "/v1/var/team/own?namespace=red"+tc.query, tc.body, "writer")
		if rec.Code != tc.status || strings.Contains(rec.Body.String(), blueMark) {
			t.Errorf("%s: %d %s", tc.query, rec.Code, rec.Body)
		}
	}
	if rec := w.ask(http.MethodGet, "/v1/var/team/own?namespace=red", "", "red"); rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), blueMark) {
		t.Errorf("a reader: %d %s", rec.Code, rec.Body)
	}
}
