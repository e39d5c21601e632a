package state_test

import (
	"bytes"
	"fmt"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// volumeOn is a volume that mkdir is to make on a node.
func volumeOn(node fleet.NodeID, id fleet.VolumeID, name string) fleet.Volume {
	return fleet.Volume{
		ID: id, Name: name, Namespace: fleet.DefaultNamespace, NodeID: node, PluginID: fleet.VolumePluginMkdir,
		RequestedCapabilities: []fleet.VolumeCapability{{AttachmentMode: fleet.AttachFileSystem, AccessMode: fleet.AccessWriter}},
		Parameters:            map[string]string{"mode": "0750"},
	}
}

func (w *storeHarness) storeVolume(v fleet.Volume) state.Result {
	w.Helper()
	return w.mustApply(state.VolumeStore{Volume: v, Now: w.nowNanos()})
}

func (w *storeHarness) deleteVolume(id fleet.VolumeID, force bool) state.VolumeDelete {
	return state.VolumeDelete{Namespace: fleet.DefaultNamespace, ID: id, Force: force, Now: w.nowNanos()}
}

// reportVolume has the edge of a node say something of a volume.
func (w *storeHarness) reportVolume(node fleet.NodeID, id fleet.VolumeID, said, why string) {
	w.Helper()
	w.appendJournalRows(node, fleet.Transition{
		Kind: fleet.TransitionVolume, Message: why, Volume: &fleet.VolumeReport{ID: id, State: said, Path: "/data/" + string(id)},
	})
	for _, res := range w.applyRowBatches(w.unappliedBatch(node)) {
		if res.Code != "" {
			w.Fatalf("%s: %s", res.Code, res.Message)
		}
	}
}

func (w *storeHarness) wantVolume(id fleet.VolumeID, want string) {
	w.Helper()
	got := "none"
	if v, ok := w.store.View().Volume(id); ok {
		got = fmt.Sprintf("%s %q %q %t", v.State, v.StateDescription, v.HostPath, v.Deleting)
	}
	if got != want {
		w.Fatalf("volume %s is %s, want %s", id, got, want)
	}
}

func (w *storeHarness) wantOffered(node fleet.NodeID, want map[string]fleet.HostVolume) {
	w.Helper()
	if got := w.getNode(node).HostVolumes; fmt.Sprint(got) != fmt.Sprint(want) {
		w.Fatalf("node offers %v, want %v", got, want)
	}
}

func TestVolumeIsMadeUsedAndDeleted(t *testing.T) {
	w := newTestHarness(t)
	n := w.addReadyNode("n1")
	before := w.store.View().DesiredIndex(n)
	w.storeVolume(volumeOn(n, "v1", "data"))
	w.wantVolume("v1", `pending "waits for its edge" "" false`)
	if after := w.store.View().DesiredIndex(n); after <= before {
		t.Fatalf("the edge is not told: %d", after)
	}
	w.wantOffered(n, nil)
	w.reportVolume(n, "v1", fleet.VolumePending, "no space")
	w.wantVolume("v1", `pending "no space" "" false`)
	w.reportVolume(n, "v1", fleet.VolumeReady, "")
	w.wantVolume("v1", `ready "" "/data/v1" false`)
	offered := map[string]fleet.HostVolume{"data": {Path: "/data/v1", ID: "v1"}}
	w.wantOffered(n, offered)

	// A new description of the node leaves the volume; a configured one of that name comes first.
	said := description(n, "n1")
	said.HostVolumes = map[string]fleet.HostVolume{"srv": {Path: "/srv"}, "forged": {Path: "/x", ID: "v9"}}
	w.mustApply(state.NodeRegister{Node: said, Now: w.nowNanos(), EvalSeed: w.nextEvalSeed()})
	w.wantOffered(n, map[string]fleet.HostVolume{"srv": {Path: "/srv"}, "data": offered["data"]})

	j := job("shop", fleet.JobTypeService, 1)
	j.TaskGroups[0].Volumes = map[string]fleet.VolumeRequest{"d": {Name: "d", Type: fleet.VolumeHost, Source: "data"}}
	w.registerJob(j)
	ids := w.placeAllocs("shop", n, 1)
	w.mustRefuse(fleet.CodeConflict, w.deleteVolume("v1", false))
	w.reportStatus(n, fleet.ClientComplete, ids...)
	w.mustApply(w.deleteVolume("v1", false))
	w.wantVolume("v1", `ready "waits for its edge to delete it" "/data/v1" true`)
	w.wantOffered(n, map[string]fleet.HostVolume{"srv": {Path: "/srv"}})
	w.reportVolume(n, "v1", fleet.VolumeReady, "it is in use there")
	w.wantVolume("v1", `ready "it is in use there" "/data/v1" true`)
	w.reportVolume(n, "v1", fleet.VolumeDeleted, "")
	w.wantVolume("v1", "none")
	w.reportVolume(n, "v1", fleet.VolumeReady, "") // of a volume that is gone
	w.wantVolume("v1", "none")
}

func TestVolumesThatAreRefused(t *testing.T) {
	w := newTestHarness(t)
	n := w.addReadyNode("n1")
	said := description(n, "n1")
	said.HostVolumes = map[string]fleet.HostVolume{"srv": {Path: "/srv"}}
	w.mustApply(state.NodeRegister{Node: said, Now: w.nowNanos(), EvalSeed: w.nextEvalSeed()})
	w.storeVolume(volumeOn(n, "v1", "data"))
	refuse := func(code fleet.Code, change func(*fleet.Volume)) {
		t.Helper()
		v := volumeOn(n, "v2", "other")
		change(&v)
		w.mustRefuse(code, state.VolumeStore{Volume: v, Now: w.nowNanos()})
	}
	refuse(fleet.CodeInvalid, func(v *fleet.Volume) { v.ID = "" })
	refuse(fleet.CodeInvalid, func(v *fleet.Volume) { v.Name = "a/b" })
	refuse(fleet.CodeInvalid, func(v *fleet.Volume) { v.Namespace = "nobody" })
	refuse(fleet.CodeInvalid, func(v *fleet.Volume) { v.PluginID = "zfs" })
	refuse(fleet.CodeInvalid, func(v *fleet.Volume) { v.Parameters = map[string]string{"mode": "rwx"} })
	refuse(fleet.CodeInvalid, func(v *fleet.Volume) { v.Parameters = map[string]string{"size": "1"} })
	refuse(fleet.CodeInvalid, func(v *fleet.Volume) { v.RequestedCapabilities = nil })
	refuse(fleet.CodeInvalid, func(v *fleet.Volume) { v.RequestedCapacityMinBytes, v.RequestedCapacityMaxBytes = 2, 1 })
	refuse(fleet.CodeInvalid, func(v *fleet.Volume) { v.Registered, v.PluginID, v.Parameters, v.HostPath = true, "", nil, "srv/../x" })
	refuse(fleet.CodeNotFound, func(v *fleet.Volume) { v.NodeID = "nowhere" })
	refuse(fleet.CodeConflict, func(v *fleet.Volume) { v.Name = "data" })
	refuse(fleet.CodeConflict, func(v *fleet.Volume) { v.Name = "srv" })
	refuse(fleet.CodeConflict, func(v *fleet.Volume) { v.ID, v.Name = "v1", "renamed" })
	w.mustRefuse(fleet.CodeNotFound, w.deleteVolume("v9", true))
	w.mustRefuse(fleet.CodeNotFound, state.VolumeDelete{Namespace: "other", ID: "v1"})

	w.mustApply(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships"}})
	apart := volumeOn(n, "v3", "apart")
	apart.Namespace = "ships"
	w.storeVolume(apart)
	w.mustRefuse(fleet.CodeConflict, state.NamespaceDelete{Name: "ships"})
	w.mustApply(state.VolumeDelete{Namespace: "ships", ID: "v3", Force: true})
	w.mustApply(state.NamespaceDelete{Name: "ships"})

	changed := volumeOn(n, "v1", "data")
	changed.RequestedCapabilities[0].AccessMode = fleet.AccessMultiWriter
	w.storeVolume(changed)
	if v, _ := w.store.View().Volume("v1"); v.RequestedCapabilities[0].AccessMode != fleet.AccessMultiWriter || v.CreateIndex == v.ModifyIndex {
		t.Errorf("%+v", v)
	}
	for i := 1; i < state.MaxVolumesOnNode; i++ {
		w.index++
		w.store.Apply(w.index, state.VolumeStore{Volume: volumeOn(n, fleet.VolumeID(fmt.Sprint("x", i)), fmt.Sprint("x", i))})
	}
	refuse(fleet.CodeConflict, func(*fleet.Volume) {})
	w.mustApply(w.deleteVolume("v1", true)) // its edge never comes back
	w.wantVolume("v1", "none")
}

func TestVolumesInSnapshots(t *testing.T) {
	w := newTestHarness(t)
	w.mustApply(state.ClusterInit{Cluster: state.Cluster{ID: "c1", Region: "global"}})
	n := w.addReadyNode("n1")
	w.storeVolume(volumeOn(n, "v1", "data"))
	w.reportVolume(n, "v1", fleet.VolumeReady, "")
	file := mustPersist(t, w.store)
	again := state.New()
	if err := again.Restore(bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	if again.View().Digest() != w.store.View().Digest() {
		t.Error("a restored state has another digest")
	}
	w.storeVolume(volumeOn(n, "v2", "more"))
	w.mustApply(w.deleteVolume("v1", false))
	before := w.store.View().DesiredIndex(n)
	w.restoreSnapshot(file)
	w.wantVolume("v1", `ready "" "/data/v1" false`)
	w.wantVolume("v2", `pending "waits for its edge" "" false`)
	if after := w.store.View().DesiredIndex(n); after <= before {
		t.Error("the edge is not told again")
	}
	if w.replayLog().View().Digest() != w.store.View().Digest() {
		t.Error("the log leads to another state")
	}
}
