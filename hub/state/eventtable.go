package state

import "skerry/fleet"

// eventsRow holds the events of one entry, and their approximate size.
type eventsRow struct {
	index  fleet.Index
	events []Event
	bytes  int
}

// savedEvent is one event in a snapshot. Bytes is the size of all events of its entry.
type savedEvent struct {
	Index fleet.Index
	Bytes int
	Event Event
}

var eventTable = table[eventsRow]{
	name:      "events",
	key:       func(r *eventsRow) []byte { return indexKey(r.index) },
	announced: true, undigested: true,
	records: []record[eventsRow]{partsRecord(61, toSavedEvents, loadEvent)},
}

// toSavedEvents converts the events of an entry to snapshot records.
func toSavedEvents(r *eventsRow) []savedEvent {
	saved := make([]savedEvent, 0, len(r.events))
	for _, e := range r.events {
		saved = append(saved, savedEvent{r.index, r.bytes, e})
	}
	return saved
}

// loadEvent adds an event of a snapshot to the row of its entry.
func loadEvent(in *loader, tb *table[eventsRow], s *savedEvent) error {
	row := tb.currentRow(in.t, indexKey(s.Index))
	if row == nil {
		row = &eventsRow{index: s.Index, bytes: s.Bytes}
		tb.putRow(in.t, row)
	}
	row.events = append(row.events, s.Event)
	return nil
}

// windowRow counts the events in the window. floor is the newest entry whose events were dropped.
type windowRow struct {
	floor  fleet.Index
	events int
	bytes  int
}

// savedWindow is a windowRow in a snapshot.
type savedWindow struct{ Floor fleet.Index }

var windowTable = table[windowRow]{
	name: "window", key: onlyRow[windowRow], undigested: true,
	records: []record[windowRow]{savedRecord(60,
		func(r *windowRow) *savedWindow { return &savedWindow{r.floor} },
		func(_ *loader, s *savedWindow) (*windowRow, error) { return &windowRow{floor: s.Floor}, nil })},
}

// countEventWindow counts the events that were read from a snapshot. A snapshot without a window has none.
func (t *tx) countEventWindow() {
	w := windowTable.currentRow(t, onlyKey)
	if w == nil {
		return
	}
	for _, row := range eventTable.changedRows(t) {
		w.events += len(row.events)
		w.bytes += row.bytes
	}
}
