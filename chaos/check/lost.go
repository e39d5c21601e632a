package check

import "skerry/fleet"

// happening tells a row from all others of its edge, also where it was given
// another number since.
type happening struct {
	boot  fleet.BootID
	mono  int64
	wall  int64
	kind  fleet.TransitionKind
	alloc fleet.AllocID
	task  string
	event string
}

func happeningOf(t fleet.Transition) happening {
	h := happening{boot: t.BootID, mono: int64(t.Mono), wall: t.Wall, kind: t.Kind, alloc: t.Alloc, task: t.Task}
	if t.Event != nil {
		h.event = t.Event.Type
	}
	return h
}

// checkLossReported checks invariant 1 of a damaged journal: gap rows at the hub count each row
// that it held and that the hub lacks. A gap row without a count stands for any number. Rows
// that the hub dropped at its own bound, and counts, are not lost.
func checkLossReported(h Hub, e Edge) []Violation {
	if e.Replaced {
		return nil
	}
	known := map[happening]bool{}
	for _, a := range h.Allocs {
		for _, entry := range h.AllocHistory[a.ID] {
			if entry.Transition != nil {
				known[happeningOf(*entry.Transition)] = true
			}
		}
	}
	missing := map[fleet.AllocID][]fleet.Transition{}
	for _, row := range e.Before { // what was damaged twice is in it twice
		if it := happeningOf(row); len(h.AllocHistory[row.Alloc]) > 0 && !known[it] {
			missing[row.Alloc] = append(missing[row.Alloc], row)
			known[it] = true
		}
	}
	var lost []fleet.Transition
	for _, id := range sorted(missing) {
		lost = append(lost, missing[id][min(uint64(len(missing[id])), h.Dropped[id]):]...)
	}
	if len(lost) == 0 {
		return nil
	}
	spoken, uncounted := uint64(0), false
	for _, entry := range h.NodeHistory[e.NodeID] {
		if entry.Event == fleet.EventGap {
			spoken += entry.Gone
			uncounted = uncounted || entry.Gone == 0
		}
		if t := entry.Transition; t != nil && t.Kind == fleet.TransitionGap && t.Message != "" {
			spoken += t.Dropped
			uncounted = uncounted || t.Dropped == 0
		}
	}
	if uncounted || spoken >= uint64(len(lost)) {
		return nil
	}
	return []Violation{violation(1, "%s lacks %d rows that %s had journaled, and %d are said to be lost (row %d: %s)",
		h.Name, len(lost), e.Name, spoken, lost[0].Seq, describe(lost[0]))}
}
