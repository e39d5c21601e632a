package real_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/chaos/cluster"
)

// TestSnapshotOfThreeHubs saves the state of three hubs by command, has edges report
// more, and restores it by command: all hubs have it, and nothing on the machines was
// begun again or ended for it.
func TestSnapshotOfThreeHubs(t *testing.T) {
	t.Parallel()
	g, c, client := mustThreeHubs(t)
	mustBecome(t, "two nodes are ready", func() (string, error) { return readyNodes(client, 2) })
	begun, open := filepath.Join(g.Dir, "begun"), filepath.Join(g.Dir, "open")
	script := func(id, jobType string, count int, then string) {
		t.Helper()
		task := nomad.NewTask("main", "raw_exec").SetConfig("command", "/bin/sh").
			SetConfig("args", []string{"-c", "echo " + id + " >> " + begun + "; " + then})
		job := nomad.NewServiceJob(id, id, "global", 50).AddDatacenter("*").AddTaskGroup(nomad.NewTaskGroup("site", count).AddTask(task))
		job.Type = &jobType
		if _, _, err := client.Jobs().Register(job, nil); err != nil {
			t.Fatal(err)
		}
		mustBecome(t, id+" runs", func() (string, error) { return allAre(client, id, count, "running") })
	}
	script("web", "service", 2, "exec sleep 86400")
	script("count", "batch", 1, "while [ ! -e "+open+" ]; do sleep 0.1; done")
	before, _, err := client.Jobs().Allocations("web", false, nil)
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(g.Dir, "saved.snap")
	mustSkerry(t, g.HubBinary, c.Hubs[1], "operator", "snapshot", "save", file)
	script("extra", "service", 1, "exec sleep 86400")
	if err := os.WriteFile(open, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mustBecome(t, "the batch job is done", func() (string, error) { return allAre(client, "count", 1, "complete") })

	// A damaged or shortened snapshot is refused, and the state stays as it was.
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"damaged": append(bytes.Clone(whole[:len(whole)-20]), make([]byte, 20)...), "short": whole[:len(whole)/2], "foreign": []byte("not ours"),
	} {
		other := filepath.Join(g.Dir, name)
		if err := os.WriteFile(other, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := skerry(t, g.HubBinary, c.Hubs[0], "operator", "snapshot", "restore", other)
		if err == nil || !strings.Contains(out, "nothing was changed") {
			t.Errorf("a snapshot that is %s: %v\n%s", name, err, out)
		}
	}
	if _, _, err := client.Jobs().Info("extra", nil); err != nil {
		t.Errorf("after what was refused: %v", err)
	}

	for i, h := range c.Hubs { // one of them leads, two do not
		out := mustSkerry(t, g.HubBinary, h, "operator", "snapshot", "restore", file)
		if !strings.Contains(out, "with 2 jobs and 2 nodes") {
			t.Errorf("restored at %s: %s", h.Name, out)
		}
		if _, _, err := client.Jobs().Info("extra", nil); err == nil && i == 0 {
			t.Error("a job that was registered after the snapshot is there")
		}
	}
	for _, h := range c.Hubs {
		own, err := nomad.NewClient(&nomad.Config{Address: h.URL()})
		if err != nil {
			t.Fatal(err)
		}
		stale := &nomad.QueryOptions{AllowStale: true}
		mustBecome(t, h.Name+" has what was restored", func() (string, error) {
			jobs, _, err := own.Jobs().List(stale)
			return missing(len(jobs), 2), err
		})
	}
	mustBecome(t, "the edges are back with their history", func() (string, error) { return readyNodes(client, 2) })
	mustBecome(t, "web runs on", func() (string, error) { return allAre(client, "web", 2, "running") })
	mustBecome(t, "the batch job is done", func() (string, error) { return allAre(client, "count", 1, "complete") })
	after, _, err := client.Jobs().Allocations("web", false, nil)
	if err != nil || len(after) != len(before) {
		t.Fatalf("%d allocations of web, had %d: %v", len(after), len(before), err)
	}
	for _, a := range after {
		if a.ID != before[0].ID && a.ID != before[1].ID {
			t.Errorf("allocation %s is a new one", a.ID)
		}
	}
	lines, err := os.ReadFile(begun)
	if got := strings.Fields(string(lines)); err != nil || len(got) != 4 {
		t.Errorf("begun on the machines: %v, %v; want web twice, count and extra once", got, err)
	}
	health := mustSkerry(t, g.HubBinary, c.Hubs[0], "fleet", "status")
	if !strings.Contains(health, "does not know") {
		t.Errorf("nothing shows that an edge keeps what is forgotten:\n%s", health)
	}
}

func readyNodes(client *nomad.Client, want int) (string, error) {
	nodes, _, err := client.Nodes().List(nil)
	for _, n := range nodes {
		if n.Status != "ready" {
			return n.Name + " is " + n.Status, err
		}
	}
	return missing(len(nodes), want), err
}

func allAre(client *nomad.Client, job string, count int, status string) (string, error) {
	allocs, _, err := client.Jobs().Allocations(job, false, nil)
	for _, a := range allocs {
		if a.ClientStatus != status {
			return fmt.Sprintf("%s is %s", a.Name, a.ClientStatus), err
		}
	}
	return missing(len(allocs), count), err
}

// skerry runs a command against a hub.
func skerry(t *testing.T, program string, h *cluster.Hub, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "NOMAD_ADDR="+h.URL(), "SKERRY_ADDR="+h.URL())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func mustSkerry(t *testing.T, program string, h *cluster.Hub, args ...string) string {
	t.Helper()
	out, err := skerry(t, program, h, args...)
	if err != nil {
		t.Fatalf("skerry %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}
