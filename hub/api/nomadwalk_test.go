package api_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"
)

// TestNomadKeys does the work of operators, with Nomad's published Go client against a hub and two edges, and against
// a hub with access control. It compares every answer with the client's type. Each key is filled by some answer, or testdata/nomadkeys.txt says why it is
// not.
func TestNomadKeys(t *testing.T) {
	c := mustDevCluster(t)
	c.waitUntil("two nodes are ready", func() string {
		ready := 0
		nodes, _, err := c.Nodes().List(nil)
		for _, n := range nodes {
			if n.Status == "ready" {
				ready++
			}
		}
		return missingOf(ready, 2, err)
	})
	c.changeScheduler(func(conf *nomad.SchedulerConfiguration) { conf.MemoryOversubscriptionEnabled = true })
	c.rollOut()
	c.failAndBlock()
	c.launchChildren()
	c.lookAtAllocs()
	c.lookAtNodes()
	c.makeVolumes()
	c.changeClusterSettings()
	c.readEventsAndLog()
	c.stopAndPurgeJob()
	a := newACLHub(t)
	a.said = &recorder{}
	a.purgeNode(a.useAccessControl())
	w := newKeyWalk()
	w.walkAnswers(t, c.said.successfulAnswers())
	w.walkAnswers(t, a.said.successfulAnswers())
	t.Log(w.String())
	w.checkAsked(t)
	w.checkReasons(t, mustReasons(t))
}

// TestEveryEndpointIsWalked goes through the declarations of endpoints. The answers of those that docs/api.md calls an
// extension are not walked: Nomad's client does not know them.
func TestEveryEndpointIsWalked(t *testing.T) {
	extensions := mustReadExtensions(t)
	for _, e := range newListFixture(t).api.Endpoints() {
		for _, method := range e.Methods {
			endpoint := method + " " + e.Path
			if method != http.MethodPost && answered[endpoint] == nil && unwalked[endpoint] == "" && !extensions[endpoint] {
				t.Errorf("%s: it is not said what Nomad's client reads, and docs/api.md does not call it an extension", endpoint)
			}
		}
	}
}

var (
	documented = regexp.MustCompile("`(GET|PUT|DELETE)(?: (/v1/[^`]*))?`")
	pathValue  = regexp.MustCompile(`:(\w+)`)
)

// mustReadExtensions returns the endpoints that docs/api.md calls an extension, as they are routed.
func mustReadExtensions(tb testing.TB) map[string]bool {
	tb.Helper()
	b, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		tb.Fatal(err)
	}
	extensions := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		endpoints, purpose, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !strings.HasPrefix(purpose, "extension") {
			continue
		}
		var methods []string // of the next path: `GET`, `PUT /v1/…`
		for _, code := range documented.FindAllStringSubmatch(endpoints, -1) {
			if methods = append(methods, code[1]); code[2] == "" {
				continue
			}
			for _, method := range methods {
				extensions[method+" "+pathValue.ReplaceAllString(code[2], "{$1}")] = true
			}
			methods = nil
		}
	}
	return extensions
}

func ptr[T any](v T) *T { return &v }

// waitForRunningAlloc returns an allocation of a job that runs.
func (c *devCluster) waitForRunningAlloc(job string) *nomad.Allocation {
	c.tb.Helper()
	var found *nomad.Allocation
	c.waitUntil("an allocation of "+job+" runs", func() string {
		for _, a := range c.allocsOfJob(job) {
			if a.ClientStatus == "running" && a.DesiredStatus == "run" {
				full, _, err := c.Allocations().Info(a.ID, nil)
				found = full
				return missingOf(0, 0, err)
			}
		}
		return "none"
	})
	return found
}

func (c *devCluster) lookAtAllocs() {
	c.tb.Helper()
	al := c.waitForRunningAlloc("shop")
	_, _, err := c.Allocations().List(&nomad.QueryOptions{Params: map[string]string{"resources": "true"}})
	c.mustSucceed(err)
	_, err = c.Allocations().Stats(al, nil)
	c.mustSucceed(err)
	c.waitUntil("a check is done", func() string {
		checks, err := c.Allocations().Checks(al.ID, nil)
		if err == nil && len(checks) == 0 {
			return "none"
		}
		return missingOf(0, 0, err)
	})
	_, _, err = c.Allocations().Services(al.ID, nil)
	c.mustSucceed(err)
	_, _, err = c.AllocFS().List(al, "alloc/logs", nil)
	c.mustSucceed(err)
	_, _, err = c.AllocFS().Stat(al, "alloc/logs/main.stdout.0", nil)
	c.mustSucceed(err)
	c.readTaskLogs(al)
	c.mustSucceed(c.Allocations().Signal(al, nil, "main", "SIGCONT"))
	c.mustSucceed(c.Allocations().Restart(al, "main", nil))
	_, err = c.Allocations().Stop(al, &nomad.QueryOptions{Params: map[string]string{"reschedule": "true", "no_shutdown_delay": "true"}})
	c.mustSucceed(err)
	c.untilReplaced(al.ID)
	list, _, err := c.AllocFS().List(al, "/", nil)
	if err != nil || len(list) == 0 || !list[0].IsDir {
		c.tb.Fatalf("%+v, %v", list, err)
	}
	for _, job := range []string{"shop", "fails", "full", "everywhere"} {
		for _, a := range c.allocsOfJob(job) {
			_, _, err = c.Allocations().Info(a.ID, nil)
			c.mustSucceed(err)
		}
	}
}

func (c *devCluster) untilReplaced(id string) {
	c.tb.Helper()
	c.waitUntil("the stopped allocation is replaced", func() string {
		a, _, err := c.Allocations().Info(id, nil)
		if err == nil && a.NextAllocation == "" {
			return "no next allocation"
		}
		return missingOf(0, 0, err)
	})
}

// readTaskLogs reads frames of a task's output, and of a file as a stream.
func (c *devCluster) readTaskLogs(al *nomad.Allocation) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), patience)
	defer cancel()
	q := (&nomad.QueryOptions{}).WithContext(ctx)
	frames, errs := c.AllocFS().Logs(al, false, "main", "stdout", "start", 2, ctx.Done(), q)
	c.drainFrames(frames, errs)
	frames, errs = c.AllocFS().Stream(al, "alloc/logs/main.stdout.0", "start", 2, ctx.Done(), q)
	select {
	case <-frames:
	case err := <-errs:
		c.mustSucceed(err)
	}
}

func (c *devCluster) drainFrames(frames <-chan *nomad.StreamFrame, errs <-chan error) {
	c.tb.Helper()
	for {
		select {
		case _, ok := <-frames:
			if !ok {
				return
			}
		case err := <-errs:
			if err != nil && err != io.EOF {
				c.tb.Fatal(err)
			}
			return
		}
	}
}

func (c *devCluster) lookAtNodes() {
	c.tb.Helper()
	id := string(c.nodes[0])
	_, err := c.Nodes().ToggleEligibility(id, false, nil)
	c.mustSucceed(err)
	_, err = c.Nodes().ToggleEligibility(id, true, nil)
	c.mustSucceed(err)
	_, _, err = c.Nodes().ForceEvaluate(id, nil)
	c.mustSucceed(err)
	_, err = c.Nodes().Stats(id, nil)
	c.mustSucceed(err)
	_, _, err = c.Nodes().Allocations(id, nil)
	c.mustSucceed(err)
	_, err = c.Nodes().UpdateDrainOpts(id, &nomad.DrainOptions{
		DrainSpec: &nomad.DrainSpec{Deadline: time.Hour, IgnoreSystemJobs: true}, MarkEligible: false, Meta: map[string]string{"message": "test"},
	}, nil)
	c.mustSucceed(err)
	_, _, err = c.Nodes().Info(id, nil)
	c.mustSucceed(err)
	_, _, err = c.Nodes().List(&nomad.QueryOptions{Params: map[string]string{"resources": "true", "os": "true"}})
	c.mustSucceed(err)
	_, err = c.Nodes().UpdateDrainOpts(id, &nomad.DrainOptions{MarkEligible: true, Meta: map[string]string{"message": "over"}}, nil)
	c.mustSucceed(err)
	_, _, err = c.NodePools().ListNodes("default", nil)
	c.mustSucceed(err)
	_, _, err = c.NodePools().ListJobs("default", nil)
	c.mustSucceed(err)
}

// changeVariables stores, locks and deletes a variable, and replaces the key that it is encrypted with.
func (c *devCluster) changeVariables() {
	c.tb.Helper()
	v, _, err := c.Variables().Create(&nomad.Variable{Path: "settings", Items: nomad.VariableItems{"a": "b"}}, nil)
	c.mustSucceed(err)
	v.Lock = &nomad.VariableLock{TTL: "1m"}
	v, _, err = c.Variables().AcquireLock(v, nil)
	c.mustSucceed(err)
	_, _, err = c.Variables().Read("settings", nil)
	c.mustSucceed(err)
	_, _, err = c.Variables().List(nil)
	c.mustSucceed(err)
	_, _, err = c.Variables().RenewLock(v, nil)
	c.mustSucceed(err)
	_, _, err = c.Variables().ReleaseLock(v, nil)
	c.mustSucceed(err)
	c.mustReturn(c.Variables().Delete("settings", nil))
	former, _, err := c.Keyring().List(nil)
	c.mustSucceed(err)
	_, _, err = c.Keyring().Rotate(&nomad.KeyringRotateOptions{}, nil)
	c.mustSucceed(err)
	c.mustReturn(c.Keyring().Delete(&nomad.KeyringDeleteOptions{KeyID: former[0].KeyID}, nil))
}

func (c *devCluster) changeClusterSettings() {
	c.tb.Helper()
	c.mustReturn(c.Namespaces().Register(&nomad.Namespace{
		Name: "ships", Description: "at sea", Meta: map[string]string{"a": "b"},
		Capabilities: &nomad.NamespaceCapabilities{EnabledTaskDrivers: []string{"raw_exec"}, DisabledTaskDrivers: []string{"docker"}},
	}, nil))
	_, _, err := c.Namespaces().List(nil)
	c.mustSucceed(err)
	_, _, err = c.Namespaces().Info("ships", nil)
	c.mustSucceed(err)
	c.putRawPath("/v1/namespaces", map[string]any{"Name": "ships", "Description": "at sea"})
	c.putRawPath("/v1/namespace/ships", map[string]any{"Description": "by its path"})
	c.mustReturn(c.Namespaces().Delete("ships", nil))
	c.mustReturn(c.NodePools().Register(&nomad.NodePool{
		Name: "farms", Description: "windy", Meta: map[string]string{"a": "b"},
		SchedulerConfiguration: &nomad.NodePoolSchedulerConfiguration{SchedulerAlgorithm: "spread", MemoryOversubscriptionEnabled: ptr(true)},
	}, nil))
	_, _, err = c.NodePools().List(nil)
	c.mustSucceed(err)
	_, _, err = c.NodePools().Info("farms", nil)
	c.mustSucceed(err)
	c.mustReturn(c.NodePools().Delete("farms", nil))
	c.changeVariables()
	all := func(on bool) {
		c.changeScheduler(func(conf *nomad.SchedulerConfiguration) {
			conf.RejectJobRegistration = on
			conf.PreemptionConfig.BatchSchedulerEnabled, conf.PreemptionConfig.ServiceSchedulerEnabled, conf.PreemptionConfig.SysBatchSchedulerEnabled = on, on, on
		})
	}
	all(true)
	all(false)
	_, err = c.Operator().RaftGetConfiguration(nil)
	c.mustSucceed(err)
	_, _, err = c.Operator().AutopilotServerHealth(nil)
	c.mustSucceed(err)
	_, err = c.Agent().Self()
	c.mustSucceed(err)
	_, err = c.Agent().Members()
	c.mustSucceed(err)
	_, err = c.Agent().Health()
	c.mustSucceed(err)
	_, err = c.Agent().Servers()
	c.mustSucceed(err)
	_, err = c.Agent().Host("", "", nil)
	c.mustSucceed(err)
	_, _, err = c.Operator().MetricsSummary(nil)
	c.mustSucceed(err)
	rules, _, err := c.Operator().AutopilotGetConfiguration(nil)
	c.mustSucceed(err)
	c.mustReturn(c.Operator().AutopilotSetConfiguration(rules, nil))
	c.putRawPath("/v1/node/pool/farms", map[string]any{"Description": "by its path"})
	c.mustReturn(c.NodePools().Delete("farms", nil))
	_, err = c.Regions().List()
	c.mustSucceed(err)
	_, err = c.Status().Leader()
	c.mustSucceed(err)
	_, err = c.Status().Peers()
	c.mustSucceed(err)
}

// changeScheduler changes the scheduler's configuration, and reads it back.
func (c *devCluster) changeScheduler(change func(*nomad.SchedulerConfiguration)) {
	c.tb.Helper()
	read, _, err := c.Operator().SchedulerGetConfiguration(nil)
	c.mustSucceed(err)
	change(read.SchedulerConfig)
	_, _, err = c.Operator().SchedulerSetConfiguration(read.SchedulerConfig, nil)
	c.mustSucceed(err)
	_, _, err = c.Operator().SchedulerGetConfiguration(nil)
	c.mustSucceed(err)
}

func (c *devCluster) mustReturn(_ any, err error) {
	c.tb.Helper()
	c.mustSucceed(err)
}

// readEventsAndLog reads all events so far, and a line of the hub's log.
func (c *devCluster) readEventsAndLog() {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), patience)
	defer cancel()
	stream, err := c.EventStream().Stream(ctx, map[nomad.Topic][]string{"*": {"*"}}, 1, &nomad.QueryOptions{})
	c.mustSucceed(err)
	wanted := []string{"Variable", "NodePool", "Job", "Allocation", "Deployment", "Evaluation", "Node", "Service"}
	for batch := range stream {
		c.mustSucceed(batch.Err)
		for _, e := range batch.Events {
			c.decodeEvent(e)
			wanted = slices.DeleteFunc(wanted, func(t string) bool { return t == string(e.Topic) })
		}
		if batch.Index > 0 && len(wanted) == 0 {
			c.readLog(ctx)
			return
		}
	}
	c.tb.Fatalf("no event of %v", wanted)
}

// readLog reads a line of the hub's log.
func (c *devCluster) readLog(ctx context.Context) {
	c.tb.Helper()
	lines, errs := c.Agent().Monitor(ctx.Done(), &nomad.QueryOptions{Params: map[string]string{"log_level": "debug"}})
	select {
	case <-lines:
	case err := <-errs:
		c.mustSucceed(err)
	}
}

// decodeEvent reads an event's payload as Nomad's client does, which is stricter than JSON.
func (c *devCluster) decodeEvent(e nomad.Event) {
	c.tb.Helper()
	// The payload of a dispatched job is text in JSON, which Nomad's client does not read there.
	if _, err := e.Job(); err != nil && !strings.Contains(err.Error(), "'Job.Payload'") {
		c.tb.Errorf("event %s of %s: %v", e.Type, e.Topic, err)
	}
}

// stopAndPurgeJob stops a job and purges it.
func (c *devCluster) stopAndPurgeJob() {
	c.tb.Helper()
	_, _, err := c.Jobs().Deregister("shop", false, nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().Info("shop", nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().List(nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().ScaleStatus("shop", nil)
	c.mustSucceed(err)
	c.getRawPath("/v1/jobs/statuses")
	idle, err := c.Jobs().ParseHCL(idleJob, true)
	c.mustSucceed(err)
	c.putRawPath("/v1/job/idle", map[string]any{"Job": idle})
	c.removeEndedAllocs()
	c.mustSucceed(c.System().GarbageCollect())
	c.mustSucceed(c.System().ReconcileSummaries())
}
