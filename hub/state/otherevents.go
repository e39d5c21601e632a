package state

import (
	"reflect"

	"skerry/fleet"
	"skerry/fleet/taskenv"
)

func (t *tx) poolEvents(row *eventsRow) {
	for k, now := range poolTable.changesInOrder(t) {
		e := Event{Topic: TopicPool, Type: EventPoolStored, Pool: now}
		if now == nil {
			if e.Pool = poolTable.rowBeforeEntry(t, []byte(k)); e.Pool == nil {
				continue
			}
			e.Type = EventPoolDeleted
		}
		e.Key = e.Pool.Name
		row.addEvent(256, e)
	}
}

// serviceEvents tells what of the catalogue a change of an allocation makes come, go
// or be somewhere else. That a node is away, and what it offers out of reach, is told
// of the node.
func (t *tx) serviceEvents(row *eventsRow) {
	region := ""
	if c := clusterTable.currentRow(t, onlyKey); c != nil {
		region = c.Region
	}
	for k, now := range allocTable.changesInOrder(t) {
		old := allocTable.rowBeforeEntry(t, []byte(k))
		before, after := t.offeredServices(old, region), t.offeredServices(now, region)
		for id, r := range inKeyOrder(before) {
			if _, still := after[id]; !still {
				row.addService(EventServiceDeregistered, r)
			}
		}
		for id, r := range inKeyOrder(after) {
			if was, known := before[id]; !known || !sameRegistration(was, r) {
				row.addService(EventServiceRegistered, r)
			}
		}
	}
}

// offeredServices is what an allocation has in the catalogue, by the ids of registrations.
func (t *tx) offeredServices(a *allocRow, region string) map[string]fleet.ServiceRegistration {
	if a == nil || !a.Offers() {
		return nil
	}
	n := nodeTable.currentRow(t, idKey(a.NodeID))
	if n == nil {
		return nil
	}
	out := map[string]fleet.ServiceRegistration{}
	for _, r := range taskenv.Registrations(&a.Alloc, &n.Node, region) {
		out[r.ID] = r
	}
	return out
}

// sameRegistration reports whether two registrations say the same, but for when they changed.
func sameRegistration(a, b fleet.ServiceRegistration) bool {
	a.CreateIndex, a.ModifyIndex, b.CreateIndex, b.ModifyIndex = 0, 0, 0, 0
	return reflect.DeepEqual(a, b)
}

func (r *eventsRow) addService(kind string, s fleet.ServiceRegistration) {
	r.addEvent(256, Event{
		Topic: TopicService, Type: kind, Key: s.ID, Namespace: s.Namespace,
		FilterKeys: keysOf(string(s.JobID), s.ServiceName), Service: &s,
	})
}
