package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/hub/api"
)

var rewrite = flag.Bool("rewrite", false, "write the samples anew")

// sample is a request as Nomad's published client sends it, and its answer.
type sample struct {
	method, path string
	status       int
	asked, said  any // as JSON; nil: nothing
}

// proxy is a transport that keeps the last request, and the part of its answer that was read.
type proxy struct {
	sample
	body []byte
	said bytes.Buffer
}

func (p *proxy) RoundTrip(req *http.Request) (*http.Response, error) {
	*p = proxy{sample: sample{method: req.Method, path: req.URL.RequestURI()}}
	if req.Body != nil {
		b, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		p.body, req.Body = b, io.NopCloser(bytes.NewReader(b))
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	p.status = resp.StatusCode
	resp.Body = io.NopCloser(io.TeeReader(resp.Body, &p.said))
	return resp, nil
}

// recordedSample is the sample that the last request makes, with placeholders for ids in its path.
func (p *proxy) recordedSample(tb testing.TB, ids *strings.Replacer) sample {
	tb.Helper()
	s := p.sample
	s.path = uuid.ReplaceAllString(ids.Replace(s.path), "$$ID")
	for into, from := range map[*any]io.Reader{&s.asked: bytes.NewReader(p.body), &s.said: &p.said} {
		if err := json.NewDecoder(from).Decode(into); err != nil && err != io.EOF {
			tb.Fatalf("%s %s: %v", s.method, s.path, err)
		}
	}
	return s
}

var uuid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func (s sample) String() string {
	text := func(v any) string {
		if v == nil {
			return ""
		}
		b, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			panic(err)
		}
		return string(b) + "\n"
	}
	return fmt.Sprintf("%s %s\n%s----\n%d\n%s", s.method, s.path, text(s.asked), s.status, text(s.said))
}

func mustSample(tb testing.TB, file string) (s sample) {
	tb.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	request, answer, _ := strings.Cut(string(b), "----\n")
	line, asked, _ := strings.Cut(request, "\n")
	status, said, _ := strings.Cut(answer, "\n")
	s.method, s.path, _ = strings.Cut(line, " ")
	if _, err := fmt.Sscan(status, &s.status); err != nil {
		tb.Fatalf("%s: %v", file, err)
	}
	for text, into := range map[string]*any{asked: &s.asked, said: &s.said} {
		if text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), into); err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
	}
	return s
}

// shapeOf replaces the values in a JSON value by their kinds, and each list by its first element.
func shapeOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		shape := map[string]any{}
		for key, e := range v {
			shape[uuid.ReplaceAllString(key, "ID")] = shapeOf(e)
		}
		return shape
	case []any:
		if len(v) == 0 {
			return []any{}
		}
		return []any{shapeOf(v[0])}
	}
	return fmt.Sprintf("%T", v)
}

// differences lists the paths at which two shapes differ.
func differences(at string, got, want any) []string {
	g, isObject := got.(map[string]any)
	w, wantsObject := want.(map[string]any)
	gl, isList := got.([]any)
	wl, wantsList := want.([]any)
	switch {
	case isObject && wantsObject:
		var all []string
		keys := maps.Clone(g)
		maps.Copy(keys, w)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			_, is := g[key]
			_, should := w[key]
			switch {
			case !is:
				all = append(all, at+"."+key+" is missing")
			case !should:
				all = append(all, at+"."+key+" is new")
			default:
				all = append(all, differences(at+"."+key, g[key], w[key])...)
			}
		}
		return all
	case isList && wantsList && len(gl) > 0 && len(wl) > 0:
		return differences(at+"[0]", gl[0], wl[0])
	case !reflect.DeepEqual(got, want):
		return []string{fmt.Sprintf("%s is %v, and %v in the sample", at, got, want)}
	}
	return nil
}

// sampled are calls of Nomad's client: one request each.
func sampled(ids map[string]string) map[string]func(c *nomad.Client) error {
	one := 1
	web := func() *nomad.Job { return exampleJob("web") }
	two := func(_ any, err error) error { return err }
	done := func(_, _ any, err error) error { return err }
	return map[string]func(c *nomad.Client) error{
		"jobs-list": func(c *nomad.Client) error { return done(c.Jobs().List(nil)) },
		"jobs-parse": func(c *nomad.Client) error {
			return two(c.Jobs().ParseHCL("job \"web\" {\n group \"g\" {\n task \"t\" {\n driver = \"sim\"\n }\n }\n}", true))
		},
		"job-validate":     func(c *nomad.Client) error { return done(c.Jobs().Validate(web(), nil)) },
		"job-plan":         func(c *nomad.Client) error { return done(c.Jobs().Plan(web(), true, nil)) },
		"job-register":     func(c *nomad.Client) error { return done(c.Jobs().Register(web(), nil)) },
		"job-read":         func(c *nomad.Client) error { return done(c.Jobs().Info("shop", nil)) },
		"job-scale":        func(c *nomad.Client) error { return done(c.Jobs().Scale("web", "site", &one, "less", false, nil, nil)) },
		"job-scale-status": func(c *nomad.Client) error { return done(c.Jobs().ScaleStatus("shop", nil)) },
		"job-versions":     func(c *nomad.Client) error { _, _, _, err := c.Jobs().Versions("shop", false, nil); return err },
		"job-deployments":  func(c *nomad.Client) error { return done(c.Jobs().Deployments("shop", false, nil)) },
		"job-allocations":  func(c *nomad.Client) error { return done(c.Jobs().Allocations("shop", false, nil)) },
		"job-summary":      func(c *nomad.Client) error { return done(c.Jobs().Summary("shop", nil)) },
		"job-dispatch": func(c *nomad.Client) error {
			return done(c.Jobs().Dispatch("print", map[string]string{"who": "me"}, []byte("hi"), "", nil))
		},
		"job-stop":         func(c *nomad.Client) error { return done(c.Jobs().Deregister("web", false, nil)) },
		"allocations-list": func(c *nomad.Client) error { return done(c.Allocations().List(nil)) },
		"allocation-read":  func(c *nomad.Client) error { return done(c.Allocations().Info(ids["$ALLOC"], nil)) },
		"nodes-list":       func(c *nomad.Client) error { return done(c.Nodes().List(nil)) },
		"node-read":        func(c *nomad.Client) error { return done(c.Nodes().Info(string(nodeID), nil)) },
		"node-drain": func(c *nomad.Client) error {
			return two(c.Nodes().UpdateDrain(string(nodeID), &nomad.DrainSpec{Deadline: time.Hour}, false, nil))
		},
		"node-eligibility": func(c *nomad.Client) error { return two(c.Nodes().ToggleEligibility(string(nodeID), false, nil)) },
		"evaluations-list": func(c *nomad.Client) error { return done(c.Evaluations().List(nil)) },
		"evaluation-read":  func(c *nomad.Client) error { return done(c.Evaluations().Info(ids["$EVAL"], nil)) },
		"deployments-list": func(c *nomad.Client) error { return done(c.Deployments().List(nil)) },
		"deployment-read":  func(c *nomad.Client) error { return done(c.Deployments().Info(ids["$DEPLOYMENT"], nil)) },
		"deployment-fail":  func(c *nomad.Client) error { return done(c.Deployments().Fail(ids["$DEPLOYMENT"], nil)) },
		"scheduler-read":   func(c *nomad.Client) error { return done(c.Operator().SchedulerGetConfiguration(nil)) },
		"raft-read":        func(c *nomad.Client) error { return two(c.Operator().RaftGetConfiguration(nil)) },
		"autopilot-read":   func(c *nomad.Client) error { return done(c.Operator().AutopilotGetConfiguration(nil)) },
		"agent-self":       func(c *nomad.Client) error { return two(c.Agent().Self()) },
		"agent-members":    func(c *nomad.Client) error { return two(c.Agent().Members()) },
		"agent-health":     func(c *nomad.Client) error { return two(c.Agent().Health()) },
		"namespaces-list":  func(c *nomad.Client) error { return done(c.Namespaces().List(nil)) },
		"node-pools-list":  func(c *nomad.Client) error { return done(c.NodePools().List(nil)) },
		"events":           firstEvents,
	}
}

// firstEvents reads one batch of events of the topic Job.
func firstEvents(c *nomad.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := c.EventStream().Stream(ctx, map[nomad.Topic][]string{nomad.TopicJob: {"shop"}}, 1, nil)
	if err != nil {
		return err
	}
	return (<-stream).Err
}

// ownKeys are the keys of answers that Nomad's client has no field for, by sample: Skerry's own,
// and those that Nomad's servers send and its client does not read.
var ownKeys = map[string]string{
	"allocation-read":  "Job.SpecHash, Job.TaskGroups.Update.WaitFor, Job.Update.WaitFor, JobHash, SharedResources",
	"allocations-list": "DesiredTransition", "events": "Events.Namespace", "job-allocations": "DesiredTransition", "job-plan": "Diff.TaskGroups.Change", "jobs-list": "NodePool",
	"jobs-parse": "TaskGroups.Update.WaitFor, Update.WaitFor",
	"job-read":   "SpecHash, TaskGroups.Update.WaitFor, Update.WaitFor", "job-versions": "Versions.SpecHash, Versions.TaskGroups.Update.WaitFor, Versions.Update.WaitFor",
	"node-read": "BootID, ComputedClass, Epoch, Hub, Instance, NodeResources.Processors, Session, Site", "nodes-list": "Site",
	"deployment-fail": "Index", "job-dispatch": "Index", "job-register": "Index", "job-scale": "Index", "job-stop": "Index", "node-drain": "Index", "node-eligibility": "Index",
}

// TestSamples has Nomad's published client send the most common requests, and compares the keys and kinds of each
// request and answer with testdata/samples. -rewrite writes new samples; read them before you commit them.
func TestSamples(t *testing.T) {
	known := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(sampled(map[string]string{}))) {
		known[name+".txt"] = true
		t.Run(name, func(t *testing.T) {
			got, endpoint := mustCall(t, name)
			file := filepath.Join("testdata", "samples", name+".txt")
			if *rewrite {
				if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want := mustSample(t, file)
			if got.method != want.method || got.path != want.path || got.status != want.status {
				t.Errorf("%s %s: %d; in the sample %s %s: %d", got.method, got.path, got.status, want.method, want.path, want.status)
			}
			for _, d := range slices.Concat(differences("request", shapeOf(got.asked), shapeOf(want.asked)), differences("answer", shapeOf(got.said), shapeOf(want.said))) {
				t.Error(d)
			}
			if own := ownKeysOf(t, endpoint, want.said); own != ownKeys[name] {
				t.Errorf("Nomad's client has no field for %q", own)
			}
		})
	}
	files, err := os.ReadDir("testdata/samples")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !known[f.Name()] {
			t.Errorf("testdata/samples/%s is of no request", f.Name())
		}
	}
}

// mustCall makes a call of sampled to a hub with jobs, and returns its sample and its endpoint.
func mustCall(t *testing.T, name string) (s sample, endpoint string) {
	t.Helper()
	h, srv, setup := mustServe(t)
	deployment, alloc := mustDeploy(t, h)
	printer := batchJob("print")
	printer.ParameterizedJob = &nomad.ParameterizedJobConfig{Payload: "optional", MetaRequired: []string{"who"}}
	for _, job := range []*nomad.Job{printer, exampleJob("web")} {
		if _, _, err := setup.Jobs().Register(job, nil); err != nil {
			t.Fatal(err)
		}
	}
	evals, _, err := setup.Jobs().Evaluations("web", nil)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{"$ALLOC": string(alloc), "$DEPLOYMENT": string(deployment), "$EVAL": evals[0].ID, "$NODE": string(nodeID)}
	var pairs []string
	for placeholder, id := range ids {
		pairs = append(pairs, id, placeholder)
	}
	p := &proxy{}
	c, err := nomad.NewClient(&nomad.Config{Address: srv.URL, HttpClient: &http.Client{Transport: p}})
	if err != nil {
		t.Fatal(err)
	}
	if err := sampled(ids)[name](c); err != nil {
		t.Fatal(err)
	}
	endpoint = endpointOf(answer{method: p.method, path: strings.SplitN(p.path, "?", 2)[0]})
	return p.recordedSample(t, strings.NewReplacer(pairs...)), endpoint
}

// ownKeysOf lists the keys of an answer that Nomad's client has no field for.
func ownKeysOf(tb testing.TB, endpoint string, said any) string {
	tb.Helper()
	err := api.RefuseUnknownKeys([]byte(mustJSON(tb, said)), reflect.New(reflect.TypeOf(answered[endpoint])).Interface())
	if err == nil {
		return ""
	}
	_, list, _ := strings.Cut(strings.SplitN(err.Error(), " (", 2)[0], "unknown or unsupported keys: ")
	return strings.Join(slices.Compact(strings.Split(list, ", ")), ", ")
}
