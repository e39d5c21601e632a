package scheduler_test

import (
	"strings"
	"testing"

	"skerry/fleet"
)

// TestRejectedNodesSayWhatTheyLack: of a job that can never be placed some nodes are named, each
// with the constraint or the amount for which it was left out.
func TestRejectedNodesSayWhatTheyLack(t *testing.T) {
	c := newCluster(t)
	made := 0
	c.addReadyNodes(12, func(n *fleet.Node) {
		switch made++; made {
		case 1, 2:
			n.Drivers = nil
		case 3, 4:
			n.Resources.CPU = 10
		case 5, 6:
			n.Resources.DiskMB = 1
		default:
			n.Resources.MemoryMB, n.Reserved.MemoryMB = 900, 300
		}
	})
	j := job(1)
	j.TaskGroups[0].Tasks[0].Resources.CPU, j.TaskGroups[0].Tasks[0].Resources.MemoryMB = 100, 601
	m := c.registerAndSchedule(j).FailedTGAllocs["web"]
	if m == nil || m.NodesFiltered != 2 || m.NodesExhausted != 10 || len(m.RejectedNodes) != 5 {
		t.Fatalf("metrics %+v", m)
	}
	for _, r := range m.RejectedNodes {
		n, ok := c.store.View().Node(r.NodeID)
		if !ok || n.Name != r.NodeName {
			t.Fatalf("%+v", r)
		}
		var want string
		switch {
		case n.Drivers == nil:
			want = "missing drivers"
		case n.Resources.CPU == 10:
			want = "cpu: 100 MHz asked for, 10 of 10 free"
		case n.Resources.DiskMB == 1:
			want = "disk: 300 MB asked for, 1 of 1 free"
		default:
			want = "memory: 601 MB asked for, 600 of 600 free"
		}
		if r.Why != want {
			t.Errorf("%s was left out for %q, want %q", r.NodeName, r.Why, want)
		}
	}
}

// TestRejectedNodesSayWhatTheyHave: a constraint is told with what the node has instead.
func TestRejectedNodesSayWhatTheyHave(t *testing.T) {
	for value, want := range map[string]string{
		"linux": "${attr.kernel.name} = windows: it has linux", "": "${attr.kernel.name} = windows: it has none",
		strings.Repeat("x", 70): "${attr.kernel.name} = windows: it has " + strings.Repeat("x", 64) + "…",
	} {
		c := newCluster(t)
		c.addReadyNodes(1, func(n *fleet.Node) {
			if n.Attributes = map[string]string{"driver.sim": "1"}; value != "" {
				n.Attributes["kernel.name"] = value
			}
		})
		j := job(1)
		j.Constraints = []fleet.Constraint{{LTarget: "${attr.kernel.name}", Operand: "=", RTarget: "windows"}}
		if m := c.registerAndSchedule(j).FailedTGAllocs["web"]; m == nil || len(m.RejectedNodes) != 1 || m.RejectedNodes[0].Why != want {
			t.Errorf("%q: %+v, want %s", value, m, want)
		}
	}
}
