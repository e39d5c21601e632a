package scheduler_test

import (
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// makeVolume stores a dynamic host volume, whose edge says that it is ready.
func (c *cluster) makeVolume(n *fleet.Node, namespace, access string) {
	c.tb.Helper()
	id := fleet.VolumeID(c.newID())
	c.mustApplyCommand(state.VolumeStore{Volume: fleet.Volume{
		ID: id, Name: "data", Namespace: namespace, NodeID: n.ID, PluginID: fleet.VolumePluginMkdir,
		RequestedCapabilities: []fleet.VolumeCapability{{AttachmentMode: fleet.AttachFileSystem, AccessMode: access}},
	}})
	c.reportRow(n.ID, fleet.Transition{Kind: fleet.TransitionVolume, Volume: &fleet.VolumeReport{ID: id, State: fleet.VolumeReady, Path: "/volumes/" + string(id)}})
}

// Jobs are placed only where a dynamic host volume of their namespace has the capability that they ask for, and
// those that wait are placed when there is one.
func TestDynamicHostVolumes(t *testing.T) {
	c := newCluster(t)
	c.mustApplyCommand(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships"}})
	c.addReadyNodes(4)
	c.makeVolume(node(1), "ships", fleet.AccessWriter)
	c.makeVolume(node(2), "default", fleet.AccessReader)
	ask := func(j *fleet.Job) {
		j.TaskGroups[0].Volumes = map[string]fleet.VolumeRequest{"d": {Name: "d", Type: fleet.VolumeHost, Source: "data"}}
	}
	e := c.registerAndSchedule(job(1, ask))
	if len(c.nonTerminalAllocs()) != 0 || e.FailedTGAllocs["web"].ConstraintFiltered["missing compatible host volumes"] != 4 {
		t.Fatalf("%d placed, %+v", len(c.nonTerminalAllocs()), e.FailedTGAllocs["web"])
	}
	c.makeVolume(node(3), "default", fleet.AccessWriter)
	c.unblockEval(e.BlockedEval)
	c.schedulePendingEvals()
	if got := c.nonTerminalAllocs(); len(got) != 1 || got[0].NodeID != node(3).ID {
		t.Fatalf("placed: %+v", got)
	}
}
