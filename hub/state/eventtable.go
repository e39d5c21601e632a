package state

import "skerry/fleet"

// eventsRow is what happened in one entry.
type eventsRow struct {
	index  fleet.Index
	events []Event
	bytes  int
}

// savedEvent is an event in a snapshot; Bytes is what its whole entry takes.
type savedEvent struct {
	Index fleet.Index
	Bytes int
	Event Event
}

var eventTable = table[eventsRow]{
	name:      "events",
	key:       func(r *eventsRow) []byte { return indexKey(r.index) },
	announced: true, undigested: true,
	records: []record[eventsRow]{partsRecord(61, saveEvents, loadEvent)},
}

func saveEvents(r *eventsRow) []savedEvent {
	saved := make([]savedEvent, 0, len(r.events))
	for _, e := range r.events {
		saved = append(saved, savedEvent{r.index, r.bytes, e})
	}
	return saved
}

func loadEvent(in *loader, tb *table[eventsRow], s *savedEvent) error {
	row := tb.currentRow(in.t, indexKey(s.Index))
	if row == nil {
		row = &eventsRow{index: s.Index, bytes: s.Bytes}
		tb.putRow(in.t, row)
	}
	row.events = append(row.events, s.Event)
	return nil
}

// windowRow is how much the window of events holds, and the newest entry that is not in
// it any more.
type windowRow struct {
	floor  fleet.Index
	events int
	bytes  int
}

type savedWindow struct{ Floor fleet.Index }

var windowTable = table[windowRow]{
	name: "window", key: onlyRow[windowRow], undigested: true,
	records: []record[windowRow]{savedRecord(60,
		func(r *windowRow) *savedWindow { return &savedWindow{r.floor} },
		func(_ *loader, s *savedWindow) (*windowRow, error) { return &windowRow{floor: s.Floor}, nil })},
}

// countEventWindow counts what a snapshot has of the window, or begins the window behind
// a snapshot that has none.
func (t *tx) countEventWindow(applied *metaRow) {
	events := eventTable.changedRows(t)
	w := windowTable.currentRow(t, onlyKey)
	if w == nil {
		w = &windowRow{}
		if applied != nil && len(events) == 0 {
			w.floor = applied.index
		}
		windowTable.putRow(t, w)
	}
	for _, row := range events {
		w.events += len(row.events)
		w.bytes += row.bytes
	}
}
