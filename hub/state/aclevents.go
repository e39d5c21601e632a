package state

import "skerry/fleet"

// appendACLEvents appends an event for each object of access control that this entry stored or removed. No secret is in
// it, nor its hash.
func (t *tx) appendACLEvents(row *eventsRow) {
	appendStoredRows(t, row, &aclPolicyTable, TopicACLPolicy, func(e *Event, p *fleet.ACLPolicy) int {
		e.Key, e.ACLPolicy = p.Name, p
		return len(p.Rules)
	})
	appendStoredRows(t, row, &aclRoleTable, TopicACLRole, func(e *Event, r *fleet.ACLRole) int {
		e.Key, e.ACLRole = r.ID, r
		return 64 * len(r.Policies)
	})
	appendStoredRows(t, row, &aclTokenTable, TopicACLToken, func(e *Event, r *ACLTokenRecord) int {
		e.Key, e.ACLToken = r.AccessorID, &r.ACLToken
		return 64 * (len(r.Policies) + len(r.Roles))
	})
	appendStoredRows(t, row, &authMethodTable, TopicACLAuthMethod, func(e *Event, r *ACLAuthMethodRecord) int {
		shown := r.ShownMethod()
		e.Key, e.ACLAuthMethod = r.Name, &shown
		return 4096
	})
	appendStoredRows(t, row, &bindingRuleTable, TopicACLBindingRule, func(e *Event, r *fleet.ACLBindingRule) int {
		e.Key, e.ACLBindingRule = r.ID, r
		return len(r.Description) + len(r.Selector) + len(r.BindName)
	})
}

// appendStoredRows appends to events one for each row of a table that this entry of the log stored or removed. describe
// gets the row, or what it was before it was removed; it sets the event's key and object, and returns the object's size.
func appendStoredRows[R any](t *tx, events *eventsRow, tb *table[R], topic string, describe func(*Event, *R) int) {
	for k, now := range tb.changesInOrder(t) {
		e := Event{Topic: topic, Type: topic + "Upserted"}
		if now == nil {
			if now = tb.rowBeforeEntry(t, []byte(k)); now == nil {
				continue
			}
			e.Type = topic + "Deleted"
		}
		bytes := describe(&e, now)
		events.addEvent(256+bytes, e)
	}
}
