package check

import (
	"slices"

	"skerry/fleet"
)

// catalogue checks each hub's service catalogue: its index grows with each change, so that followers notice, and it
// lists no ended allocation.
type catalogue struct {
	last map[string]Catalogue // by hub name: the last observed catalogue
}

// newCatalogue returns the checker of the service catalogues.
func newCatalogue() checker {
	t := &catalogue{last: map[string]Catalogue{}}
	return checker{state: t, hub: t.judgeCatalogue, rewind: func(*runContext) { clear(t.last) }}
}

// judgeCatalogue compares a hub's catalogue with the hub's last one and with the hub's allocations.
func (t *catalogue) judgeCatalogue(s *runContext, h *Hub) {
	if h.Catalogue == nil {
		return
	}
	now := *h.Catalogue
	before, known := t.last[h.Name]
	t.last[h.Name] = now
	if len(now.Offers) == 0 && len(before.Offers) == 0 {
		return
	}
	s.countJudgement(CatalogueTrue)
	if known && before.Index == now.Index && !slices.Equal(before.Offers, now.Offers) {
		s.reportViolation(CatalogueTrue, h.Name, "its catalogue of services has %d entries and had %d, or has others: its followers heard of no change since entry %d",
			len(now.Offers), len(before.Offers), now.Index)
	}
	offers := map[fleet.AllocID]string{}
	for _, o := range now.Offers {
		offers[o.Alloc] = o.Service
	}
	for i := range h.Allocs {
		if a := &h.Allocs[i]; offers[a.ID] != "" && a.Terminal() && !a.AwaitsWindow() {
			s.reportViolation(CatalogueTrue, h.Name, "service %s is in the catalogue with allocation %s, which is to %s and is %s",
				offers[a.ID], fleet.Short(a.ID), a.DesiredStatus, a.ClientStatus)
		}
	}
}
