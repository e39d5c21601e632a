package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/api"
)

// sent says what Nomad's published client sends, by endpoint.
var sent = map[string]any{
	"/v1/jobs":                             nomad.JobRegisterRequest{},
	"/v1/job/web/plan":                     nomad.JobPlanRequest{},
	"/v1/validate/job":                     nomad.JobValidateRequest{},
	"/v1/jobs/parse":                       nomad.JobsParseRequest{},
	"/v1/jobs/statuses":                    nomad.JobStatusesRequest{},
	"/v1/job/web/revert":                   nomad.JobRevertRequest{},
	"/v1/job/web/stable":                   nomad.JobStabilityRequest{},
	"/v1/job/web/scale":                    nomad.ScalingRequest{},
	"/v1/job/web/evaluate":                 nomad.JobEvaluateRequest{},
	"/v1/job/web/dispatch":                 nomad.JobDispatchRequest{},
	"/v1/job/web/versions/t/tag":           nomad.TagVersionRequest{},
	"/v1/deployment/promote/d":             nomad.DeploymentPromoteRequest{},
	"/v1/deployment/pause/d":               nomad.DeploymentPauseRequest{},
	"/v1/deployment/allocation-health/d":   nomad.DeploymentAllocHealthRequest{},
	"/v1/node/n/drain":                     nomad.NodeUpdateDrainRequest{},
	"/v1/node/n/eligibility":               nomad.NodeUpdateEligibilityRequest{},
	"/v1/node/pools":                       nomad.NodePool{},
	"/v1/namespaces":                       nomad.Namespace{},
	"/v1/operator/scheduler/configuration": nomad.SchedulerConfiguration{},
	"/v1/operator/autopilot/configuration": nomad.AutopilotConfiguration{},
	"/v1/search":                           nomad.SearchRequest{},
	"/v1/search/fuzzy":                     nomad.FuzzySearchRequest{},
	"/v1/client/allocation/a/restart":      nomad.AllocationRestartRequest{},
	"/v1/client/allocation/a/signal":       nomad.AllocSignalRequest{},
}

// sentACL is sent for the endpoints of access control. A site code is no object of Nomad's.
var sentACL = map[string]any{
	"/v1/acl/bootstrap":              nomad.BootstrapRequest{},
	"/v1/acl/policy/x":               nomad.ACLPolicy{},
	"/v1/acl/token":                  nomad.ACLToken{},
	"/v1/acl/token/x":                nomad.ACLToken{},
	"/v1/acl/token/onetime":          struct{}{},
	"/v1/acl/token/onetime/exchange": nomad.OneTimeTokenExchangeRequest{},
	"/v1/acl/role":                   nomad.ACLRole{},
	"/v1/acl/role/x":                 nomad.ACLRole{},
	"/v1/acl/auth-method":            nomad.ACLAuthMethod{},
	"/v1/acl/auth-method/x":          nomad.ACLAuthMethod{},
	"/v1/acl/binding-rule":           nomad.ACLBindingRule{},
	"/v1/acl/binding-rule/x":         nomad.ACLBindingRule{},
	"/v1/acl/login":                  nomad.ACLLoginRequest{},
	"/v1/acl/oidc/auth-url":          nomad.ACLOIDCAuthURLRequest{},
	"/v1/acl/oidc/complete-auth":     nomad.ACLOIDCCompleteAuthRequest{},
	"/v1/acl/site-code":              api.SiteCodeRequest{},
}

// refused are the keys of those that nothing acts on, and that are refused where they say
// something.
var refused = map[string]string{
	"/v1/node/pools NodeIdentityTTL":                                     "a node's identity is its certificate",
	"/v1/namespaces OptionalExtraClaims":                                 "an identity has Nomad's own claims",
	"/v1/namespaces RequiredExtraClaims":                                 "an identity has Nomad's own claims",
	"/v1/operator/scheduler/configuration NodeLimitForFeasibilityChecks": "a job looks at all nodes that it needs",
}

// TestNoKeyOfABodyIsPassedOver sends every key that Nomad's client has, one by one, and one
// that nobody has.
func TestNoKeyOfABodyIsPassedOver(t *testing.T) {
	_, srv, _ := mustServe(t)
	checkBodyKeys(t, sent, func(endpoint string, body any) string { return putBody(t, srv.URL+endpoint, body) })
	if said := putBody(t, srv.URL+"/v1/operator/scheduler/configuration", map[string]any{"PreemptionConfig": map[string]any{"Sysbatch": true}}); !strings.Contains(said, "PreemptionConfig.Sysbatch") {
		t.Errorf("a key within a key: %s", said)
	}
}

// TestNoKeyOfAnACLBodyIsPassedOver is TestNoKeyOfABodyIsPassedOver for the endpoints of access control.
func TestNoKeyOfAnACLBodyIsPassedOver(t *testing.T) {
	a := newACLHub(t)
	_, boot := a.mustBootstrap()
	checkBodyKeys(t, sentACL, func(endpoint string, body any) string {
		a.now = a.now.Add(time.Minute) // logins are bounded
		b, err := json.Marshal(body)
		mustSucceed(t, err)
		status, said := a.putWith(boot.SecretID, endpoint, string(b))
		return fmt.Sprintf("%d %s", status, said)
	})
	const method = `{"Name": "m", "Type": "JWT", "Config": {"JWKSURL": "https://sso.example.com/keys", "Nonsense": 1}}`
	if _, said := a.putWith(boot.SecretID, "/v1/acl/auth-method", method); !strings.Contains(said, "unknown or unsupported keys: Config.Nonsense") {
		t.Errorf("a key of the configuration of an auth method: %s", said)
	}
	for role := range a.hub.store.View().ACLRoles() {
		t.Errorf("the role %+v is stored", role)
	}
}

// checkBodyKeys puts bodies with each key of those that are sent, and with one that nobody has.
func checkBodyKeys(t *testing.T, sent map[string]any, put func(endpoint string, body any) string) {
	t.Helper()
	for _, endpoint := range slices.Sorted(maps.Keys(sent)) {
		for key, value := range oneOfEach(reflect.TypeOf(sent[endpoint])) {
			said := put(endpoint, map[string]any{key: value})
			isRefused := strings.Contains(said, "unknown or unsupported keys: "+key)
			if expected := refused[endpoint+" "+key] != ""; isRefused != expected {
				t.Errorf("%s with %s: refused is %t, want %t: %s", endpoint, key, isRefused, expected, said)
			}
		}
		if said := put(endpoint, map[string]any{"Nonsense": 1}); !strings.HasPrefix(said, "400") || !strings.Contains(said, "unknown or unsupported keys: Nonsense") {
			t.Errorf("%s with nonsense: %s", endpoint, said)
		}
		if said := put(endpoint, map[string]any{"Nonsense": map[string]any{}}); strings.Contains(said, "nothing acts on") {
			t.Errorf("%s with nonsense that says nothing: %s", endpoint, said)
		}
	}
}

// TestEveryChangeRefusesAnUnknownKey sends a body with a key that nobody has to each endpoint that changes something, also
// to those that need no body.
func TestEveryChangeRefusesAnUnknownKey(t *testing.T) {
	other := map[string]string{
		"/v1/operator/snapshot": "the body is a snapshot", "/v1/job/{id}/dispatch/payload": "the body is the payload",
		"/v1/acl/login": "TestNoKeyOfAnACLBodyIsPassedOver", "/v1/acl/oidc/auth-url": "the same", "/v1/acl/oidc/complete-auth": "the same",
	}
	l, placeholder, n := newListFixture(t), regexp.MustCompile(`\{[^}]*\}`), 0
	for _, e := range l.api.Endpoints() {
		for _, method := range e.Methods {
			if method == http.MethodGet || other[e.Path] != "" {
				continue
			}
			n++
			w := l.sendRequest(method, placeholder.ReplaceAllString(e.Path, "x"), `{"Nonsense": 1}`, nil)
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "unknown or unsupported keys: Nonsense") {
				t.Errorf("%s %s: %d %s", method, e.Path, w.Code, w.Body)
			}
		}
	}
	if n < 80 {
		t.Errorf("%d endpoints change something, want 80 at least", n)
	}
}

// TestBodiesThatContradict sends bodies of which some part could only be ignored.
func TestBodiesThatContradict(t *testing.T) {
	_, srv, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	group := `"TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "raw_exec", "Config": {"command": "x"}}]}]`
	for _, tc := range []struct{ path, body, want string }{
		{"/v1/job/web/evaluate", `{"JobID": "other"}`, `JobID is "other", and the path names "web"`},
		{"/v1/job/web/dispatch", `{"JobID": "other"}`, `JobID is "other"`},
		{"/v1/job/web/periodic/force", `{"JobID": "other"}`, `JobID is "other"`},
		{"/v1/node/n/drain", `{"NodeID": "other"}`, `NodeID is "other", and the path names "n"`},
		{"/v1/node/n/purge", `{"nodeid": "other"}`, `nodeid is "other"`},
		{"/v1/deployment/promote/d", `{"DeploymentID": "other", "All": true}`, `DeploymentID is "other", and the path names "d"`},
		{"/v1/deployment/pause/d", `{"DeploymentID": "other", "Pause": true}`, `DeploymentID is "other"`},
		{"/v1/deployment/fail/d", `{"DeploymentID": "other"}`, `DeploymentID is "other"`},
		{"/v1/deployment/allocation-health/d", `{"DeploymentID": "other", "HealthyAllocationIDs": ["a"]}`, `DeploymentID is "other"`},
		{"/v1/deployment/promote/d", `{"All": true, "Groups": ["g"]}`, "both All and Groups"},
		{"/v1/jobs", `{"Job": {"ID": "web", ` + group + `}, "NodeID": "n"}`, "unknown or unsupported keys: NodeID"},
		{"/v1/jobs", `{"Job": {"ID": "web", ` + group + `}, "PerPage": 5}`, "unknown or unsupported keys: PerPage"},
		{"/v1/node/n/drain", `{"DrainSpec": {"Deadline": 1, "NodeID": "n"}}`, "unknown or unsupported keys: DrainSpec.NodeID"},
		{"/v1/namespaces", `{"Name": "x", "Capabilities": {"Hash": "x"}}`, "unknown or unsupported keys: Capabilities.Hash"},
		{"/v1/namespaces", `{"Name": "x", "Name": "y"}`, "the key Name is there twice"},
		{"/v1/namespaces", `{"Name": "x", "name": "y"}`, "the key name is there twice"},
		{"/v1/namespaces", `{"Name": "x", "Meta": {"a": "1", "a": "2"}}`, "the key Meta.a is there twice"},
		{"/v1/job/web/scale", `{"Count": 1, "Target": {"Group": "site"}, "Count": 5}`, "the key Count is there twice"},
		{"/v1/jobs", `{"Job": {"ID": "web", ` + group + `, "Priority": 60, "Priority": 70}}`, "the key Priority is there twice"},
		{"/v1/jobs", `{"Job": {"ID": "web", "Meta": {"a": "1", "a": "2"}, ` + group + `}}`, "the key Meta.a is there twice"},
	} {
		if said := putBody(t, srv.URL+tc.path, json.RawMessage(tc.body)); !strings.HasPrefix(said, "400") || !strings.Contains(said, tc.want) {
			t.Errorf("%s with %s: %s, want 400 with %s", tc.path, tc.body, said, tc.want)
		}
	}
	for path, body := range map[string]string{
		"/v1/job/web/evaluate": `{"JobID": "web"}`, "/v1/system/gc": `{}`, "/v1/system/reconcile/summaries": `null`,
		"/v1/search": `{"Prefix": "w", "PerPage": 5, "Context": "jobs"}`,
	} {
		if said := putBody(t, srv.URL+path, json.RawMessage(body)); !strings.HasPrefix(said, "200") {
			t.Errorf("%s with %s: %s", path, body, said)
		}
	}
}

// TestBodiesAreOfTheirNamespaceAndRegion sends bodies that say both, as Nomad's older clients do.
func TestBodiesAreOfTheirNamespaceAndRegion(t *testing.T) {
	_, srv, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ query, key, value, want string }{
		{"", "Namespace", "default", "200"},
		{"", "Namespace", "ships", `400 read the request's body: it names namespace "ships", the request names "default"`},
		{"?namespace=default", "Namespace", "ships", `400 read the request's body: it names namespace "ships", the request names "default"`},
		{"?namespace=ships", "Namespace", "ships", "404"},
		{"", "Region", "global", "200"},
		{"", "Region", "eu", `400 read the request's body: no path to region "eu"`},
	} {
		body := map[string]any{"Target": map[string]string{"Group": "site"}, "Count": 2, tc.key: tc.value}
		if said := putBody(t, srv.URL+"/v1/job/web/scale"+tc.query, body); !strings.HasPrefix(said, tc.want) {
			t.Errorf("%s with %s %s: %s, want %s", tc.query, tc.key, tc.value, said, tc.want)
		}
	}
}

// oneOfEach has a value for every key of a type that says something.
func oneOfEach(t reflect.Type) map[string]any {
	values := map[string]any{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			maps.Copy(values, oneOfEach(f.Type))
			continue
		}
		if name == "-" || !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		kind := f.Type
		for kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		switch kind.Kind() {
		case reflect.Bool:
			values[name] = true
		case reflect.String:
			values[name] = "x"
		case reflect.Slice:
			if kind.Elem().Kind() == reflect.Uint8 {
				values[name] = []byte("x")
				continue
			}
			values[name] = []any{reflect.Zero(kind.Elem()).Interface()}
		case reflect.Map:
			values[name] = map[string]any{"x": reflect.Zero(kind.Elem()).Interface()}
		case reflect.Struct:
			values[name] = map[string]any{}
			if kind == reflect.TypeFor[time.Time]() {
				values[name] = time.Unix(1, 0)
			}
		default:
			values[name] = 1
		}
	}
	return values
}

func putBody(tb testing.TB, url string, body any) string {
	tb.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		tb.Fatal(err)
	}
	status, said := mustPut(tb, url, string(b))
	return fmt.Sprintf("%d %s", status, said)
}
