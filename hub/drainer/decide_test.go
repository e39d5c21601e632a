package drainer_test

import (
	"fmt"
	"testing"

	"skerry/fleet"
	"skerry/hub/drainer"
)

const (
	drainingNode = fleet.NodeID("leaving") // is being drained
	otherNode    = fleet.NodeID("staying")
)

// allocKind says what one allocation of a table's row is.
type allocKind struct {
	node              fleet.NodeID
	notHealthy        bool // not healthy
	flagged           bool
	ended             bool
	stop              bool // desired stop, not ended
	unknown           bool // unknown
	reportedUnhealthy bool // its edge says that it is not healthy
	failed            bool // for good
	retired           bool // and the hub has dealt with that
}

func (k allocKind) allocOfKind(i int) *fleet.Alloc {
	a := &fleet.Alloc{
		ID: fleet.AllocID(fmt.Sprint("a", i)), NodeID: k.node, ModifyIndex: 100,
		DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientRunning,
	}
	a.DesiredTransition.Migrate = k.flagged
	if k.stop || k.ended {
		a.DesiredStatus = fleet.DesiredStop
	}
	if k.ended {
		a.ClientStatus = fleet.ClientComplete
	}
	if k.unknown {
		a.ClientStatus = fleet.ClientUnknown
	}
	if k.reportedUnhealthy {
		a.ClientDescription, a.DeploymentStatus = "sick", &fleet.AllocDeployment{Healthy: new(bool)}
	}
	if k.failed {
		a.ClientStatus, a.Retired = fleet.ClientFailed, k.retired
	}
	if k.notHealthy {
		a.ClientDescription = "sick"
	}
	return a
}

func repeatKind(n int, k allocKind) []allocKind {
	out := make([]allocKind, n)
	for i := range out {
		out[i] = k
	}
	return out
}

func concatKinds(lists ...[]allocKind) []allocKind {
	var out []allocKind
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// TestGroup is table H.1: a group of 10, some of it on a draining node.
func TestGroup(t *testing.T) {
	here, there := allocKind{node: drainingNode}, allocKind{node: otherNode}
	flagged := allocKind{node: drainingNode, flagged: true}
	ended := allocKind{node: drainingNode, ended: true}
	sick := allocKind{node: otherNode, notHealthy: true}
	for _, tc := range []struct {
		row         string
		batch       bool
		maxParallel int
		allocs      []allocKind
		drain, done int
		over        bool
	}{
		{"H23 all on the draining node", false, 1, repeatKind(10, here), 1, 0, false},
		{"H24 one flagged, its replacement not healthy", false, 1, concatKinds(repeatKind(1, flagged), repeatKind(9, here)), 0, 0, false},
		{"H25 four flagged of five at once", false, 5, concatKinds(repeatKind(4, flagged), repeatKind(6, here)), 1, 0, false},
		{"H26 all elsewhere", false, 1, repeatKind(10, there), 0, 0, true},
		{"H27 five elsewhere without health", false, 1, concatKinds(repeatKind(5, sick), repeatKind(5, here)), 0, 0, false},
		{"H28 one on the draining node", false, 1, concatKinds(repeatKind(1, here), repeatKind(9, there)), 1, 0, false},
		{"H29 that one flagged", false, 1, concatKinds(repeatKind(1, flagged), repeatKind(9, there)), 0, 0, false},
		{"H30 that one ended", false, 1, concatKinds(repeatKind(1, ended), repeatKind(9, there)), 0, 1, true},
		{"H30 that one ended, batch", true, 1, concatKinds(repeatKind(1, ended), repeatKind(9, there)), 0, 1, true},
		{"H31 all ended", false, 1, repeatKind(10, ended), 0, 10, true},
		{"H31 all ended, batch", true, 1, repeatKind(10, ended), 0, 10, true},
		{"H32 all to stop, five ended", false, 1, concatKinds(repeatKind(5, ended), repeatKind(5, allocKind{node: drainingNode, stop: true})), 0, 5, false},
		{"H33 ten at once", false, 10, repeatKind(10, here), 10, 0, false},
		{"H34 two at once", false, 2, repeatKind(10, here), 2, 0, false},
		{"H35 one new, one ended", false, 2, concatKinds(repeatKind(1, there), repeatKind(1, ended), repeatKind(8, here)), 1, 1, false},
		{"H36 eight new, one ended", false, 2, concatKinds(repeatKind(8, there), repeatKind(1, ended), repeatKind(1, here)), 1, 1, false},
		{"H37 five new, two ended", false, 5, concatKinds(repeatKind(5, there), repeatKind(2, ended), repeatKind(3, here)), 3, 2, false},
		{"H38 one of the new has no health", false, 3, concatKinds(repeatKind(4, there), repeatKind(1, sick), repeatKind(1, ended), repeatKind(4, here)), 1, 1, false},
		{"H39 two of the new have no health", false, 5, concatKinds(repeatKind(3, there), repeatKind(2, sick), repeatKind(1, ended), repeatKind(4, here)), 2, 1, false},

		{"H5 batch is left alone", true, 1, repeatKind(10, here), 0, 0, false},
		{"H8 out of sight elsewhere holds up nothing", false, 1, concatKinds(repeatKind(4, allocKind{node: otherNode, unknown: true}), repeatKind(6, here)), 1, 0, false},
		{"H8 out of sight on the draining node goes at once", false, 1,
			concatKinds(repeatKind(3, allocKind{node: drainingNode, unknown: true}), repeatKind(7, there)), 3, 0, false},
		{"what is not healthy goes at once", false, 1, concatKinds(repeatKind(2, allocKind{node: drainingNode, reportedUnhealthy: true}), repeatKind(2, sick), repeatKind(6, there)), 2, 0, false},
		{"what failed for good elsewhere holds up nothing", false, 1, concatKinds(repeatKind(2, allocKind{node: otherNode, failed: true}), repeatKind(8, here)), 1, 0, false},
		{"nor does it on the draining node", false, 1, concatKinds(repeatKind(2, allocKind{node: drainingNode, failed: true}), repeatKind(8, here)), 1, 2, false},
		{"nor what is not healthy elsewhere, and is left so", false, 1, concatKinds(repeatKind(2, allocKind{node: otherNode, reportedUnhealthy: true}), repeatKind(8, here)), 1, 0, false},
		{"one that is retired is none that is wanted", false, 1, concatKinds(repeatKind(1, allocKind{node: otherNode, failed: true, retired: true}), repeatKind(8, there), repeatKind(2, here)), 1, 0, false},
		{"it is no reason for more at once", false, 2, concatKinds(repeatKind(9, allocKind{node: otherNode, failed: true}), repeatKind(1, here)), 1, 0, false},
		{"nor takes it a turn that another has", false, 1, concatKinds(repeatKind(2, allocKind{node: otherNode, failed: true}), repeatKind(1, flagged), repeatKind(7, here)), 0, 0, false},
	} {
		t.Run(tc.row, func(t *testing.T) {
			g := drainer.Group{
				Count: 10, MaxParallel: tc.maxParallel, Batch: tc.batch, Since: 50,
				Draining: func(id fleet.NodeID) bool { return id == drainingNode },
				Healthy:  func(a *fleet.Alloc) bool { return a.ClientStatus == fleet.ClientRunning && a.ClientDescription == "" },
				Forsaken: func(a *fleet.Alloc) bool {
					return a.ClientStatus == fleet.ClientFailed || a.DeploymentStatus.IsUnhealthy()
				},
			}
			for i, k := range tc.allocs {
				g.Allocs = append(g.Allocs, k.allocOfKind(i))
			}
			step := g.Step()
			if len(step.Migrate) != tc.drain || len(step.Migrated) != tc.done || step.Done != tc.over {
				t.Errorf("drains %d, has migrated %d, done %v; want %d, %d, %v",
					len(step.Migrate), len(step.Migrated), step.Done, tc.drain, tc.done, tc.over)
			}
			for _, a := range step.Migrate {
				if a.NodeID != drainingNode || a.DesiredTransition.Migrate || a.Terminal() {
					t.Errorf("drains %+v", a)
				}
			}
			g.Since = 100
			if again := g.Step(); len(again.Migrated) != 0 || len(again.Migrate) != len(step.Migrate) {
				t.Errorf("what ended before is told again: %+v", again)
			}
		})
	}
}

// TestNodeLeft is table H.2, to which row H7 points: nine situations of a node.
func TestNodeLeft(t *testing.T) {
	service, batch, system := fleet.JobTypeService, fleet.JobTypeBatch, fleet.JobTypeSystem
	for _, tc := range []struct {
		row          string
		ignore       bool
		live, ended  []string
		done         bool
		left, waited int
	}{
		{"H40", false, nil, nil, true, 0, 0},
		{"H41", false, []string{batch}, nil, false, 1, 1},
		{"H42", false, []string{service}, nil, false, 1, 1},
		{"H43", false, []string{system}, nil, true, 1, 0},
		{"H44", false, nil, []string{service, batch, system}, true, 0, 0},
		{"H45", false, []string{batch, system}, []string{service}, false, 2, 1},
		{"H46", false, []string{batch}, []string{service, system}, false, 1, 1},
		{"H47", false, []string{system}, []string{service, batch}, true, 1, 0},
		{"H48", false, []string{service, batch, system}, []string{service, batch, system}, false, 3, 2},
		{"H5 system jobs are ignored", true, []string{system}, nil, true, 0, 0},
	} {
		t.Run(tc.row, func(t *testing.T) {
			n := drainer.Node{IgnoreSystem: tc.ignore}
			add := func(jobType, status string) {
				n.Allocs = append(n.Allocs, &fleet.Alloc{Job: &fleet.Job{Type: jobType}, ClientStatus: status})
			}
			for _, jobType := range tc.live {
				add(jobType, fleet.ClientRunning)
			}
			for _, jobType := range tc.ended {
				add(jobType, fleet.ClientComplete)
			}
			left, waited, done := n.Left()
			if len(left) != tc.left || waited != tc.waited || done != tc.done {
				t.Errorf("left %d, waited for %d, done %v; want %d, %d, %v", len(left), waited, done, tc.left, tc.waited, tc.done)
			}
		})
	}
}
