package state

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/fleet/placement"
)

// nodeRegister applies the command NodeRegister: it stores the attributes that an edge reports of its
// node, and evaluations if a ready node changed its offer. It is refused for a revoked node.
func (t *tx) nodeRegister(c NodeRegister) Result {
	if c.Node.ID == "" {
		return refusal(fleet.CodeInvalid, "register node %q: it has no id", c.Node.Name)
	}
	if res := t.refuseRevoked("register a node", c.Node.ID); res != nil {
		return *res
	}
	if err := placement.ValidatePorts(&c.Node); err != nil {
		return refusal(fleet.CodeInvalid, "register node %s: %v", fleet.Short(c.Node.ID), err)
	}
	w := pendingEvals{seed: c.EvalSeed, now: c.Now}
	t.storeNodeDescription(&c.Node, &w)
	if c.EvalSeed == "" {
		return Result{} // an older release wrote the entry, and nothing was evaluated for it
	}
	return Result{Evals: t.storePendingEvals(&w)}
}

// storeNodeDescription stores the attributes that an edge reports of its node, and creates the node if it
// is new. If a ready node changed what it offers, evaluations are added to w.
func (t *tx) storeNodeDescription(said *fleet.Node, w *pendingEvals) {
	n := t.ownNodeRow(said.ID)
	known := n != nil
	if !known {
		n = &nodeRow{}
		n.ID, n.Status, n.SchedulingEligibility = said.ID, fleet.NodeInitializing, fleet.NodeEligible
		n.CreateIndex, n.StatusUpdatedAt = t.index, unixSeconds(w.now)
		if said.SchedulingEligibility == fleet.NodeIneligible {
			n.SchedulingEligibility = fleet.NodeIneligible
		}
		nodeTable.putRow(t, n)
	}
	before := n.Node
	n.Name, n.Datacenter, n.NodeClass = said.Name, said.Datacenter, said.NodeClass
	n.Site, n.TimeZone = said.AtSite(), said.TimeZone
	n.NodePool = said.NodePool
	if n.NodePool == "" {
		n.NodePool = fleet.DefaultPool
	}
	t.placeAsAdmitted(&n.Node)
	n.Attributes, n.Meta, n.Devices = said.Attributes, said.Meta, said.Devices
	if w.now != 0 { // an admission alone says nothing of devices
		t.storeMissingDevices(n, w.now)
	}
	n.Drivers = withUpdateTimes(before.Drivers, said.Drivers, time.Unix(0, w.now).UTC())
	t.addDriverEvents(n, before.Drivers, w.now)
	n.HostNetworks, n.ReservedPorts, n.MaxAllocs = said.HostNetworks, said.ReservedPorts, said.MaxAllocs
	n.MinDynamicPort, n.MaxDynamicPort = said.MinDynamicPort, said.MaxDynamicPort
	n.HostVolumes = t.withDynamicVolumes(said.ID, said.HostVolumes)
	n.Resources, n.Reserved, n.Version = said.Resources, said.Reserved, said.Version
	n.DescriptionHash = said.DescriptionHash
	if said.Address != "" {
		n.Address = said.Address
	}
	n.ComputedClass = computeNodeClass(&n.Node)
	t.nodeChanged(n)
	if known && before.DescriptionHash != n.DescriptionHash {
		t.markMeta(metaServices) // addresses and ${…} in services come from the node
	}
	if !known || before.DescriptionHash != n.DescriptionHash || before.OwnSite() != n.OwnSite() {
		t.noteSiteChange(&before)
		t.noteSiteChange(&n.Node)
	}
	t.ensurePool(n.NodePool)
	switch {
	case !known:
		n.addNodeEvent("Cluster", "Node registered", w.now, t.index)
		t.recordNodeEvent(n, "registered", "", w.now)
	case n.Status == fleet.NodeReady && offersDifferently(&before, &n.Node):
		t.requestOfferEvals(&n.Node, w)
	}
}

// offersDifferently reports whether a node's attributes, drivers, resources, devices, networks or ports
// changed, so that other allocations may fit.
func offersDifferently(before, now *fleet.Node) bool {
	return before.ComputedClass != now.ComputedClass || before.Name != now.Name || before.TimeZone != now.TimeZone ||
		!maps.Equal(before.Attributes, now.Attributes) || !maps.Equal(before.Meta, now.Meta) ||
		before.Free() != now.Free() || before.MaxAllocs != now.MaxAllocs ||
		before.MinDynamicPort != now.MinDynamicPort || before.MaxDynamicPort != now.MaxDynamicPort ||
		!reflect.DeepEqual(before.Devices, now.Devices) || !reflect.DeepEqual(before.HostNetworks, now.HostNetworks) ||
		before.ReservedPorts != now.ReservedPorts || !maps.Equal(before.HostVolumes, now.HostVolumes)
}

// requestOfferEvals adds evaluations of the jobs with an allocation on a ready node whose offer changed,
// and of the jobs that run on all nodes. It records free capacity for blocked evaluations.
func (t *tx) requestOfferEvals(n *fleet.Node, w *pendingEvals) {
	for _, id := range t.allocsOn(n.ID) {
		if a := t.currentAlloc(id); t.needsEvaluation(&a.Alloc, math.MaxUint64) {
			w.requestEval(a.Namespace, a.JobID, fleet.TriggerNodeUpdate, n)
		}
	}
	if n.Schedulable() {
		t.noteFreedClass(n)
		t.requestSystemEvals(w, n)
	}
}

// ownNodeRow returns a copy of a node that this entry may change in place, or nil.
func (t *tx) ownNodeRow(id fleet.NodeID) *nodeRow {
	return nodeTable.ownRow(t, idKey(id), func(r *nodeRow) *nodeRow {
		c := *r
		return &c
	})
}

// nodeChanged sets the node's modify index to this entry. Journal rows alone do not change it.
func (t *tx) nodeChanged(n *nodeRow) {
	n.ModifyIndex = t.index
	nodeTable.markChanged(t)
}

// setNodeStatus sets a node's status and its description, and records free capacity if the node is then
// schedulable.
func (t *tx) setNodeStatus(n *nodeRow, status fleet.NodeStatus, why string, now int64) {
	if n.Status != status {
		n.StatusUpdatedAt = unixSeconds(now)
	}
	if isAway(n.Status) != isAway(status) {
		t.markMeta(metaServices) // the services there can be reached again, or no longer
		t.noteSiteChange(&n.Node)
	}
	n.Status, n.StatusDescription = status, why
	t.nodeChanged(n)
	if n.Schedulable() {
		t.noteFreedClass(&n.Node)
	}
}

// noteFreedClass records free capacity on nodes of this node's class, which unblocks evaluations.
func (t *tx) noteFreedClass(n *fleet.Node) {
	capacityTable.putRow(t, &capacityRow{n.ComputedClass, t.index})
	capacityTable.markChanged(t)
}

// ensurePool creates a node pool if it does not exist.
func (t *tx) ensurePool(name string) {
	builtin := slices.ContainsFunc(builtinPools, func(p fleet.Pool) bool { return p.Name == name })
	if builtin || poolTable.currentRow(t, key(name)) != nil {
		return
	}
	poolTable.putRow(t, &fleet.Pool{Name: name, CreateIndex: t.index, ModifyIndex: t.index})
	poolTable.markChanged(t)
}

// addNodeEvent adds an event to those that users see of a node, and drops the oldest. n must be the
// entry's own copy.
func (n *nodeRow) addNodeEvent(subsystem, message string, now int64, index fleet.Index) {
	events := append(slices.Clone(n.Events), fleet.NodeEvent{
		Message: message, Subsystem: subsystem, Timestamp: time.Unix(0, now).UTC(), CreateIndex: index,
	})
	n.Events = keepNewest(events, fleet.NodeEventsKept)
}

// keepNewest returns the last n elements of a list. A longer list is copied, not changed.
func keepNewest[E any](list []E, n int) []E {
	if len(list) <= n {
		return list
	}
	return slices.Clone(list[len(list)-n:])
}

// nodeResync applies the command NodeResync: it records orphans, or another problem of a connected node,
// for people. It is refused with stale_epoch if the node has another epoch by now.
func (t *tx) nodeResync(c NodeResync) Result {
	n := t.ownNodeRow(c.NodeID)
	switch {
	case n == nil:
		return refusal(fleet.CodeNotFound, "record a resync of node %s: there is no such node", fleet.Short(c.NodeID))
	case n.Epoch != c.Epoch:
		return refusal(fleet.CodeStaleEpoch, "record a resync of node %s: epoch %d, not %d", fleet.Short(c.NodeID), n.Epoch, c.Epoch)
	}
	t.nodeChanged(n)
	if len(c.Orphans) > 0 {
		n.Orphans = c.Orphans
		n.addNodeEvent("Edge", "Node "+c.Reason, c.Now, t.index)
		t.recordNodeEvent(n, "orphans", c.Reason, c.Now)
		return Result{}
	}
	n.StatusDescription = c.Reason
	n.addNodeEvent("Cluster", "Resync: "+c.Reason, c.Now, t.index)
	t.recordNodeEvent(n, "resync", c.Reason, c.Now)
	return Result{}
}

// nodeEligibility applies the command NodeEligibility: it makes a node eligible or ineligible. It is
// refused (conflict) while the node is being drained.
func (t *tx) nodeEligibility(c NodeEligibility) Result {
	n := t.ownNodeRow(c.NodeID)
	switch {
	case n == nil:
		return refusal(fleet.CodeNotFound, "set eligibility of node %s: there is no such node", fleet.Short(c.NodeID))
	case c.Eligibility != fleet.NodeEligible && c.Eligibility != fleet.NodeIneligible:
		return refusal(fleet.CodeInvalid, "set eligibility of node %s: %q is neither %q nor %q",
			fleet.Short(c.NodeID), c.Eligibility, fleet.NodeEligible, fleet.NodeIneligible)
	case n.SchedulingEligibility == c.Eligibility:
		return Result{}
	case n.DrainStrategy != nil:
		return refusal(fleet.CodeConflict, "set eligibility of node %s: it is being drained", fleet.Short(c.NodeID))
	}
	w := pendingEvals{seed: c.EvalSeed, now: c.Now}
	t.setEligibility(n, c.Eligibility, &w)
	return Result{Evals: t.storePendingEvals(&w)}
}

// setEligibility makes a node eligible or ineligible. For an eligible one it records free capacity, and
// adds evaluations of the jobs that run on all nodes.
func (t *tx) setEligibility(n *nodeRow, eligibility string, w *pendingEvals) {
	n.SchedulingEligibility = eligibility
	t.nodeChanged(n)
	n.addNodeEvent("Cluster", "Node marked as "+eligibility+" for scheduling", w.now, t.index)
	if n.Schedulable() {
		t.noteFreedClass(&n.Node)
		t.requestSystemEvals(w, &n.Node)
	}
}

// requestSystemEvals adds an evaluation of every system job in the node's pool and datacenter, and of
// every sysbatch job that has not run on the node yet.
func (t *tx) requestSystemEvals(w *pendingEvals, n *fleet.Node) {
	for r := range jobTable.scanRows(t.base) {
		if r.job.Stop || !r.job.InPool(n.NodePool) || !r.job.InDatacenter(n.Datacenter) {
			continue
		}
		if r.job.Type == fleet.JobTypeSystem || r.job.Type == fleet.JobTypeSysBatch && !t.nodeHasJobVersion(r.job, n.ID) {
			w.requestEval(r.job.Namespace, r.job.ID, fleet.TriggerNodeUpdate, n)
		}
	}
}

// nodeHasJobVersion reports whether a node has an allocation of the job's current version, ended ones
// included.
func (t *tx) nodeHasJobVersion(job *fleet.Job, id fleet.NodeID) bool {
	for _, a := range t.allocsOn(id) {
		if a := t.currentAlloc(a); a.Namespace == job.Namespace && a.JobID == job.ID && a.JobHash == job.SpecHash {
			return true
		}
	}
	return false
}

// FencedRows holds the rows that a fenced session sent. They are kept apart from the node's own history.
type FencedRows struct {
	Session fleet.FencedSession
	Rows    [][]byte // the oldest ones, encoded by syncproto.EncodeRow
	Dropped int      // number of rows that were not kept
}

// Bounds of the fenced sessions that a node keeps, and of the rows of each.
const (
	fencedKept     = 16
	fencedRowsKept = 256
)

// fenceSession applies the command Fence: it records a refused session on the node, with the rows that it
// sent.
func (t *tx) fenceSession(c Fence) Result {
	n := t.ownNodeRow(c.NodeID)
	if n == nil {
		return refusal(fleet.CodeNotFound, "fence a session of node %s: there is no such node", fleet.Short(c.NodeID))
	}
	if c.Session.Code == fleet.CodeFormerSession {
		t.noteNewcomer(n, c.Session)
		return Result{}
	}
	if n.Newcomer != nil && n.Newcomer.Instance == c.Session.Instance {
		n.Newcomer = nil
	}
	kept := c.Rows[:min(len(c.Rows), fencedRowsKept)]
	n.Fenced = keepNewest(append(slices.Clone(n.Fenced), c.Session), fencedKept)
	n.fenced = keepNewest(append(slices.Clone(n.fenced),
		FencedRows{Session: c.Session, Rows: kept, Dropped: len(c.Rows) - len(kept)}), fencedKept)
	message := "Session fenced: another machine at " + c.Session.Addr + " has this identity"
	t.nodeChanged(n)
	n.addNodeEvent("Cluster", message, c.Session.Time, t.index)
	t.recordNodeEvent(n, "fenced", string(c.Session.Code)+" from "+c.Session.Addr, c.Session.Time)
	return Result{}
}

// noteNewcomer records on the node that another agent process waits until the current session is over.
func (t *tx) noteNewcomer(n *nodeRow, s fleet.FencedSession) {
	n.Newcomer = &s
	why := fmt.Sprintf("an agent process at %s waits: hub %s has the session of another one and cannot be asked whether that is over", s.Addr, n.Hub)
	t.nodeChanged(n)
	n.addNodeEvent("Cluster", "Newcomer waits: "+why, s.Time, t.index)
	t.recordNodeEvent(n, "newcomer waits", why, s.Time)
}

// computeNodeClass returns a hash of the node's properties that constraints can refer to. Properties with
// "unique." in their names are left out, so that many nodes share a class.
func computeNodeClass(n *fleet.Node) string {
	common := func(m map[string]string) map[string]string {
		out := make(map[string]string, len(m))
		for k, v := range m {
			if !strings.Contains(k, "unique.") {
				out[k] = v
			}
		}
		return out
	}
	drivers := make(map[string]bool, len(n.Drivers))
	for name, d := range n.Drivers {
		drivers[name] = d.Detected && d.Healthy
	}
	h := sha256.Sum256(encode(struct {
		Datacenter, Pool, Class string
		Attributes, Meta        map[string]string
		Drivers                 map[string]bool
		Site                    string `cbor:",omitempty"`
	}{n.Datacenter, n.NodePool, n.NodeClass, common(n.Attributes), common(n.Meta), drivers, n.OwnSite()}))
	return "v1:" + hex.EncodeToString(h[:8])
}

// unixSeconds converts nanoseconds to seconds.
func unixSeconds(nano int64) int64 { return nano / int64(time.Second) }

// Node returns a node; ok is false if there is none.
func (v *View) Node(id fleet.NodeID) (*fleet.Node, bool) {
	row, ok := nodeTable.watchRow(v, idKey(id))
	if !ok {
		return nil, false
	}
	return &row.Node, true
}

// Nodes iterates over the nodes whose id starts with prefix. A Watch view does not wake for applied
// journal rows.
func (v *View) Nodes(prefix string) iter.Seq[*fleet.Node] {
	rows := nodeTable.watchTable(v, indexID, []byte(prefix))
	return func(yield func(*fleet.Node) bool) {
		for r := range rows {
			if !yield(&r.Node) {
				return
			}
		}
	}
}

// DrainingNodes iterates over the nodes that are being drained. A Watch view wakes only for these.
func (v *View) DrainingNodes() iter.Seq[*fleet.Node] {
	rows := nodeTable.watchPrefix(v, indexDraining, nil)
	return func(yield func(*fleet.Node) bool) {
		for r := range rows {
			if !yield(&r.Node) {
				return
			}
		}
	}
}

// Fenced returns the rows that fenced sessions of a node sent, the oldest session first.
func (v *View) Fenced(id fleet.NodeID) []FencedRows {
	row, ok := nodeTable.watchRow(v, idKey(id))
	if !ok {
		return nil
	}
	return row.fenced
}

// DesiredIndex returns the newest entry that changed the desired state of the node's allocations, which
// its edge needs to receive. A Watch view wakes for these changes only, not for reports of the edge.
func (v *View) DesiredIndex(id fleet.NodeID) fleet.Index {
	if r, ok := desiredTable.watchRow(v, idKey(id)); ok {
		return r.index
	}
	return 0
}

// CapacitySince iterates over the node classes (Node.ComputedClass) that got free capacity after index,
// each with its newest such entry: a node became ready or eligible, or an allocation's end was confirmed.
func (v *View) CapacitySince(index fleet.Index) iter.Seq2[string, fleet.Index] {
	rows := capacityTable.watchRows(v)
	return func(yield func(string, fleet.Index) bool) {
		for r := range rows {
			if r.index > index && !yield(r.class, r.index) {
				return
			}
		}
	}
}

// subsystemDriver and detailDriver are those of Nomad's events of drivers.
const (
	subsystemDriver = "Driver"
	detailDriver    = "driver"
)

// addDriverEvents adds an event for each driver that was healthy before and is not now, or the other way round. n must be the
// entry's own copy.
func (t *tx) addDriverEvents(n *nodeRow, before map[string]fleet.DriverInfo, now int64) {
	for _, name := range slices.Sorted(maps.Keys(n.Drivers)) {
		old, known := before[name]
		info := n.Drivers[name]
		if !known || old.Healthy == info.Healthy {
			continue
		}
		message := fmt.Sprintf("Driver %s is healthy", name)
		if !info.Healthy {
			message = fmt.Sprintf("Driver %s is not healthy: %s", name, info.HealthDescription)
		}
		n.addNodeEvent(subsystemDriver, message, now, t.index)
		n.Events[len(n.Events)-1].Details = map[string]string{detailDriver: name}
	}
}

// withUpdateTimes returns the drivers that an edge reports, each with the time of its last change. now is
// the time of a driver that is new or has changed.
func withUpdateTimes(before, said map[string]fleet.DriverInfo, now time.Time) map[string]fleet.DriverInfo {
	if said == nil {
		return nil
	}
	drivers := make(map[string]fleet.DriverInfo, len(said))
	for name, d := range said {
		d.UpdateTime = before[name].UpdateTime
		if old := before[name]; d.UpdateTime.IsZero() || d.Detected != old.Detected || d.Healthy != old.Healthy ||
			d.HealthDescription != old.HealthDescription || !maps.Equal(d.Attributes, old.Attributes) {
			d.UpdateTime = now
		}
		drivers[name] = d
	}
	return drivers
}
