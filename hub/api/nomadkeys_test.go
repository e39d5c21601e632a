package api_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"
)

// none is the type of an answer of which Nomad's client reads no field.
type none struct{}

// Answers whose types Nomad's client does not export.
type (
	evalIDAnswer   struct{ EvalID string }
	statusesAnswer []struct {
		ID, Namespace, Name, Type, NodePool, ParentID, Status string
		Datacenters                                           []string
		Priority, GroupCountSum                               int
		Version, SubmitTime, CreateIndex, ModifyIndex         uint64
		Stop                                                  bool
		ChildStatuses                                         []string
		Allocs                                                []struct {
			ID, Group, ClientStatus, NodeID, FollowupEvalID string
			DeploymentStatus                                *nomad.AllocDeploymentStatus
			JobVersion                                      uint64
		}
		LatestDeployment *struct {
			ID, Status, StatusDescription string
			IsActive                      bool
			JobVersion                    uint64
			AllAutoPromote                bool
			RequiresPromotion             bool
		}
	}
	actionsAnswer []struct {
		Name, Command, TaskName, TaskGroupName string
		Args                                   []string
	}
	rotatedKeyAnswer struct{ Key *nomad.RootKeyMeta }
)

// answered says, by endpoint, into which type Nomad's published client reads the answer.
// The type of an event's payload goes by its topic.
var answered = map[string]any{
	"GET /v1/jobs":                              []*nomad.JobListStub{},
	"PUT /v1/jobs":                              nomad.JobRegisterResponse{},
	"PUT /v1/job/{id}":                          nomad.JobRegisterResponse{},
	"GET /v1/jobs/statuses":                     statusesAnswer{},
	"PUT /v1/jobs/statuses":                     statusesAnswer{},
	"PUT /v1/jobs/parse":                        nomad.Job{},
	"PUT /v1/validate/job":                      nomad.JobValidateResponse{},
	"GET /v1/job/{id}":                          nomad.Job{},
	"DELETE /v1/job/{id}":                       nomad.JobDeregisterResponse{},
	"GET /v1/job/{id}/allocations":              []*nomad.AllocationListStub{},
	"GET /v1/job/{id}/evaluations":              []*nomad.Evaluation{},
	"GET /v1/job/{id}/summary":                  nomad.JobSummary{},
	"GET /v1/job/{id}/versions":                 nomad.JobVersionsResponse{},
	"GET /v1/job/{id}/deployments":              []*nomad.Deployment{},
	"GET /v1/job/{id}/deployment":               nomad.Deployment{},
	"GET /v1/job/{id}/scale":                    nomad.JobScaleStatusResponse{},
	"GET /v1/job/{id}/submission":               nomad.JobSubmission{},
	"GET /v1/job/{id}/services":                 []*nomad.ServiceRegistration{},
	"GET /v1/job/{id}/actions":                  actionsAnswer{},
	"PUT /v1/job/{id}/plan":                     nomad.JobPlanResponse{},
	"PUT /v1/job/{id}/revert":                   nomad.JobRegisterResponse{},
	"PUT /v1/job/{id}/stable":                   nomad.JobStabilityResponse{},
	"PUT /v1/job/{id}/scale":                    nomad.JobRegisterResponse{},
	"PUT /v1/job/{id}/evaluate":                 nomad.JobRegisterResponse{},
	"PUT /v1/job/{id}/dispatch":                 nomad.JobDispatchResponse{},
	"PUT /v1/job/{id}/periodic/force":           evalIDAnswer{},
	"PUT /v1/job/{id}/versions/{tag}/tag":       none{},
	"DELETE /v1/job/{id}/versions/{tag}/tag":    none{},
	"GET /v1/allocations":                       []*nomad.AllocationListStub{},
	"GET /v1/allocation/{id}":                   nomad.Allocation{},
	"GET /v1/allocation/{id}/services":          []*nomad.ServiceRegistration{},
	"PUT /v1/allocation/{id}/stop":              nomad.AllocStopResponse{},
	"GET /v1/evaluations":                       []*nomad.Evaluation{},
	"GET /v1/evaluations/count":                 nomad.EvalCountResponse{},
	"GET /v1/evaluation/{id}":                   nomad.Evaluation{},
	"GET /v1/evaluation/{id}/allocations":       []*nomad.AllocationListStub{},
	"GET /v1/deployments":                       []*nomad.Deployment{},
	"GET /v1/deployment/{id}":                   nomad.Deployment{},
	"GET /v1/deployment/allocations/{id}":       []*nomad.AllocationListStub{},
	"PUT /v1/deployment/promote/{id}":           nomad.DeploymentUpdateResponse{},
	"PUT /v1/deployment/pause/{id}":             nomad.DeploymentUpdateResponse{},
	"PUT /v1/deployment/fail/{id}":              nomad.DeploymentUpdateResponse{},
	"PUT /v1/deployment/allocation-health/{id}": nomad.DeploymentUpdateResponse{},
	"GET /v1/nodes":                             []*nomad.NodeListStub{},
	"GET /v1/node/{id}":                         nomad.Node{},
	"GET /v1/node/{id}/allocations":             []*nomad.Allocation{},
	"PUT /v1/node/{id}/drain":                   nomad.NodeDrainUpdateResponse{},
	"PUT /v1/node/{id}/eligibility":             nomad.NodeEligibilityUpdateResponse{},
	"PUT /v1/node/{id}/evaluate":                evalIDAnswer{},
	"PUT /v1/node/{id}/purge":                   nomad.NodePurgeResponse{},
	"GET /v1/node/pools":                        []*nomad.NodePool{},
	"GET /v1/node/pool/{name}":                  nomad.NodePool{},
	"GET /v1/node/pool/{name}/jobs":             []*nomad.JobListStub{},
	"GET /v1/node/pool/{name}/nodes":            []*nomad.NodeListStub{},
	"PUT /v1/node/pools":                        none{},
	"DELETE /v1/node/pool/{name}":               none{},
	"GET /v1/volumes":                           []*nomad.HostVolumeStub{},
	"GET /v1/volume/host/{id}":                  nomad.HostVolume{},
	"DELETE /v1/volume/host/{id}":               none{},
	"PUT /v1/volume/host/create":                nomad.HostVolumeCreateResponse{},
	"PUT /v1/volume/host/register":              nomad.HostVolumeRegisterResponse{},
	"GET /v1/namespaces":                        []*nomad.Namespace{},
	"GET /v1/namespace/{name}":                  nomad.Namespace{},
	"PUT /v1/namespace":                         none{},
	"PUT /v1/namespaces":                        none{},
	"PUT /v1/namespace/{name}":                  none{},
	"DELETE /v1/namespace/{name}":               none{},
	"GET /v1/scaling/policies":                  []*nomad.ScalingPolicyListStub{},
	"GET /v1/scaling/policy/{id}":               nomad.ScalingPolicy{},
	"GET /v1/services":                          []*nomad.ServiceRegistrationListStub{},
	"GET /v1/service/{name}":                    []*nomad.ServiceRegistration{},
	"PUT /v1/search":                            nomad.SearchResponse{},
	"PUT /v1/search/fuzzy":                      nomad.FuzzySearchResponse{},
	"GET /v1/agent/self":                        nomad.AgentSelf{},
	"GET /v1/agent/members":                     nomad.ServerMembers{},
	"GET /v1/agent/health":                      nomad.AgentHealthResponse{},
	"GET /v1/agent/monitor":                     nomad.StreamFrame{},
	"GET /v1/agent/servers":                     []string{},
	"GET /v1/agent/host":                        nomad.HostDataResponse{},
	"GET /v1/metrics":                           nomad.MetricsSummary{},
	"GET /v1/operator/autopilot/configuration":  nomad.AutopilotConfiguration{},
	"PUT /v1/operator/autopilot/configuration":  true,
	"PUT /v1/node/pool/{name}":                  none{},
	"GET /v1/regions":                           []string{},
	"GET /v1/status/leader":                     "",
	"GET /v1/status/peers":                      []string{},
	"GET /v1/operator/raft/configuration":       nomad.RaftConfiguration{},
	"GET /v1/operator/autopilot/health":         nomad.OperatorHealthReply{},
	"GET /v1/operator/scheduler/configuration":  nomad.SchedulerConfigurationResponse{},
	"PUT /v1/operator/scheduler/configuration":  nomad.SchedulerSetConfigurationResponse{},
	"GET /v1/operator/keyring/keys":             []*nomad.RootKeyMeta{},
	"PUT /v1/operator/keyring/rotate":           rotatedKeyAnswer{},
	"DELETE /v1/operator/keyring/key/{id}":      none{},
	"GET /v1/vars":                              []*nomad.VariableMetadata{},
	"GET /v1/var/{path...}":                     nomad.Variable{},
	"PUT /v1/var/{path...}":                     nomad.Variable{},
	"DELETE /v1/var/{path...}":                  none{},
	"PUT /v1/system/gc":                         none{},
	"PUT /v1/system/reconcile/summaries":        none{},
	"GET /v1/client/stats":                      nomad.HostStats{},
	"GET /v1/client/allocation/{id}/stats":      nomad.AllocResourceUsage{},
	"GET /v1/client/allocation/{id}/checks":     nomad.AllocCheckStatuses{},
	"PUT /v1/client/allocation/{id}/restart":    none{},
	"GET /v1/client/allocation/{id}/gc":         none{},
	"PUT /v1/client/allocation/{id}/gc":         none{},
	"GET /v1/client/gc":                         none{},
	"PUT /v1/client/gc":                         none{},
	"PUT /v1/client/allocation/{id}/signal":     none{},
	"GET /v1/client/fs/ls/{id}":                 []*nomad.AllocFileInfo{},
	"GET /v1/client/fs/stat/{id}":               nomad.AllocFileInfo{},
	"GET /v1/client/fs/logs/{id}":               nomad.StreamFrame{},
	"GET /v1/client/fs/stream/{id}":             nomad.StreamFrame{},
	"GET /v1/event/stream":                      nomad.Events{},

	"PUT /v1/acl/bootstrap":              nomad.ACLToken{},
	"GET /v1/acl/policies":               []*nomad.ACLPolicyListStub{},
	"GET /v1/acl/policy/self":            []*nomad.ACLPolicyListStub{},
	"GET /v1/acl/policy/{name}":          nomad.ACLPolicy{},
	"PUT /v1/acl/policy/{name}":          none{},
	"DELETE /v1/acl/policy/{name}":       none{},
	"GET /v1/acl/tokens":                 []*nomad.ACLTokenListStub{},
	"GET /v1/acl/token/self":             nomad.ACLToken{},
	"GET /v1/acl/token/{name}":           nomad.ACLToken{},
	"PUT /v1/acl/token":                  nomad.ACLToken{},
	"PUT /v1/acl/token/{name}":           nomad.ACLToken{},
	"DELETE /v1/acl/token/{name}":        none{},
	"PUT /v1/acl/token/onetime":          nomad.OneTimeTokenUpsertResponse{},
	"PUT /v1/acl/token/onetime/exchange": nomad.OneTimeTokenExchangeResponse{},
	"GET /v1/acl/roles":                  []*nomad.ACLRoleListStub{},
	"GET /v1/acl/role/{name}":            nomad.ACLRole{},
	"GET /v1/acl/role/name/{name}":       nomad.ACLRole{},
	"PUT /v1/acl/role":                   nomad.ACLRole{},
	"PUT /v1/acl/role/{name}":            nomad.ACLRole{},
	"DELETE /v1/acl/role/{name}":         none{},

	"GET /v1/acl/auth-methods":           []*nomad.ACLAuthMethodListStub{},
	"GET /v1/acl/auth-method/{name}":     nomad.ACLAuthMethod{},
	"PUT /v1/acl/auth-method":            nomad.ACLAuthMethod{},
	"PUT /v1/acl/auth-method/{name}":     nomad.ACLAuthMethod{},
	"DELETE /v1/acl/auth-method/{name}":  none{},
	"GET /v1/acl/binding-rules":          []*nomad.ACLBindingRuleListStub{},
	"GET /v1/acl/binding-rule/{name}":    nomad.ACLBindingRule{},
	"PUT /v1/acl/binding-rule":           nomad.ACLBindingRule{},
	"PUT /v1/acl/binding-rule/{name}":    nomad.ACLBindingRule{},
	"DELETE /v1/acl/binding-rule/{name}": none{},
	"PUT /v1/acl/login":                  nomad.ACLToken{},
	"PUT /v1/acl/oidc/auth-url":          nomad.ACLOIDCAuthURLResponse{},
	"PUT /v1/acl/oidc/complete-auth":     nomad.ACLToken{},
}

// unwalked are the endpoints whose answers are not walked, and why.
var unwalked = map[string]string{
	"GET /v1/client/fs/cat/{id}":               "the bytes of a file",
	"GET /v1/client/fs/readat/{id}":            "the bytes of a file",
	"GET /v1/operator/snapshot":                "the bytes of a snapshot",
	"PUT /v1/operator/snapshot":                "no answer",
	"GET /v1/client/allocation/{id}/exec":      "a websocket, see exec_test.go",
	"GET /v1/job/{id}/action":                  "a websocket, see actions_test.go",
	"PUT /v1/job/{id}/dispatch/payload":        "Nomad's client does not send it: TestDispatchOfPlainBody",
	"DELETE /v1/service/{name}/{registration}": "refused, see docs/compatibility.md",

	"PUT /v1/deployment/unblock/{id}":           "refused: only a deployment of several regions can be blocked",
	"PUT /v1/operator/raft/transfer-leadership": "no answer, and two hubs are needed: TestVotersAreChanged",
	"DELETE /v1/operator/raft/peer":             "no answer, and two hubs are needed: TestVotersAreChanged",

	"GET /.well-known/jwks.json":                         "keys in the shape of RFC 7517: TestNomadReadsKeySet",
	"GET /.well-known/hub-jwks.json":                     "extension",
	"GET /v1/node/{id}/.well-known/jwks.json":            "extension",
	"GET /v1/node/{id}/.well-known/openid-configuration": "extension",
	"GET /.well-known/openid-configuration":              "in the shape of OIDC discovery: TestIdentityIsVerifiedByOthers",
}

// topics has the type of the object in the events of each topic.
var topics = map[string]any{
	"Allocation": nomad.Allocation{}, "Deployment": nomad.Deployment{}, "Evaluation": nomad.Evaluation{}, "Job": nomad.Job{},
	"Node": nomad.Node{}, "NodePool": nomad.NodePool{}, "Service": nomad.ServiceRegistration{}, "Variable": nomad.VariableMetadata{},
}

// fill says how far the answers fill a key.
type fill int

const (
	neverThere fill = iota
	thereButEmpty
	filled
)

// keyWalk collects how far answers fill the keys of Nomad's types: by TYPE.KEY, and by
// endpoint and TYPE.KEY.
type keyWalk struct {
	keys  map[string]fill
	where map[string]map[string]fill // of the type that an endpoint answers with, not of what is in it
	asked map[string]bool            // endpoints that answered
	root  reflect.Type               // of the answer that is walked
}

func newKeyWalk() *keyWalk {
	return &keyWalk{keys: map[string]fill{}, where: map[string]map[string]fill{}, asked: map[string]bool{}}
}

// structs are the types that are values of their own, and not walked.
var structs = []reflect.Type{reflect.TypeFor[time.Time]()}

// walkValue compares a decoded JSON value with the type that Nomad's client reads it into.
func (w *keyWalk) walkValue(endpoint string, t reflect.Type, v any) {
	switch {
	case v == nil || slices.Contains(structs, t):
		return
	case t.Kind() == reflect.Pointer:
		w.walkValue(endpoint, t.Elem(), v)
	case t.Kind() == reflect.Slice:
		list, _ := v.([]any)
		for _, e := range list {
			w.walkValue(endpoint, t.Elem(), e)
		}
	case t.Kind() == reflect.Map:
		m, _ := v.(map[string]any)
		for _, e := range m {
			w.walkValue(endpoint, t.Elem(), e)
		}
	case t.Kind() == reflect.Struct:
		if m, ok := v.(map[string]any); ok {
			w.walkObject(endpoint, t, t, m)
		}
	}
}

// headers are embedded in answers and read from HTTP headers, not from JSON.
var headers = []reflect.Type{reflect.TypeFor[nomad.QueryMeta](), reflect.TypeFor[nomad.WriteMeta]()}

func (w *keyWalk) walkObject(endpoint string, owner, t reflect.Type, m map[string]any) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous || slices.Contains(headers, f.Type):
			continue
		case f.Anonymous && name == "":
			in := f.Type
			if in.Kind() == reflect.Pointer {
				in = in.Elem()
			}
			w.walkObject(endpoint, owner, in, m)
			continue
		case name == "":
			name = f.Name
		}
		v, there := m[name]
		got := neverThere
		if there {
			got = thereButEmpty
			if !isEmptyJSON(v) {
				got = filled
			}
		}
		key := cmpOr(owner.Name(), "ANSWER") + "." + name
		w.keys[key] = max(w.keys[key], got)
		if owner == w.root {
			if w.where[endpoint] == nil {
				w.where[endpoint] = map[string]fill{}
			}
			w.where[endpoint][key] = max(w.where[endpoint][key], got)
		}
		w.walkValue(endpoint, f.Type, v)
	}
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// isEmptyJSON reports whether a decoded JSON value says nothing: null, zero, empty, false.
func isEmptyJSON(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	case string:
		return v == "" || v == "0001-01-01T00:00:00Z"
	}
	return v == nil || v == float64(0) || v == false
}

// walkAnswer walks a whole answer.
func (w *keyWalk) walkAnswer(endpoint string, t reflect.Type, v any) {
	w.root = elementOf(t)
	w.walkValue(endpoint, t, v)
}

// elementOf returns the type of an answer, or of its elements if it is a list.
func elementOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// walkEventPayload walks the payload of an event.
func (w *keyWalk) walkEventPayload(endpoint string, e map[string]any) {
	topic, _ := e["Topic"].(string)
	payload, _ := e["Payload"].(map[string]any)
	if of, ok := topics[topic]; ok {
		w.walkAnswer(endpoint+" "+topic, reflect.TypeOf(of), payload[topic])
	}
}

// walkAnswers walks all that a hub answered.
func (w *keyWalk) walkAnswers(tb testing.TB, said []answer) {
	tb.Helper()
	for _, a := range said {
		endpoint := endpointOf(a)
		of, ok := answered[endpoint]
		if !ok {
			if unwalked[endpoint] == "" {
				tb.Errorf("%s %s: it is not said what Nomad's client reads", a.method, a.path)
			}
			continue
		}
		w.asked[endpoint] = true
		for dec := json.NewDecoder(bytes.NewReader(a.body)); dec.More(); {
			var v any
			if err := dec.Decode(&v); err != nil {
				break // a stream that ended
			}
			w.walkAnswer(endpoint, reflect.TypeOf(of), v)
			if m, ok := v.(map[string]any); ok && endpoint == "GET /v1/event/stream" {
				list, _ := m["Events"].([]any)
				for _, e := range list {
					w.walkEventPayload(endpoint, e.(map[string]any))
				}
			}
		}
	}
}

// endpointOf is the pattern that served an answer: of those with the same method and as
// many parts, the one with the fewest placeholders.
func endpointOf(a answer) string {
	method, best := a.method, ""
	if method == "POST" {
		method = "PUT"
	}
	path := method + " " + a.path
	for known, pattern := range endpointPatterns() {
		if !pattern.MatchString(path) {
			continue
		}
		if best == "" || cmp.Or(cmp.Compare(strings.Count(known, "{"), strings.Count(best, "{")), cmp.Compare(known, best)) < 0 {
			best = known
		}
	}
	return best
}

var placeholder = regexp.MustCompile(`\\\{[a-z]+(\\\.){0,3}\\\}`)

// endpointPatterns are the patterns of the paths of all endpoints. They are compiled once: there are thousands of answers.
var endpointPatterns = sync.OnceValue(func() map[string]*regexp.Regexp {
	patterns := map[string]*regexp.Regexp{}
	for _, known := range slices.Concat(slices.Collect(maps.Keys(answered)), slices.Collect(maps.Keys(unwalked))) {
		patterns[known] = regexp.MustCompile("^" + placeholder.ReplaceAllString(regexp.QuoteMeta(known), "[^/]+") + "$")
	}
	return patterns
})

func (w *keyWalk) String() string {
	return fmt.Sprintf("%d keys of %d endpoints", len(w.keys), len(w.where))
}
