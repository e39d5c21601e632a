package state

import (
	"reflect"

	"skerry/fleet"
	"skerry/fleet/taskenv"
)

// appendPoolEvents appends an event for each node pool that this entry stored or removed.
func (t *tx) appendPoolEvents(row *eventsRow) {
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

// appendServiceEvents appends an event for each service that an allocation's change registers, deregisters
// or moves. A node that becomes unreachable makes no service event; its own event says so.
func (t *tx) appendServiceEvents(row *eventsRow, changes []allocChange) {
	region := ""
	if c := clusterTable.currentRow(t, onlyKey); c != nil {
		region = c.Region
	}
	for _, c := range changes {
		before, after := t.offeredServices(c.old, region), t.offeredServices(c.now, region)
		for id, r := range inKeyOrder(before) {
			if _, still := after[id]; !still {
				row.addServiceEvent(EventServiceDeregistered, r)
			}
		}
		for id, r := range inKeyOrder(after) {
			if was, known := before[id]; !known || !sameRegistration(was, r) {
				row.addServiceEvent(EventServiceRegistered, r)
			}
		}
	}
}

// offeredServices returns the services that an allocation has in the catalogue, by registration id; a may
// be nil.
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

// sameRegistration reports whether two registrations are equal, apart from their indexes.
func sameRegistration(a, b fleet.ServiceRegistration) bool {
	a.CreateIndex, a.ModifyIndex, b.CreateIndex, b.ModifyIndex = 0, 0, 0, 0
	return reflect.DeepEqual(a, b)
}

// addServiceEvent appends an event of a service; kind is its type.
func (r *eventsRow) addServiceEvent(kind string, s fleet.ServiceRegistration) {
	r.addEvent(256, Event{
		Topic: TopicService, Type: kind, Key: s.ID, Namespace: s.Namespace,
		FilterKeys: nonEmptyKeys(string(s.JobID), s.ServiceName), Service: &s,
	})
}
