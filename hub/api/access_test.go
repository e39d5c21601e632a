package api_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/fleet/aclpolicy"
	"skerry/fleet/validate"
	"skerry/hub/access"
	hubapi "skerry/hub/api"
	"skerry/hub/secrets"
	"skerry/hub/state"
	"skerry/syncproto"
)

// storeToken stores a token with a policy of its own, which is named as its secret; "": a management token.
func storeToken(tb testing.TB, h *fakeHub, secret, rules string) {
	tb.Helper()
	token := fleet.ACLToken{AccessorID: secret, Name: secret, Type: fleet.ACLTokenManagement}
	if rules != "" {
		if _, err := aclpolicy.Parse(rules); err != nil {
			tb.Fatalf("policy %s: %v", rules, err)
		}
		mustApply(tb, h, state.ACLPolicyStore{Policy: fleet.ACLPolicy{Name: secret, Rules: rules}})
		token.Type, token.Policies = fleet.ACLTokenClient, []string{secret}
	}
	if _, known := h.store.View().ACLToken(secret); !known {
		mustApply(tb, h, state.ACLTokenStore{Token: state.ACLTokenRecord{Hash: access.HashSecret(secret), ACLToken: token}})
	}
}

// frozenHub refuses all changes, so that each endpoint can be called often.
type frozenHub struct{ *fakeHub }

func (frozenHub) Apply(context.Context, state.Command) (state.Result, error) {
	return state.Result{}, fleet.Errorf(fleet.CodeUnavailable, "frozen")
}

// frozenSecrets refuses changes, as frozenHub does.
type frozenSecrets struct{ *secrets.Secrets }

func (frozenSecrets) Commit(context.Context, string, string, fleet.VariableItems, func(state.SealedItems) state.Command) (state.Result, error) {
	return state.Result{}, fleet.Errorf(fleet.CodeUnavailable, "frozen")
}

func (frozenSecrets) Rotate(context.Context, bool) (fleet.RootKey, error) {
	return fleet.RootKey{}, fleet.Errorf(fleet.CodeUnavailable, "frozen")
}

func (frozenHub) TransferLead(context.Context, fleet.HubID) error { return nil }

// accessFixture is a hub with several of everything, and with tokens.
type accessFixture struct {
	*listFixture
	names   *strings.Replacer // of values in paths
	headers http.Header       // that each request has, besides its token
	audit   *keptAudit
}

func newAccessFixture(t *testing.T) *accessFixture {
	f := &accessFixture{listFixture: newListFixture(t), audit: &keptAudit{}}
	h, v := frozenHub{f.hub}, f.hub.store.View()
	f.hub.pieces = refuseUnsupported
	a, err := hubapi.New(hubapi.Config{
		State: f.hub.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: frozenSecrets{secretsOf(f.hub)}, Locks: locksOf(f.hub), Hosts: append(testHosts, "127.0.0.1"),
		Drivers: validate.KnownDrivers{Names: []string{"sim"}}, Access: access.New(access.Config{State: f.hub.store}), Logins: loginsOf(f.hub), Audit: f.audit,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.api = a
	var volume, token, pool, policy string
	for vol := range v.Volumes("") {
		volume = string(vol.ID)
	}
	for tk := range v.Tokens() {
		token = tk.ID
	}
	for p := range v.Pools() {
		pool = p.Name
	}
	body := f.ask(http.MethodGet, "/v1/scaling/policies", "", listSecret).Body.String()
	if _, policy, _ = strings.Cut(body, `"ID":"`); len(policy) > 36 {
		policy = policy[:36]
	}
	named := map[string]string{}
	for row := range v.Variables("default", "") {
		named["variable"] = row.Path
	}
	for p := range v.ACLPolicies() {
		named["policy"] = p.Name
	}
	for r := range v.ACLRoles() {
		named["role"] = r.ID
	}
	for m := range v.ACLAuthMethods() {
		named["method"] = m.Name
	}
	for r := range v.ACLBindingRules() {
		named["rule"] = r.ID
	}
	for c := range v.SiteCodes() {
		named["code"] = c.ID
	}
	f.names = strings.NewReplacer(
		"/v1/acl/site-code/{name}", "/v1/acl/site-code/"+named["code"],
		"/v1/acl/policy/{name}", "/v1/acl/policy/"+named["policy"], "/v1/acl/role/{name}", "/v1/acl/role/"+named["role"], "/v1/acl/role/name/{name}", "/v1/acl/role/name/"+named["role"],
		"/v1/acl/auth-method/{name}", "/v1/acl/auth-method/"+named["method"], "/v1/acl/binding-rule/{name}", "/v1/acl/binding-rule/"+named["rule"],
		"/v1/var/{path...}", "/v1/var/"+named["variable"], "/v1/operator/keyring/key/{id}", "/v1/operator/keyring/key/none", "/v1/acl/token/{name}", "/v1/acl/token/a",
		"/v1/deployment/{id}", "/v1/deployment/"+string(f.deployment0), "/v1/evaluation/{id}", "/v1/evaluation/"+string(f.eval0),
		"/v1/job/{id}", "/v1/job/j0", "/v1/node/{id}", "/v1/node/"+string(nodeID), "/v1/volume/host/{id}", "/v1/volume/host/"+volume,
		"/v1/join/token/{id}", "/v1/join/token/"+token, "/v1/scaling/policy/{id}", "/v1/scaling/policy/"+policy,
		"/v1/node/pool/{name}", "/v1/node/pool/"+pool, "/v1/namespace/{name}", "/v1/namespace/default", "/v1/service/{name}", "/v1/service/s0",
		"{registration}", "none", "{tag}", "first",
	)
	return f
}

// pathOf returns the path of an endpoint with the names of objects that exist.
func (f *accessFixture) pathOf(path string) string {
	path = f.names.Replace(path)
	id := string(f.firstAllocID())
	for _, ofDeployment := range []string{"progress", "allocations", "promote", "pause", "fail", "allocation-health", "unblock"} {
		if strings.HasPrefix(path, "/v1/deployment/"+ofDeployment+"/") {
			id = string(f.deployment0)
		}
	}
	path = strings.ReplaceAll(path, "{id}", id)
	switch path {
	case "/v1/client/stats", "/v1/client/gc":
		return path + "?node_id=" + string(nodeID)
	case "/v1/acl/why":
		return path + "?accessor=a&kind=namespace&name=default&capability=read-job"
	case "/v1/job/j0/action":
		return path + "?action=none"
	case "/v1/client/allocation/" + id + "/exec":
		return path + "?" + url.Values{"command": {`["true"]`}, "task": {"main"}}.Encode()
	}
	return path
}

// bodies of requests that need one to come to what is checked.
var accessBodies = map[string]string{
	"/v1/jobs":                              `{"Job": {"ID": "new", "Name": "new", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "sim"}]}]}}`,
	"/v1/job/{id}":                          `{"Job": {"ID": "j0", "Name": "j0", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "sim"}]}]}}`,
	"/v1/job/{id}/plan":                     `{"Job": {"ID": "j0", "Name": "j0", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "sim"}]}]}}`,
	"/v1/validate/job":                      `{"Job": {"ID": "j0", "Name": "j0", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "sim"}]}]}}`,
	"/v1/var/{path...}":                     `{"Items": {"k": "v"}}`,
	"/v1/jobs/parse":                        `{"JobHCL": "job \"x\" {}"}`,
	"/v1/deployment/promote/{id}":           `{"All": true}`,
	"/v1/deployment/allocation-health/{id}": `{"HealthyAllocationIDs": ["x"]}`,
	"/v1/node/{id}/eligibility":             `{"Eligibility": "eligible"}`,
	"/v1/node/pools":                        `{"Name": "pool-of-test"}`,
	"/v1/volume/host/create":                `{"Volume": {"Name": "v"}}`,
	"/v1/volume/host/register":              `{"Volume": {"Name": "v"}}`,
	"/v1/search/fuzzy":                      `{"Text": "j0"}`,
	"/v1/join/tokens":                       `{"Role": "edge"}`,
	"/v1/job/{id}/scale":                    `{"Target": {"Group": "site"}, "Count": 1}`,
}

// ask sends a request with a token. It leaves a stream after a second, which is virtual in most tests.
func (f *accessFixture) ask(method, path, body, secret string) *httptest.ResponseRecorder {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	maps.Copy(r.Header, f.headers)
	if secret != "" {
		r.Header.Set("X-Nomad-Token", secret)
	}
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				panic(p)
			}
		}()
		f.api.ServeHTTP(w, r)
	}()
	return w
}

// namespaceCapabilities are all that a policy can grant in a namespace.
var namespaceCapabilities = []acl.Capability{
	acl.ListJobs, acl.ParseJob, acl.ReadJob, acl.SubmitJob, acl.DispatchJob, acl.ReadLogs, acl.ReadFS, acl.AllocExec, acl.AllocNodeExec,
	acl.AllocLifecycle, acl.SentinelOverride, acl.CSIRegisterPlugin, acl.CSIWriteVolume, acl.CSIReadVolume, acl.CSIListVolume, acl.CSIMountVolume,
	acl.HostVolumeCreate, acl.HostVolumeRegister, acl.HostVolumeRead, acl.HostVolumeWrite, acl.HostVolumeDelete, acl.ListScalingPolicies,
	acl.ReadScalingPolicy, acl.ReadJobScaling, acl.ScaleJob, acl.SubmitRecommendation,
}

// variableRule gives capabilities on all variables.
func variableRule(all ...acl.Capability) string {
	var names []string
	for _, c := range all {
		names = append(names, fmt.Sprintf("%q", c))
	}
	return fmt.Sprintf("namespace \"*\" { variables { path \"*\" { capabilities = [%s] } } }\n", strings.Join(names, ", "))
}

// rulesFor returns the policy that gives one capability, and the one that gives everything but those of an endpoint.
func rulesFor(e hubapi.Endpoint, c acl.Capability) (exactly, others string) {
	kinds := map[acl.Kind]string{
		acl.KindNamespace: `namespace "*" { policy = "write" }`, acl.KindNode: `node { policy = "write" }`, acl.KindNodePool: `node_pool "*" { policy = "write" }`,
		acl.KindVariables: `namespace "*" { variables { path "*" { capabilities = ["read", "write", "destroy"] } } }`, acl.KindAgent: `agent { policy = "write" }`, acl.KindOperator: `operator { policy = "write" }`,
	}
	delete(kinds, e.Kind)
	for _, rule := range kinds {
		others += rule + "\n"
	}
	list := func(kind acl.Kind, all []acl.Capability) string {
		var names []string
		for _, c := range all {
			names = append(names, fmt.Sprintf("%q", c))
		}
		return fmt.Sprintf("%s \"*\" { capabilities = [%s] }\n", kind, strings.Join(names, ", "))
	}
	except := func(all []acl.Capability) (left []acl.Capability) {
		for _, one := range all {
			volumes := strings.HasPrefix(string(c), "host-volume") && strings.HasPrefix(string(one), "host-volume") // one implies others
			if !slices.Contains(e.Any, one) && !volumes && !(one == acl.HostVolumeWrite) {
				left = append(left, one)
			}
		}
		return left
	}
	switch e.Kind {
	case acl.KindVariables:
		return variableRule(c), others + variableRule(except([]acl.Capability{acl.List, acl.Write, acl.Destroy})...)
	case acl.KindNamespace:
		return list(e.Kind, []acl.Capability{c}), others + list(e.Kind, except(namespaceCapabilities))
	case acl.KindNodePool:
		return list(e.Kind, []acl.Capability{c}), others + list(e.Kind, except([]acl.Capability{acl.Read, acl.Write, acl.Delete}))
	case acl.KindManagement:
		return "", others
	}
	if c == acl.SnapshotSave {
		return `operator { capabilities = ["snapshot-save"] }`, others + `operator { policy = "write" }`
	}
	if c == acl.Write {
		others += fmt.Sprintf("%s { policy = \"read\" }\n", e.Kind)
	}
	return fmt.Sprintf("%s { policy = %q }\n", e.Kind, c), others
}

// TestEveryEndpointIsGuarded calls each endpoint by each method with no token, a wrong one, one that gives everything but
// what the endpoint requires, and each that gives exactly that.
func TestEveryEndpointIsGuarded(t *testing.T) { synctest.Test(t, checkEveryEndpoint) }

func checkEveryEndpoint(t *testing.T) {
	f := newAccessFixture(t)
	called := 0
	for _, e := range f.api.Endpoints() {
		methods := e.Methods
		if len(methods) == 0 {
			methods = []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete}
		}
		for _, method := range methods {
			f.checkEndpoint(e, method)
			called++
		}
	}
	if called < 180 {
		t.Errorf("%d calls are too few", called)
	}
}

// ownToken is the requirement of endpoints about the request's token: acl_test.go tries them.
const ownToken = "the token itself, or management"

func (f *accessFixture) checkEndpoint(e hubapi.Endpoint, method string) {
	f.t.Helper()
	path, body := f.pathOf(e.Path), accessBodies[e.Path]
	if body == "" && method != http.MethodGet {
		body = "{}"
	}
	expect := func(what, secret string, allowed bool) {
		f.t.Helper()
		w := f.ask(method, path, body, secret)
		if (w.Code != http.StatusForbidden && w.Code != http.StatusNotFound) != allowed || strings.Contains(w.Body.String(), `namespace "*"`) {
			f.t.Errorf("%s %s, which requires %s, with %s: %d %s", method, path, e.Requires, what, w.Code, w.Body)
		}
	}
	if e.Requires == "none" {
		for _, secret := range []string{"", "wrong"} {
			if w := f.ask(method, path, body, secret); strings.Contains(w.Body.String(), "Permission denied") || strings.Contains(w.Body.String(), "ACL token") {
				f.t.Errorf("%s %s, which requires nothing, with the token %q: %d %s", method, path, secret, w.Code, w.Body)
			}
		}
		return
	}
	if e.Requires != ownToken { // without one, the answer has what the anonymous policy gives
		expect("no token", "", false)
	}
	expect("a wrong token", "wrong", false)
	expect("a management token", listSecret, e.Path != "/v1/service/{name}/{registration}" && e.Path != "/v1/job/{id}/submission") // these do not exist
	if e.Kind == "" || strings.HasSuffix(e.Path, "/exec") {                                                                        // TestTenants tries what is filtered, TestExecIsGuarded commands
		return
	}
	capabilities := e.Any
	if e.Kind == acl.KindManagement {
		capabilities = []acl.Capability{acl.Write}
	}
	for _, c := range capabilities {
		exactly, others := rulesFor(e, c)
		storeToken(f.t, f.hub, "others", others)
		expect("everything else", "others", false)
		if exactly != "" {
			storeToken(f.t, f.hub, "exactly", exactly)
			want := f.ask(method, path, body, listSecret)
			if got := f.ask(method, path, body, "exactly"); got.Code != want.Code {
				f.t.Errorf("%s %s with %s alone: %d %s, and a management token gets %d %s", method, path, exactly, got.Code, got.Body, want.Code, want.Body)
			}
		}
	}
}

// TestExecIsGuarded opens websockets for commands. The audit has each refusal.
func TestExecIsGuarded(t *testing.T) {
	f := newAccessFixture(t)
	srv := httptest.NewServer(f.api)
	t.Cleanup(srv.Close)
	for secret, rules := range map[string]string{
		"exec":  `namespace "default" { capabilities = ["alloc-exec", "read-job"] }`,
		"both":  `namespace "default" { capabilities = ["alloc-exec", "alloc-node-exec"] }`,
		"read":  `namespace "default" { policy = "read" }`,
		"other": `namespace "team" { policy = "write" }`,
	} {
		storeToken(f.t, f.hub, secret, rules)
	}
	for _, tc := range []struct {
		secret string
		status int // of HTTP, or of the close frame
		says   string
		audit  string
	}{
		{"", 403, "Permission denied", "EXEC 403 forbidden"},
		{"wrong", 403, "ACL token not found", "EXEC 403 forbidden"},
		{"other", 4404, "not found", "EXEC 404 not_found other"},
		{"read", 4403, "alloc-exec", "EXEC 403 forbidden read"},
		{"exec", 4403, "alloc-node-exec", "EXEC 403 forbidden exec"},    // the driver sim does not isolate
		{"both", 4500, "", "EXEC 101  both, EXEC 500 unavailable both"}, // the fake edge has no command
	} {
		f.audit.entries = nil
		header := http.Header{"X-Nomad-Token": {tc.secret}}
		f.hub.talk = refuseTalk
		conn, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http")+f.pathOf("/v1/client/allocation/{id}/exec"), header)
		if err != nil {
			if resp == nil || resp.StatusCode != tc.status {
				t.Errorf("token %q: %v", tc.secret, err)
			}
			f.audit.check(t, tc.audit)
			continue
		}
		_, _, err = conn.ReadMessage()
		f.audit.check(t, tc.audit)
		if closed, ok := err.(*websocket.CloseError); !ok || closed.Code != tc.status || !strings.Contains(closed.Text, tc.says) {
			t.Errorf("token %q: %v, want %d %q", tc.secret, err, tc.status, tc.says)
		}
		conn.Close()
	}
}

// TestDocumentedRequirements compares the table of docs/acl.md with the declarations of the endpoints.
func TestDocumentedRequirements(t *testing.T) {
	const path, begin, end = "../../docs/acl.md", "<!-- endpoints -->\n", "<!-- end of endpoints -->\n"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no part between %q and %q", path, begin, end)
	}
	var rows []string
	for _, e := range newListFixture(t).api.Endpoints() {
		methods := strings.Join(e.Methods, ", ")
		if methods == "" {
			methods = "all"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", e.Path, methods, e.Requires))
	}
	slices.Sort(rows)
	want := head + begin + "| endpoint | methods | requires |\n|---|---|---|\n" + strings.Join(rows, "") + end + tail
	if want == string(b) {
		return
	}
	if !*rewrite {
		t.Fatalf("%s does not say what the endpoints require: run go test ./hub/api -run TestDocumentedRequirements -rewrite", path)
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// refuseTalk answers as an edge without a session does.
func refuseTalk(context.Context, syncproto.Request) (io.ReadWriteCloser, error) {
	return nil, fleet.Errorf(fleet.CodeUnavailable, "no session")
}
