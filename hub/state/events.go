package state

import (
	"iter"
	"slices"

	"skerry/fleet"
)

// Bounds of the window of events, in events and in roughly the bytes that they
// take. What happened in one entry is kept or let go as a whole, and the newest
// entry is always kept.
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
)

// Event is what one entry of the log did to one object, which is as the entry left
// it. Of Job, Node, Deployment, Evaluation, Allocation, Pool and Service the one of the
// topic is set; they are read only. An allocation's job is not in it.
type Event struct {
	Topic      string
	Type       string
	Key        string // the object's id
	Namespace  string // "" where the topic has none
	FilterKeys []string
	Deleted    bool // a job that is gone altogether
	Job        *fleet.Job
	Node       *fleet.Node
	Deployment *fleet.Deployment
	Evaluation *fleet.Evaluation
	Allocation *fleet.Alloc
	Pool       *fleet.Pool
	Service    *fleet.ServiceRegistration
}

// recordEvents puts what the entry did into the window. It is called once, when
// nothing of the entry is open any more.
func (t *tx) recordEvents() {
	row := &eventsRow{index: t.index}
	t.jobEvents(row)
	t.nodeEvents(row)
	t.deploymentEvents(row)
	t.evalEvents(row)
	t.allocEvents(row)
	t.poolEvents(row)
	t.serviceEvents(row)
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

// trimEventWindow drops the oldest entries until the window keeps its bounds.
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

func (r *eventsRow) addEvent(bytes int, e Event) {
	r.events = append(r.events, e)
	r.bytes += 256 + bytes
}

func (t *tx) jobEvents(row *eventsRow) {
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
			continue // what changed is counted of its allocations
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

// jobBytes is roughly what a job takes: the size of its specification, which an entry
// that registers it knows already.
func (t *tx) jobBytes(j *fleet.Job) int {
	if n, ok := t.specBytes[j.SpecHash]; ok {
		return n
	}
	return len(encode(j))
}

func (t *tx) nodeEvents(row *eventsRow) {
	for k, now := range nodeTable.changesInOrder(t) {
		if now != nil && now.ModifyIndex != t.index {
			continue // its journal went on, no more
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
			e.Type = nodeEvent(old, now)
		}
		node := now.Node
		e.Node, e.Key = &node, string(node.ID)
		row.addEvent(512+64*(len(node.Attributes)+len(node.Meta)), e)
	}
}

func nodeEvent(old, now *nodeRow) string {
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

func (t *tx) deploymentEvents(row *eventsRow) {
	for k, now := range deploymentTable.changesInOrder(t) {
		if now == nil || now.ModifyIndex != t.index {
			continue
		}
		old := deploymentTable.rowBeforeEntry(t, []byte(k))
		d := now.Deployment
		row.addEvent(256+256*len(d.TaskGroups), Event{
			Topic: TopicDeployment, Type: deploymentEvent(old, now), Key: string(d.ID), Namespace: d.Namespace,
			FilterKeys: []string{string(d.JobID)}, Deployment: &d,
		})
	}
}

func deploymentEvent(old, now *deploymentRow) string {
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

func (t *tx) evalEvents(row *eventsRow) {
	for _, e := range evalTable.changesInOrder(t) {
		if e == nil || e.ModifyIndex != t.index {
			continue
		}
		row.addEvent(256+512*len(e.FailedTGAllocs), Event{
			Topic: TopicEvaluation, Type: EventEvaluationUpdated, Key: string(e.ID), Namespace: e.Namespace,
			FilterKeys: keysOf(string(e.JobID), string(e.DeploymentID)), Evaluation: e,
		})
	}
}

func (t *tx) allocEvents(row *eventsRow) {
	for k, now := range allocTable.changesInOrder(t) {
		if now == nil || now.ModifyIndex != t.index {
			continue
		}
		old := allocTable.rowBeforeEntry(t, []byte(k))
		a := now.Alloc
		a.Job = nil
		e := Event{
			Topic: TopicAllocation, Type: EventAllocationUpdated, Key: string(a.ID), Namespace: a.Namespace,
			FilterKeys: keysOf(string(a.JobID), string(a.DeploymentID)), Allocation: &a,
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

func keysOf(keys ...string) []string {
	return slices.DeleteFunc(keys, func(k string) bool { return k == "" })
}

// EventsAfter lists the entries behind index that the window holds, oldest first,
// each with what happened in it.
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

// EventsFloor is the newest entry whose events are not kept any more: what
// happened behind it is all there.
func (v *View) EventsFloor() fleet.Index {
	if w, ok := windowTable.watchRow(v, onlyKey); ok {
		return w.floor
	}
	return 0
}
