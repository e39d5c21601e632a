package state

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	"skerry/fleet"
	"skerry/fleet/admission"
	"skerry/fleet/placement"
)

// VolumeStore creates a dynamic host volume, or changes the capabilities, capacity and constraints of the
// one with the same id. The caller has chosen the node and the id.
type VolumeStore struct {
	command
	Volume fleet.Volume
	Now    int64 // UnixNano
}

// VolumeDelete has the edge delete a dynamic host volume, after which its row goes. It is refused (conflict) while
// an allocation uses the volume. Force removes the row at once, for an edge that never comes back.
type VolumeDelete struct {
	command
	Namespace string
	ID        fleet.VolumeID
	Force     bool
	Now       int64
}

// Bounds of dynamic host volumes.
const (
	MaxVolumes       = 50_000 // of a cluster
	MaxVolumesOnNode = 100
)

const indexNode = "node"

var volumeTable = table[fleet.Volume]{
	name: "volumes", key: volumeRowKey, announced: true,
	indexes: []tableIndex[fleet.Volume]{{indexNode, func(r *fleet.Volume) []byte {
		return append(idKey(r.NodeID), idKey(r.ID)...)
	}, nil}},
	records: []record[fleet.Volume]{rowRecord[fleet.Volume](120)},
}

func volumeRowKey(r *fleet.Volume) []byte { return idKey(r.ID) }

// volumeStore applies the command VolumeStore: it creates or changes a volume, after validating it.
func (t *tx) volumeStore(c VolumeStore) Result {
	next := c.Volume
	if next.ID == "" {
		return refusal(fleet.CodeInvalid, "store volume %q: it has no id", next.Name)
	}
	if err := admission.CheckVolume(&next); err != nil {
		return Result{Err: fleet.AsError(err)}
	}
	if err := placement.CheckVolume(&next); err != nil {
		return Result{Err: fleet.AsError(err)}
	}
	if t.findNamespace(next.Namespace) == nil {
		return refusal(fleet.CodeInvalid, "store volume %s: there is no namespace %q", next.Name, next.Namespace)
	}
	if old := volumeTable.currentRow(t, idKey(next.ID)); old != nil {
		return t.volumeChange(old, next, c.Now)
	}
	n := t.ownNodeRow(next.NodeID)
	if n == nil {
		return refusal(fleet.CodeNotFound, "create volume %s: there is no node %q", next.Name, next.NodeID)
	}
	if err := t.checkNewVolume(&n.Node, &next); err != nil {
		return Result{Err: err}
	}
	next.NodePool, next.State, next.StateDescription, next.Deleting = n.NodePool, fleet.VolumePending, "waits for its edge", false
	next.CapacityBytes, next.CreateIndex, next.CreateTime, next.ModifyIndex, next.ModifyTime = 0, t.index, c.Now, t.index, c.Now
	if !next.Registered {
		next.HostPath = ""
	}
	volumeTable.putRow(t, &next)
	volumeTable.markChanged(t)
	t.noteDesiredChange(next.NodeID)
	return Result{}
}

// checkNewVolume returns an error if the node cannot have the new volume.
func (t *tx) checkNewVolume(n *fleet.Node, v *fleet.Volume) *fleet.Error {
	if r := t.revocationOf(n.ID); r != nil {
		return RevokedError("create a volume", r)
	}
	if h, ok := n.HostVolumes[v.Name]; ok && h.ID == "" {
		return fleet.Errorf(fleet.CodeConflict, "create volume %s: the edge %s is configured with a host volume of that name", v.Name, n.Name)
	}
	there := slices.Collect(t.volumesOn(n.ID))
	if len(there) >= MaxVolumesOnNode {
		return fleet.Errorf(fleet.CodeConflict, "create volume %s: node %s has %d volumes already", v.Name, n.Name, MaxVolumesOnNode)
	}
	for _, other := range there {
		if other.Name == v.Name {
			return fleet.Errorf(fleet.CodeConflict, "create volume %s: node %s has a volume of that name, %s", v.Name, n.Name, fleet.Short(other.ID)).
				WithHint("to change it, write its id into the volume's file")
		}
	}
	if len(slices.Collect(volumeTable.scanRows(t.base))) >= MaxVolumes {
		return fleet.Errorf(fleet.CodeConflict, "create volume %s: there are %d already", v.Name, MaxVolumes)
	}
	return nil
}

// volumeChange changes the capabilities, capacity and constraints of a volume. Changing anything else is refused.
func (t *tx) volumeChange(old *fleet.Volume, next fleet.Volume, now int64) Result {
	same := func(asked, held string) bool { return asked == "" || asked == held }
	if next.Name != old.Name || next.Namespace != old.Namespace || next.PluginID != old.PluginID || next.Registered != old.Registered || !maps.Equal(next.Parameters, old.Parameters) ||
		!same(string(next.NodeID), string(old.NodeID)) || !same(next.NodePool, old.NodePool) || !same(next.HostPath, old.HostPath) {
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "change volume %s: its name, namespace, node, pool, plugin, parameters and path cannot change", fleet.Short(old.ID)).
			WithHint("create another volume")}
	}
	if old.Deleting {
		return refusal(fleet.CodeConflict, "change volume %s: it is being deleted", fleet.Short(old.ID))
	}
	row := *old
	row.Constraints, row.RequestedCapabilities = next.Constraints, next.RequestedCapabilities
	row.RequestedCapacityMinBytes, row.RequestedCapacityMaxBytes = next.RequestedCapacityMinBytes, next.RequestedCapacityMaxBytes
	row.ModifyIndex, row.ModifyTime = t.index, now
	volumeTable.putRow(t, &row)
	volumeTable.markChanged(t)
	t.noteFreedNode(row.NodeID) // waiting jobs may now be able to use the volume
	return Result{}
}

// volumeDelete applies the command VolumeDelete.
func (t *tx) volumeDelete(c VolumeDelete) Result {
	old := volumeTable.currentRow(t, idKey(c.ID))
	if old == nil || old.Namespace != c.Namespace {
		return refusal(fleet.CodeNotFound, "delete volume %s: there is no such volume in the namespace %s", c.ID, c.Namespace)
	}
	if users := t.volumeUsers(old); len(users) > 0 && !c.Force {
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "delete volume %s: it is in use: %s", fleet.Short(old.ID), strings.Join(users, ", ")).
			WithHint("stop the jobs that use it")}
	}
	if !c.Force && nodeTable.currentRow(t, idKey(old.NodeID)) == nil {
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "delete volume %s: its node is gone", fleet.Short(old.ID)).
			WithHint("--force removes the volume from the hubs' state")}
	}
	if c.Force {
		volumeTable.removeRow(t, idKey(c.ID))
	} else {
		row := *old
		row.Deleting, row.StateDescription, row.ModifyIndex, row.ModifyTime = true, "waits for its edge to delete it", t.index, c.Now
		volumeTable.putRow(t, &row)
		t.noteDesiredChange(row.NodeID)
	}
	volumeTable.markChanged(t)
	t.offerVolumes(old.NodeID, nil)
	return Result{}
}

// volumeUsers describes up to maxUsersShown allocations that use a volume and whose end is not known.
func (t *tx) volumeUsers(v *fleet.Volume) []string {
	var out []string
	for _, id := range t.allocsOn(v.NodeID) {
		if a := t.currentAlloc(id); a.OccupiesNode() && v.UsedBy(&a.Alloc) {
			if len(out) == maxUsersShown {
				return append(out, "…")
			}
			out = append(out, fmt.Sprintf("allocation %s of job %s", fleet.Short(id), a.JobID))
		}
	}
	return out
}

// applyVolumeReport applies an edge's report about a volume. It ignores a volume that is unknown or belongs to another
// node.
func (t *tx) applyVolumeReport(n *nodeRow, tr *fleet.Transition, w *pendingEvals) {
	said := tr.Volume
	old := volumeTable.currentRow(t, idKey(said.ID))
	if old == nil || old.NodeID != n.ID {
		return
	}
	row := *old
	switch {
	case said.State == fleet.VolumeDeleted && old.Deleting:
		volumeTable.removeRow(t, idKey(said.ID))
	case said.State == fleet.VolumeDeleted:
		row.State, row.StateDescription, row.HostPath = fleet.VolumePending, tr.Message, ""
	case said.State == fleet.VolumeReady:
		row.State, row.StateDescription, row.HostPath, row.CapacityBytes = fleet.VolumeReady, "", said.Path, said.Capacity
		if old.Deleting {
			row.StateDescription = tr.Message
		}
	default:
		row.State, row.StateDescription = fleet.VolumePending, tr.Message
	}
	if said.State != fleet.VolumeDeleted || !old.Deleting {
		if row.ModifyIndex, row.ModifyTime = t.index, w.now; reflect.DeepEqual(&row, old) {
			return
		}
		volumeTable.putRow(t, &row)
	}
	volumeTable.markChanged(t)
	t.offerVolumes(n.ID, w)
}

// offerVolumes adds the ready volumes to the offer of their node. w collects evaluations of jobs that may now be
// placed; with nil none are made.
func (t *tx) offerVolumes(id fleet.NodeID, w *pendingEvals) {
	n := t.ownNodeRow(id)
	if n == nil {
		return
	}
	before := n.Node
	if n.HostVolumes = t.withDynamicVolumes(id, n.HostVolumes); maps.Equal(before.HostVolumes, n.HostVolumes) {
		return
	}
	t.nodeChanged(n)
	if w != nil && n.Status == fleet.NodeReady {
		t.requestOfferEvals(&n.Node, w)
	}
}

// withDynamicVolumes returns a node's host volumes: those that its edge is configured with, and the dynamic ones
// that are usable.
func (t *tx) withDynamicVolumes(id fleet.NodeID, said map[string]fleet.HostVolume) map[string]fleet.HostVolume {
	out := maps.Clone(said)
	maps.DeleteFunc(out, func(_ string, h fleet.HostVolume) bool { return h.ID != "" })
	for v := range t.volumesOn(id) {
		if _, configured := out[v.Name]; v.Usable() && !configured {
			if out == nil {
				out = map[string]fleet.HostVolume{}
			}
			out[v.Name] = fleet.HostVolume{Path: v.HostPath, ID: v.ID}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// volumesOn iterates over the volumes of a node as this entry has left them so far, by id.
func (t *tx) volumesOn(id fleet.NodeID) iter.Seq[*fleet.Volume] {
	rows := map[string]*fleet.Volume{}
	for v := range volumeTable.scanPrefix(t.base, indexNode, idKey(id)) {
		rows[string(idKey(v.ID))] = v
	}
	for k, v := range volumeTable.changedRows(t) {
		if v == nil {
			delete(rows, k)
		} else if v.NodeID == id {
			rows[k] = v
		}
	}
	return func(yield func(*fleet.Volume) bool) {
		for _, v := range inKeyOrder(rows) {
			if !yield(v) {
				return
			}
		}
	}
}

// keepVolumes keeps the volumes that were created after the snapshot. It makes hubs send all volumes to their edges
// again, because an edge may have made or deleted some since.
func (t *tx) keepVolumes(old *View, now int64) {
	nodes := map[fleet.NodeID]bool{}
	restate := func(v *fleet.Volume) {
		row := *v
		row.ModifyIndex, row.ModifyTime = t.index, now
		volumeTable.putRow(t, &row)
		nodes[row.NodeID] = true
	}
	for v := range volumeTable.scanRows(t.base) {
		restate(v)
	}
	for v := range volumeTable.scanRows(old.txn) {
		if volumeTable.currentRow(t, idKey(v.ID)) == nil && nodeTable.currentRow(t, idKey(v.NodeID)) != nil {
			restate(v)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		t.noteDesiredChange(id)
		t.offerVolumes(id, nil)
	}
}

// Volume returns a dynamic host volume; ok is false if there is none.
func (v *View) Volume(id fleet.VolumeID) (*fleet.Volume, bool) {
	return volumeTable.watchRow(v, idKey(id))
}

// Volumes iterates over the dynamic host volumes whose id starts with prefix.
func (v *View) Volumes(prefix string) iter.Seq[*fleet.Volume] {
	return volumeTable.watchTable(v, indexID, []byte(prefix))
}

// VolumesOn iterates over the dynamic host volumes of a node without watching them: DesiredIndex shows their changes.
func (v *View) VolumesOn(id fleet.NodeID) iter.Seq[*fleet.Volume] {
	return volumeTable.scanPrefix(v.txn, indexNode, idKey(id))
}
