package real_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/api/contexts"

	"skerry/chaos/cluster"
	"skerry/chaos/real"
)

// mustThreeHubs starts three hubs and two edges, and a client of Nomad's that asks a hub
// which does not lead.
func mustThreeHubs(t *testing.T) (real.Ground, *cluster.Cluster, *nomad.Client) {
	t.Helper()
	g, _ := mustGround(t)
	c, err := cluster.Start(t.Context(), cluster.Config{
		Dir: g.Dir, HubBinary: g.HubBinary, EdgeBinary: g.EdgeBinary, Net: g.Net, Hubs: 3, Edges: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := nomad.NewClient(&nomad.Config{Address: c.Hubs[2].URL()})
	if err != nil {
		t.Fatal(err)
	}
	return g, c, client
}

// TestNomadsClient drives a running cluster with Nomad's published Go client,
// through a hub that does not lead: register, list, read, logs, stop, purge.
func TestNomadsClient(t *testing.T) {
	t.Parallel()
	_, _, client := mustThreeHubs(t)
	// On a busy machine an election may be under way.
	mustBecome(t, "a leader is known", func() (string, error) {
		leader, err := client.Status().Leader()
		if leader == "" {
			return "there is none", err
		}
		return "", err
	})
	mustBecome(t, "three hubs are peers", func() (string, error) {
		peers, err := client.Status().Peers()
		return missing(len(peers), 3), err
	})
	mustBecome(t, "two nodes are ready", func() (string, error) { return readyNodes(client, 2) })

	task := nomad.NewTask("main", "raw_exec").SetConfig("command", "/bin/sh").
		SetConfig("args", []string{"-c", "echo hello from $NOMAD_ALLOC_NAME; exec sleep 86400"})
	task.Actions = []*nomad.Action{{Name: "greet", Command: "sh", Args: []string{"-c", "echo ${NOMAD_ALLOC_NAME}; read line; echo $line >&2; exit 5"}}}
	task.ShutdownDelay = time.Hour // no stop of this test waits for it
	job := nomad.NewServiceJob("web", "web", "global", 50).AddDatacenter("*").
		AddTaskGroup(nomad.NewTaskGroup("site", 2).AddTask(task))
	reg, _, err := client.Jobs().Register(job, nil)
	if err != nil {
		t.Fatal(err)
	}
	var allocs []*nomad.AllocationListStub
	mustBecome(t, "two allocations run", func() (string, error) {
		allocs, _, err = client.Jobs().Allocations("web", false, nil)
		for _, a := range allocs {
			if a.ClientStatus != "running" {
				return a.Name + " is " + a.ClientStatus, err
			}
		}
		return missing(len(allocs), 2), err
	})
	eval, _, err := client.Evaluations().Info(reg.EvalID, nil)
	if err != nil || eval.Status != "complete" {
		t.Fatalf("evaluation %+v, %v", eval, err)
	}
	if of, _, err := client.Evaluations().Allocations(reg.EvalID, nil); err != nil || len(of) != 2 {
		t.Fatalf("%d allocations of the evaluation, %v", len(of), err)
	}
	alloc, _, err := client.Allocations().Info(allocs[0].ID, nil)
	if err != nil || alloc.TaskStates["main"].State != "running" || alloc.Job == nil {
		t.Fatalf("allocation %+v, %v", alloc, err)
	}
	if got, want := mustLogs(t, client, alloc), "hello from "+alloc.Name; !strings.Contains(got, want) {
		t.Fatalf("logs %q, want %q", got, want)
	}
	if of, _, err := client.Nodes().Allocations(alloc.NodeID, nil); err != nil || len(of) == 0 {
		t.Fatalf("%d allocations of the node, %v", len(of), err)
	}

	mustServeOperators(t, client, alloc)

	// A blocking query wakes when the job is stopped.
	_, meta, err := client.Jobs().Info("web", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := client.Jobs().DeregisterOpts("web", &nomad.DeregisterOptions{NoShutdownDelay: true}, nil); err != nil {
		t.Fatal(err)
	}
	stopped, _, err := client.Jobs().Info("web", &nomad.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: time.Minute})
	if err != nil || !*stopped.Stop {
		t.Fatalf("after the stop: %+v, %v", stopped, err)
	}
	mustBecome(t, "both are complete", func() (string, error) {
		sum, _, err := client.Jobs().Summary("web", nil)
		if err != nil {
			return "", err
		}
		return missing(sum.Summary["site"].Complete, 2), nil
	})
	if _, _, err := client.Jobs().Deregister("web", true, nil); err != nil {
		t.Fatal(err)
	}
	if jobs, _, err := client.Jobs().List(nil); err != nil || len(jobs) != 0 {
		t.Fatalf("%d jobs after the purge, %v", len(jobs), err)
	}
}

// mustServeOperators uses the requests by which people look at a running job: pages, filters, searches, events, files,
// and the hubs themselves.
func mustServeOperators(t *testing.T, client *nomad.Client, alloc *nomad.Allocation) {
	t.Helper()
	page, meta, err := client.Allocations().List(&nomad.QueryOptions{PerPage: 1, Filter: `ClientStatus == "running"`})
	if err != nil || len(page) != 1 || meta.NextToken == "" {
		t.Fatalf("first page: %d, token %q, %v", len(page), meta.NextToken, err)
	}
	rest, meta, err := client.Allocations().List(&nomad.QueryOptions{PerPage: 1, Filter: `ClientStatus == "running"`, NextToken: meta.NextToken})
	if err != nil || len(rest) != 1 || rest[0].ID == page[0].ID || meta.NextToken != "" {
		t.Fatalf("second page: %+v, %v", rest, err)
	}
	if count, _, err := client.Evaluations().Count(&nomad.QueryOptions{Filter: `JobID == "web"`}); err != nil || count.Count == 0 {
		t.Fatalf("evaluations: %+v, %v", count, err)
	}
	found, _, err := client.Search().PrefixSearch(alloc.ID[:8], contexts.All, nil)
	if err != nil || len(found.Matches[contexts.Allocs]) != 1 {
		t.Fatalf("search: %+v, %v", found, err)
	}
	if fuzzy, _, err := client.Search().FuzzySearch("eb.si", contexts.Allocs, nil); err != nil || len(fuzzy.Matches[contexts.Allocs]) != 2 {
		t.Fatalf("fuzzy search: %+v, %v", fuzzy, err)
	}
	mustTellEvents(t, client, alloc)
	list, _, err := client.AllocFS().List(alloc, "/", nil)
	if err != nil || len(list) != 2 || list[0].Name != "alloc" || list[1].Name != "main" {
		t.Fatalf("folder: %+v, %v", list, err)
	}
	file, err := client.AllocFS().Cat(alloc, "alloc/logs/main.stdout.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if b, err := io.ReadAll(file); err != nil || !strings.Contains(string(b), "hello from") {
		t.Fatalf("file: %q, %v", b, err)
	}
	if _, _, err := client.AllocFS().List(alloc, "main/secrets", nil); err == nil || !strings.Contains(err.Error(), "403") {
		t.Fatalf("secrets: %v", err)
	}
	mustRunCommands(t, client, alloc)
	mustRunActions(t, client, alloc)
	mustMeasure(t, client, alloc)
	mustArrange(t, client)
	mustHear(t, client, alloc)
	raft, err := client.Operator().RaftGetConfiguration(nil)
	if err != nil || len(raft.Servers) != 3 {
		t.Fatalf("raft configuration: %+v, %v", raft, err)
	}
	mustBecome(t, "three hubs are healthy", func() (string, error) {
		health, _, err := client.Operator().AutopilotServerHealth(nil)
		if err != nil {
			return "", err
		}
		return missing(health.FailureTolerance, 1), nil
	})
	saved, err := client.Operator().Snapshot(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	if n, err := io.Copy(io.Discard, saved); err != nil || n == 0 {
		t.Fatalf("a snapshot of %d bytes, %v", n, err)
	}
}

// mustMeasure asks for the usage of an allocation and its node. The task sleeps, and has memory.
func mustMeasure(t *testing.T, client *nomad.Client, alloc *nomad.Allocation) {
	t.Helper()
	used, err := client.Allocations().Stats(alloc, nil)
	if err != nil || used.Tasks["main"] == nil || used.ResourceUsage.MemoryStats.RSS < 4096 || len(used.Tasks["main"].Pids) != 1 || used.Timestamp == 0 {
		t.Fatalf("the allocation uses %+v, %v", used, err)
	}
	host, err := client.Nodes().Stats(alloc.NodeID, nil)
	if err != nil || host.Memory.Used == 0 || len(host.CPU) == 0 || host.AllocDirStats.Size == 0 || host.Uptime == 0 {
		t.Fatalf("the node uses %+v, %v", host, err)
	}
}

// mustArrange makes a namespace and a node pool, changes the configuration of the scheduler, and undoes it all. Each
// hub answers with the changes that it passed on to the leader.
func mustArrange(t *testing.T, client *nomad.Client) {
	t.Helper()
	if _, err := client.Namespaces().Register(&nomad.Namespace{Name: "ships"}, nil); err != nil {
		t.Fatal(err)
	}
	boat := nomad.NewServiceJob("boat", "boat", "global", 50).AddDatacenter("nowhere").
		AddTaskGroup(nomad.NewTaskGroup("g", 1).AddTask(nomad.NewTask("main", "raw_exec").SetConfig("command", "/bin/true")))
	ships := "ships"
	boat.Namespace = &ships
	if _, _, err := client.Jobs().Register(boat, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Namespaces().Delete("ships", nil); err == nil || !strings.Contains(err.Error(), "job boat") {
		t.Fatalf("a namespace in use was deleted: %v", err)
	}
	if _, _, err := client.Jobs().Deregister("boat", true, &nomad.WriteOptions{Namespace: "ships"}); err != nil {
		t.Fatal(err)
	}
	mustBecome(t, "the namespace is deleted", func() (string, error) {
		_, err := client.Namespaces().Delete("ships", nil)
		return "", err
	})
	if _, err := client.NodePools().Register(&nomad.NodePool{Name: "farms"}, nil); err != nil {
		t.Fatal(err)
	}
	if nodes, _, err := client.NodePools().ListNodes("default", nil); err != nil || len(nodes) != 2 {
		t.Fatalf("%d nodes in the default pool, %v", len(nodes), err)
	}
	if _, err := client.NodePools().Delete("farms", nil); err != nil {
		t.Fatal(err)
	}
	before, _, err := client.Operator().SchedulerGetConfiguration(nil)
	if err != nil {
		t.Fatal(err)
	}
	set := *before.SchedulerConfig
	set.SchedulerAlgorithm = nomad.SchedulerAlgorithmSpread
	for _, c := range []*nomad.SchedulerConfiguration{&set, before.SchedulerConfig} {
		if res, _, err := client.Operator().SchedulerSetConfiguration(c, nil); err != nil || !res.Updated {
			t.Fatalf("set the scheduler: %+v, %v", res, err)
		}
	}
}

// mustHear follows the logs of the hub and of the allocation's node: the first line says that a client follows.
func mustHear(t *testing.T, client *nomad.Client, alloc *nomad.Allocation) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, node := range []string{"", alloc.NodeID} {
		q := &nomad.QueryOptions{Params: map[string]string{"log_level": "debug", "node_id": node}}
		lines, errs := client.Agent().Monitor(nil, q.WithContext(ctx))
		heard := ""
		for !strings.Contains(heard, "a client follows the log") {
			select {
			case line := <-lines:
				if line != nil {
					heard += string(line.Data)
				}
			case err := <-errs:
				t.Fatalf("of node %q is heard %q: %v", node, heard, err)
			}
		}
	}
}

// mustRunCommands runs some beside the allocation's task. Of two edges and three hubs
// the one that is asked has the session of one at most.
func mustRunCommands(t *testing.T, client *nomad.Client, alloc *nomad.Allocation) {
	t.Helper()
	stubs, _, err := client.Jobs().Allocations(alloc.JobID, false, nil)
	if err != nil || len(stubs) != 2 {
		t.Fatalf("%d allocations, %v", len(stubs), err)
	}
	for _, stub := range stubs {
		on := &nomad.Allocation{ID: stub.ID, NodeID: stub.NodeID}
		for _, tty := range []bool{false, true} {
			var out, wrong strings.Builder
			code, err := client.Allocations().Exec(t.Context(), on, "main", tty, []string{"sh", "-c", "echo $NOMAD_ALLOC_NAME; read line; echo $line >&2; exit 4"},
				strings.NewReader("typed\n"), &out, &wrong, nil, nil)
			said := out.String() + wrong.String()
			if err != nil || code != 4 || !strings.Contains(said, stub.Name) || !strings.Contains(said, "typed") || tty != (wrong.Len() == 0) {
				t.Errorf("a command on %s, terminal %t: code %d, %v, wrote %q and %q", stub.NodeName, tty, code, err, out.String(), wrong.String())
			}
		}
	}
}

// mustRunActions runs the job's action in each of its allocations, and in any: the edge of
// one at most has its session at the hub that is asked.
func mustRunActions(t *testing.T, client *nomad.Client, alloc *nomad.Allocation) {
	t.Helper()
	var actions []struct {
		Name, Command, TaskName, TaskGroupName string
		Args                                   []string
	}
	if _, err := client.Raw().Query("/v1/job/web/actions", &actions, nil); err != nil || len(actions) != 1 ||
		actions[0].Name != "greet" || actions[0].TaskName != "main" || actions[0].TaskGroupName != "site" || len(actions[0].Args) != 2 {
		t.Fatalf("actions %+v, %v", actions, err)
	}
	stubs, _, err := client.Jobs().Allocations(alloc.JobID, false, nil)
	if err != nil || len(stubs) != 2 {
		t.Fatalf("%d allocations, %v", len(stubs), err)
	}
	for _, on := range []*nomad.Allocation{
		{ID: stubs[0].ID, NodeID: stubs[0].NodeID, TaskGroup: "site", Name: stubs[0].Name},
		{ID: stubs[1].ID, NodeID: stubs[1].NodeID, TaskGroup: "site", Name: stubs[1].Name},
		{TaskGroup: "site", NodeID: stubs[0].NodeID, Name: "web.site["},
	} {
		for _, tty := range []bool{false, true} {
			var out, wrong strings.Builder
			code, err := client.Jobs().ActionExec(t.Context(), on, "web", "main", tty, nil, "greet", strings.NewReader("typed\n"), &out, &wrong, nil, nil)
			said := out.String() + wrong.String()
			if err != nil || code != 5 || !strings.Contains(said, on.Name) || !strings.Contains(said, "typed") || tty != (wrong.Len() == 0) {
				t.Errorf("an action in %q, terminal %t: code %d, %v, wrote %q and %q", on.ID, tty, code, err, out.String(), wrong.String())
			}
		}
	}
	on := &nomad.Allocation{ID: stubs[0].ID, NodeID: stubs[0].NodeID, TaskGroup: "site"}
	if _, err := client.Jobs().ActionExec(t.Context(), on, "web", "main", false, nil, "nope", strings.NewReader(""), io.Discard, io.Discard, nil, nil); err == nil || !strings.Contains(err.Error(), `no action "nope"`) {
		t.Errorf("an action that there is none of: %v", err)
	}
}

// mustTellEvents reads the events of a job, from the beginning.
func mustTellEvents(t *testing.T, client *nomad.Client, alloc *nomad.Allocation) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stream, err := client.EventStream().Stream(ctx, map[nomad.Topic][]string{
		nomad.TopicJob: {"web"}, nomad.TopicAllocation: {alloc.ID},
	}, 0, &nomad.QueryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for batch := range stream {
		if batch.Err != nil {
			t.Fatalf("after %v: %v", told, batch.Err)
		}
		for _, e := range batch.Events {
			told = append(told, e.Type)
			if a, err := e.Allocation(); err == nil && a != nil && a.ClientStatus == "running" {
				if told[0] != "JobRegistered" {
					t.Fatalf("events: %v", told)
				}
				return
			}
		}
	}
	t.Fatalf("the stream ended after %v", told)
}

func missing(have, want int) string {
	if have == want {
		return ""
	}
	return fmt.Sprintf("%d of %d", have, want)
}

func mustBecome(tb testing.TB, what string, check func() (missing string, err error)) {
	tb.Helper()
	err := cluster.Eventually(tb.Context(), 30*time.Second, what, func(context.Context) string {
		missing, err := check()
		if err != nil {
			return err.Error()
		}
		return missing
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// mustLogs reads the output of a task, until there is a line.
func mustLogs(tb testing.TB, client *nomad.Client, alloc *nomad.Allocation) string {
	tb.Helper()
	cancel := make(chan struct{})
	defer close(cancel)
	frames, errs := client.AllocFS().Logs(alloc, true, "main", "stdout", "start", 0, cancel, nil)
	var got strings.Builder
	late := time.After(30 * time.Second)
	for !strings.Contains(got.String(), "\n") {
		select {
		case f, ok := <-frames:
			if !ok {
				return got.String()
			}
			got.Write(f.Data)
		case err := <-errs:
			tb.Fatal(err)
		case <-late:
			tb.Fatalf("no line in 30 s, only %q", got.String())
		}
	}
	return got.String()
}
