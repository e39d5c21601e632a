package state

import "skerry/fleet"

// nodeRow is a node with its history and its fenced sessions.
type nodeRow struct {
	fleet.Node
	lastSessionOpen fleet.Index // the entry of the last SessionOpen
	linkDown        bool        // according to the applied journal rows, the edge has no link
	history         history
	fenced          []FencedRows // rows of fenced sessions, oldest first
}

// savedNode is a nodeRow in a snapshot.
type savedNode struct {
	Node    fleet.Node
	Opened  fleet.Index
	Apart   bool
	History savedHistory
	Fenced  []FencedRows
}

const (
	indexDraining = "draining"
	indexSite     = "site" // nodes with a site of their own
)

var nodeTable = table[nodeRow]{
	name: "nodes", key: nodeRowKey, announced: true,
	indexes: []tableIndex[nodeRow]{{indexDraining, nodeRowKey, func(r *nodeRow) bool { return r.DrainStrategy != nil }}, {
		indexSite, func(r *nodeRow) []byte { return key(r.OwnSite(), string(r.ID)) }, func(r *nodeRow) bool { return r.OwnSite() != "" },
	}},
	records: []record[nodeRow]{savedRecord(9,
		func(r *nodeRow) *savedNode {
			return &savedNode{r.Node, r.lastSessionOpen, r.linkDown, r.history.toSavedHistory(), r.fenced}
		},
		func(_ *loader, s *savedNode) (*nodeRow, error) {
			return &nodeRow{s.Node, s.Opened, s.Apart, s.History.toHistory(), s.Fenced}, nil
		})},
	describe: func(d *describer, table string, r *nodeRow) {
		d.writeTableLine(table, r.Node, r.lastSessionOpen, r.linkDown, r.fenced)
		d.describeHistory(r.history)
	},
}

func nodeRowKey(r *nodeRow) []byte { return idKey(r.ID) }

// capacityRow holds the newest entry that freed capacity on nodes of a class.
type capacityRow struct {
	class string
	index fleet.Index
}

// savedIndex is a capacityRow or a desiredRow in a snapshot.
type savedIndex struct {
	Key   string
	Index fleet.Index
}

var capacityTable = table[capacityRow]{
	name: "capacity", key: func(r *capacityRow) []byte { return key(r.class) }, announced: true,
	records: []record[capacityRow]{savedRecord(13,
		func(r *capacityRow) *savedIndex { return &savedIndex{r.class, r.index} },
		func(_ *loader, s *savedIndex) (*capacityRow, error) { return &capacityRow{s.Key, s.Index}, nil })},
	describe: func(d *describer, table string, r *capacityRow) { d.writeTableLine(table, r.class, r.index) },
}
