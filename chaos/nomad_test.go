package chaos_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/chaos/cluster"
)

// TestNomadsClient drives a running cluster with Nomad's published Go client,
// through a hub that does not lead: register, list, read, logs, stop, purge.
func TestNomadsClient(t *testing.T) {
	t.Parallel()
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
	// On a machine that is busy an election may be going on.
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
	mustBecome(t, "two nodes are ready", func() (string, error) {
		nodes, _, err := client.Nodes().List(nil)
		for _, n := range nodes {
			if n.Status != "ready" {
				return n.Name + " is " + n.Status, err
			}
		}
		return missing(len(nodes), 2), err
	})

	task := nomad.NewTask("main", "raw_exec").SetConfig("command", "/bin/sh").
		SetConfig("args", []string{"-c", "echo hello from $NOMAD_ALLOC_NAME; exec sleep 86400"})
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

	// A blocking query wakes when the job is stopped.
	_, meta, err := client.Jobs().Info("web", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := client.Jobs().Deregister("web", false, nil); err != nil {
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

// mustLogs reads what a task printed, until there is a line.
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
