package virtual_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/fabric"
	"skerry/chaos/virtual"
	"skerry/fleet"
	"skerry/hub/state"
)

// moveTest is a job with one allocation whose data moves between two edges, which are of different hubs or of one.
type moveTest struct {
	*testing.T
	c    *virtual.Cluster
	data []byte
}

// alloc returns the only allocation of the job that is to run on an edge, and what this edge says of it.
func (m *moveTest) alloc(edge string) (id fleet.AllocID, status, note string) {
	m.Helper()
	s, err := m.c.Edge(edge).Agent().Agent().Status(context.Background())
	if err != nil {
		m.Fatal(err)
	}
	for _, a := range s.Allocs {
		if !fleet.IsClientTerminal(a.ClientStatus) && a.Desired == fleet.DesiredRun {
			return a.ID, a.ClientStatus, a.Note
		}
	}
	return "", "", ""
}

// events lists what the hubs know of the allocations.
func (m *moveTest) events() string {
	var b strings.Builder
	for a := range lead(m.T, m.c).State().View().AllocsByJob(fleet.DefaultNamespace, "till") {
		fmt.Fprintf(&b, "%s after %q on %s: %s, %s\n", fleet.Short(a.ID), fleet.Short(a.PreviousAllocation), a.NodeName, a.DesiredStatus, a.ClientStatus)
		for _, e := range a.TaskStates["t"].Events {
			fmt.Fprintf(&b, "  %s %s\n", e.Type, e.DisplayMessage)
		}
	}
	return b.String()
}

// fileOf is the path of the data.
func (m *moveTest) fileOf(edge string, id fleet.AllocID) string {
	return filepath.Join(m.c.Edge(edge).Dir, "allocs", string(id), "alloc", "data", "till.db")
}

// drain drains an edge, after it has made the other one eligible.
func (m *moveTest) drain(from, to string) {
	m.Helper()
	mustDo(m.T, m.c, http.MethodPut, "/v1/node/"+string(m.c.Edge(to).Agent().NodeID())+"/eligibility", map[string]string{"Eligibility": fleet.NodeEligible}, nil)
	path, req := drainOf(m.c.Edge(from).Agent().NodeID(), time.Hour)
	mustDo(m.T, m.c, http.MethodPut, path, req, nil)
}

// wantRunning waits until the allocation runs on an edge, and checks whether it has the data.
func (m *moveTest) wantRunning(edge string, within time.Duration, has bool) {
	m.Helper()
	for give := time.Now().Add(within); ; time.Sleep(time.Second) {
		id, status, note := m.alloc(edge)
		if status == fleet.ClientRunning {
			if b, _ := os.ReadFile(m.fileOf(edge, id)); bytes.Equal(b, m.data) != has {
				m.Fatalf("%s has %d of %d bytes\n%s", edge, len(b), len(m.data), m.events())
			}
			return
		}
		if time.Now().After(give) {
			m.Fatalf("on %s %s is %q: %s", edge, fleet.Short(id), status, note)
		}
	}
}

// wantWaiting waits until the allocation waits on an edge, for a reason.
func (m *moveTest) wantWaiting(edge, why string) {
	m.Helper()
	for give := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, status, note := m.alloc(edge)
		if status == fleet.ClientPending && strings.Contains(note, why) {
			return
		}
		if time.Now().After(give) {
			m.Fatalf("on %s it is %q: %q, want %q", edge, status, note, why)
		}
	}
}

// TestDataMovesBetweenEdges: data follows an allocation from edge to edge. A cut link and a reboot in the middle of a slow
// copy delay it. An edge that is away is not waited for, and neither are hubs for long.
func TestDataMovesBetweenEdges(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 3, "edge-1", "edge-2")
		defer mustClose(t, c)
		m := &moveTest{T: t, c: c, data: make([]byte, 1<<20)}
		_, _ = rand.Read(m.data) // it never fails
		job := service("till", 1)
		g := &job.TaskGroups[0]
		g.EphemeralDisk.Migrate, g.Update = true, nil
		mustDo(t, c, http.MethodPut, "/v1/node/"+string(c.Edge("edge-2").Agent().NodeID())+"/eligibility", map[string]string{"Eligibility": fleet.NodeIneligible}, nil)
		mustRun(t, c, job)
		id, _, _ := m.alloc("edge-1")
		if err := os.WriteFile(m.fileOf("edge-1", id), m.data, 0o600); err != nil {
			t.Fatal(err)
		}
		m.drain("edge-1", "edge-2")
		m.wantRunning("edge-2", time.Minute, true)

		slow := c.Net.Shape(fabric.Hosts("edge-2"), fabric.Everyone, fabric.Profile{Latency: 20 * time.Millisecond, Bandwidth: 100_000})
		m.drain("edge-2", "edge-1")
		m.wantWaiting("edge-1", "a hub brings it")
		time.Sleep(20 * time.Second)
		cut := c.Net.Cut(fabric.Hosts("edge-1"), fabric.Everyone, fabric.Both, fabric.Silent)
		time.Sleep(30 * time.Second)
		m.wantWaiting("edge-1", "waits for the data")
		if err := c.Edge("edge-1").PowerCut(); err != nil {
			t.Fatal(err)
		}
		if err := c.Edge("edge-1").Boot(); err != nil {
			t.Fatal(err)
		}
		m.wantWaiting("edge-1", "waits for the data")
		cut.Heal()
		m.wantRunning("edge-1", 10*time.Minute, true)
		slow.Heal()

		hour, replace := time.Hour, true
		g.Disconnect = &fleet.Disconnect{LostAfter: &hour, Replace: &replace}
		mustRun(t, c, job) // in place
		c.Net.Cut(fabric.Hosts("edge-1"), fabric.Everyone, fabric.Both, fabric.Silent)
		mustDo(t, c, http.MethodPut, "/v1/node/"+string(c.Edge("edge-2").Agent().NodeID())+"/eligibility", map[string]string{"Eligibility": fleet.NodeEligible}, nil)
		m.wantRunning("edge-2", 20*time.Minute, false)
		mustCome(t, c, time.Minute, "the hubs know where the data is", func(v *state.View) bool {
			for a := range v.AllocsByJob(fleet.DefaultNamespace, "till") {
				for _, e := range a.TaskStates["t"].Events {
					if strings.Contains(e.DisplayMessage, "it stays on edge edge-1, which is away since") {
						return true
					}
				}
			}
			return false
		})
	})
}
