package state

import (
	"iter"

	"skerry/fleet"
)

// SiteAction is what somebody did on an edge itself, as the edge has reported it. Each hub writes it into its audit.
type SiteAction struct {
	Number   uint64 // of all edges' actions, from 1, in the order of their reports
	NodeID   fleet.NodeID
	NodeName string
	Action   fleet.SiteAction
	Reported int64 // UnixNano: when the cluster heard of it
}

// siteChain says how many lines of an edge's audit were reported.
type siteChain struct {
	NodeID fleet.NodeID
	Chain  string
	Seq    uint64
}

// maxSiteActions bounds the actions that are kept for hubs whose audit lacks them. The oldest are dropped first; such a
// hub writes down how many it has missed.
const maxSiteActions = 2000

var siteActionTable = table[SiteAction]{
	name: "site_actions", key: func(r *SiteAction) []byte { return indexKey(r.Number) }, announced: true,
	records: []record[SiteAction]{rowRecord[SiteAction](187)},
}

var siteChainTable = table[siteChain]{
	name: "site_chains", key: func(r *siteChain) []byte { return idKey(r.NodeID) },
	records: []record[siteChain]{rowRecord[siteChain](188)},
}

// recordSiteAction keeps an action that an edge reports, unless it was reported before: a journal that lost rows, and one
// that is replayed after a restore, report it again.
func (t *tx) recordSiteAction(n *nodeRow, a *fleet.SiteAction, now int64) {
	chain := siteChainTable.currentRow(t, idKey(n.ID))
	if chain != nil && chain.Chain == a.Chain && a.Seq <= chain.Seq {
		return
	}
	siteChainTable.putRow(t, &siteChain{n.ID, a.Chain, a.Seq})
	number := t.newSiteActionNumber()
	siteActionTable.putRow(t, &SiteAction{Number: number, NodeID: n.ID, NodeName: n.Name, Action: *a, Reported: now})
	for r := range siteActionTable.scanRows(t.base) {
		if r.Number+maxSiteActions > number {
			break
		}
		siteActionTable.removeRow(t, indexKey(r.Number))
	}
	siteActionTable.markChanged(t)
}

// newSiteActionNumber returns the number after that of the newest action, also of this entry.
func (t *tx) newSiteActionNumber() uint64 {
	number := uint64(0)
	if last := siteActionTable.lastRow(t.base, indexID); last != nil {
		number = last.Number
	}
	for _, r := range siteActionTable.changedRows(t) {
		if r != nil {
			number = max(number, r.Number)
		}
	}
	return number + 1
}

// keepSiteActions keeps the actions and what was reported, so that no action is reported twice after a restore.
func (t *tx) keepSiteActions(old *View) {
	if siteActionTable.lastRow(old.txn, indexID) == nil {
		return // this cluster heard of none yet: it is built from the snapshot
	}
	siteActionTable.replaceRows(t, old)
	siteChainTable.replaceRows(t, old)
	siteActionTable.markChanged(t)
}

// SiteActions iterates over the actions after a number, in order, and has v watch all of them.
func (v *View) SiteActions(after uint64) iter.Seq[*SiteAction] {
	return siteActionTable.watchFrom(v, indexID, indexKey(after+1))
}
