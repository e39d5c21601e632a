package state

import (
	"iter"
	"slices"

	"skerry/fleet"
)

// Bounds of the window of events, in events and approximate bytes. The events of one entry are kept
// or dropped together. The newest entry is always kept.
const (
	MaxEvents      = 16_384
	maxEventsBytes = 8 << 20
)

// Topics of events.
const (
	TopicJob        = "Job"
	TopicNode       = "Node"
	TopicDeployment = "Deployment"
	TopicEvaluation = "Evaluation"
	TopicAllocation = "Allocation"
	TopicPool       = "NodePool"
	TopicService    = "Service"
	TopicVariable   = "Variable"
	TopicACLPolicy  = "ACLPolicy"
	TopicACLRole    = "ACLRole"
	TopicACLToken   = "ACLToken"

	TopicACLAuthMethod  = "ACLAuthMethod"
	TopicACLBindingRule = "ACLBindingRule"
)

// Types of events, as Nomad's clients know them.
const (
	EventJobRegistered       = "JobRegistered"
	EventJobDeregistered     = "JobDeregistered"
	EventNodeRegistration    = "NodeRegistration"
	EventNodeDeregistration  = "NodeDeregistration"
	EventNodeEligibility     = "NodeEligibility"
	EventNodeDrain           = "NodeDrain"
	EventNodeChanged         = "NodeEvent"
	EventDeploymentStatus    = "DeploymentStatusUpdate"
	EventDeploymentPromotion = "DeploymentPromotion"
	EventDeploymentHealth    = "DeploymentAllocHealth"
	EventEvaluationUpdated   = "EvaluationUpdated"
	EventAllocationCreated   = "AllocationCreated"
	EventAllocationUpdated   = "AllocationUpdated"
	EventAllocationDesired   = "AllocationUpdateDesiredStatus"
	EventPoolStored          = "NodePoolUpserted"
	EventPoolDeleted         = "NodePoolDeleted"
	EventServiceRegistered   = "ServiceRegistration"
	EventServiceDeregistered = "ServiceDeregistration"
	EventVariableStored      = "VariableUpserted"
	EventVariableDeleted     = "VariableDeleted"
)

// Event is a change of one object by one log entry, with the object as the entry left it. One of the
// fields Job to ACLBindingRule is set, according to the topic. Objects are read only. Allocation.Job is nil.
type Event struct {
	Topic      string
	Type       string
	Key        string // the object's id
	Namespace  string // "" where the topic has none
	FilterKeys []string
	Deleted    bool // the job was removed from the state
	Job        *fleet.Job
	Node       *fleet.Node
	Deployment *fleet.Deployment
	Evaluation *fleet.Evaluation
	Allocation *fleet.Alloc
	Pool       *fleet.Pool
	Service    *fleet.ServiceRegistration
	Variable   *fleet.VariableMeta // without the ID of its lock
	ACLPolicy  *fleet.ACLPolicy    `cbor:",omitempty"`
	ACLRole    *fleet.ACLRole      `cbor:",omitempty"`
	ACLToken   *fleet.ACLToken     `cbor:",omitempty"`

	ACLAuthMethod  *fleet.ACLAuthMethod  `cbor:",omitempty"`
	ACLBindingRule *fleet.ACLBindingRule `cbor:",omitempty"`
}

// recordEvents adds the events of this entry to the window, and drops old ones. It must be called once,
// after all changes of the entry.
func (t *tx) recordEvents() {
	row := &eventsRow{index: t.index}
	allocs := t.changedAllocs()
	t.appendJobEvents(row)
	t.appendNodeEvents(row)
	t.appendDeploymentEvents(row)
	t.appendEvalEvents(row)
	t.appendAllocEvents(row, allocs)
	t.appendPoolEvents(row)
	t.appendServiceEvents(row, allocs)
	t.appendVariableEvents(row)
	t.appendACLEvents(row)
	if len(row.events) == 0 {
		return
	}
	eventTable.putRow(t, row)
	w := windowRow{}
	if old := windowTable.currentRow(t, onlyKey); old != nil {
		w = *old
	}
	w.events += len(row.events)
	w.bytes += row.bytes
	t.trimEventWindow(&w)
	windowTable.putRow(t, &w)
	eventTable.markChanged(t)
}

// trimEventWindow drops the oldest entries until the window is within its bounds.
func (t *tx) trimEventWindow(w *windowRow) {
	for old := range eventTable.scanRows(t.base) {
		if w.events <= MaxEvents && w.bytes <= maxEventsBytes {
			return
		}
		eventTable.removeRow(t, indexKey(old.index))
		w.floor = old.index
		w.events -= len(old.events)
		w.bytes -= old.bytes
	}
}

// addEvent appends an event; bytes is its approximate size.
func (r *eventsRow) addEvent(bytes int, e Event) {
	r.events = append(r.events, e)
	r.bytes += 256 + bytes
}

// appendJobEvents appends an event for each job that this entry registered, stopped or removed.
func (t *tx) appendJobEvents(row *eventsRow) {
	for k, now := range jobTable.changesInOrder(t) {
		old := jobTable.rowBeforeEntry(t, []byte(k))
		e := Event{Topic: TopicJob, Type: EventJobRegistered}
		switch {
		case now == nil && old == nil:
			continue
		case now == nil:
			job := *old.job
			job.Stop = true
			e.Job, e.Type, e.Deleted = &job, EventJobDeregistered, true
		case old != nil && old.job.JobModifyIndex == now.job.JobModifyIndex:
			continue // only its status or counts changed
		default:
			e.Job = now.job
			if now.job.Stop {
				e.Type = EventJobDeregistered
			}
		}
		e.Key, e.Namespace = string(e.Job.ID), e.Job.Namespace
		row.addEvent(t.jobBytes(e.Job), e)
	}
}

// jobBytes returns the approximate size of a job: the size of its specification.
func (t *tx) jobBytes(j *fleet.Job) int {
	if n, ok := t.specBytes[j.SpecHash]; ok {
		return n
	}
	return len(encode(j))
}

// appendNodeEvents appends an event for each node that this entry changed. Applied journal rows alone are
// no change.
func (t *tx) appendNodeEvents(row *eventsRow) {
	for k, now := range nodeTable.changesInOrder(t) {
		if now != nil && now.ModifyIndex != t.index {
			continue // only applied journal rows
		}
		old := nodeTable.rowBeforeEntry(t, []byte(k))
		e := Event{Topic: TopicNode}
		switch {
		case now == nil && old == nil:
			continue
		case now == nil:
			e.Type = EventNodeDeregistration
			now = old
		default:
			e.Type = nodeEventType(old, now)
		}
		node := now.Node
		e.Node, e.Key = &node, string(node.ID)
		row.addEvent(512+64*(len(node.Attributes)+len(node.Meta)), e)
	}
}

// nodeEventType returns the type of the event for a change of a node. old is nil for a new node.
func nodeEventType(old, now *nodeRow) string {
	switch {
	case old == nil || old.DescriptionHash != now.DescriptionHash:
		return EventNodeRegistration
	case (old.DrainStrategy == nil) != (now.DrainStrategy == nil):
		return EventNodeDrain
	case old.SchedulingEligibility != now.SchedulingEligibility:
		return EventNodeEligibility
	}
	return EventNodeChanged
}

// appendDeploymentEvents appends an event for each deployment that this entry changed.
func (t *tx) appendDeploymentEvents(row *eventsRow) {
	for k, now := range deploymentTable.changesInOrder(t) {
		if now == nil || now.ModifyIndex != t.index {
			continue
		}
		old := deploymentTable.rowBeforeEntry(t, []byte(k))
		d := now.Deployment
		row.addEvent(256+256*len(d.TaskGroups), Event{
			Topic: TopicDeployment, Type: deploymentEventType(old, now), Key: string(d.ID), Namespace: d.Namespace,
			FilterKeys: []string{string(d.JobID)}, Deployment: &d,
		})
	}
}

// deploymentEventType returns the type of the event for a change of a deployment. old is nil for a new
// deployment.
func deploymentEventType(old, now *deploymentRow) string {
	if old == nil || old.Status != now.Status || old.StatusDescription != now.StatusDescription {
		return EventDeploymentStatus
	}
	for name, g := range now.TaskGroups {
		if g.Promoted && !old.TaskGroups[name].Promoted {
			return EventDeploymentPromotion
		}
	}
	return EventDeploymentHealth
}

// appendEvalEvents appends an event for each evaluation that this entry stored.
func (t *tx) appendEvalEvents(row *eventsRow) {
	for _, e := range evalTable.changesInOrder(t) {
		if e == nil || e.ModifyIndex != t.index {
			continue
		}
		row.addEvent(256+512*len(e.FailedTGAllocs), Event{
			Topic: TopicEvaluation, Type: EventEvaluationUpdated, Key: string(e.ID), Namespace: e.Namespace,
			FilterKeys: nonEmptyKeys(string(e.JobID), string(e.DeploymentID)), Evaluation: e,
		})
	}
}

// allocChange is an allocation before and after this entry. old is nil for a new one, now for a removed one.
type allocChange struct{ old, now *allocRow }

// changedAllocs lists the allocations that this entry changed, in the order of their ids.
func (t *tx) changedAllocs() []allocChange {
	changes := make([]allocChange, 0, len(allocTable.changedRows(t)))
	for k, now := range allocTable.changesInOrder(t) {
		changes = append(changes, allocChange{allocTable.rowBeforeEntry(t, []byte(k)), now})
	}
	return changes
}

// appendAllocEvents appends an event for each allocation that this entry placed or changed.
func (t *tx) appendAllocEvents(row *eventsRow, changes []allocChange) {
	modified := slices.DeleteFunc(slices.Clone(changes), func(c allocChange) bool { return c.now == nil || c.now.ModifyIndex != t.index })
	row.events = slices.Grow(row.events, len(modified))
	for _, c := range modified {
		old, now := c.old, c.now
		a := now.Alloc
		a.Job = nil
		e := Event{
			Topic: TopicAllocation, Type: EventAllocationUpdated, Key: string(a.ID), Namespace: a.Namespace,
			FilterKeys: nonEmptyKeys(string(a.JobID), string(a.DeploymentID)), Allocation: &a,
		}
		switch {
		case old == nil:
			e.Type = EventAllocationCreated
		case old.DesiredStatus != a.DesiredStatus:
			e.Type = EventAllocationDesired
		}
		bytes := 512
		for _, s := range a.TaskStates {
			bytes += 128 + 128*len(s.Events)
		}
		row.addEvent(bytes, e)
	}
}

// nonEmptyKeys returns the keys that are not "".
func nonEmptyKeys(keys ...string) []string {
	return slices.DeleteFunc(keys, func(k string) bool { return k == "" })
}

// EventsAfter iterates over the entries after index that are in the window, oldest first, each with its
// events.
func (v *View) EventsAfter(index fleet.Index) iter.Seq2[fleet.Index, []Event] {
	rows := eventTable.watchFrom(v, indexID, indexKey(index+1))
	return func(yield func(fleet.Index, []Event) bool) {
		for r := range rows {
			if !yield(r.index, r.events) {
				return
			}
		}
	}
}

// EventsFloor returns the newest entry whose events were dropped. The window has all events of later
// entries.
func (v *View) EventsFloor() fleet.Index {
	if w, ok := windowTable.watchRow(v, onlyKey); ok {
		return w.floor
	}
	return 0
}
