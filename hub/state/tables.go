package state

import (
	"fmt"

	"github.com/hashicorp/go-memdb"

	"skerry/fleet"
)

// tables lists all tables in the order of their records in a snapshot: a record comes after the records
// that it refers to.
var tables = orderTables(
	&metaTable, &clusterTable, &stateKeyTable, &caTable, &tokenTable, &hubTable, &poolTable, &certificateTable, &admissionTable, &revocationTable, &exposureTable,
	&schedulerTable, &namespaceTable, &restoredTable, &partTable, &desiredTable, &capacityTable,
	&bodyTable, &jobTable, &nodeTable, &deploymentTable, &allocTable, &evalTable,
	&volumeTable, &prefetchTable, &rootKeyTable, &variableTable,
	&deletedVariableTable, &siteActionTable, &siteChainTable,
	&aclTable, &aclPolicyTable, &aclRoleTable, &aclTokenTable, &oneTimeTable, &authMethodTable, &bindingRuleTable, &siteCodeTable, &windowTable, &eventTable,
	&jobSummaryTable, &nodeSummaryTable, &siteTable,
)

// orderTables gives each table its position. It panics if two tables have the same name or the same record
// type.
func orderTables(tables ...anyTable) []anyTable {
	names, numbers := map[string]bool{}, map[byte]bool{recordEnd: true}
	for i, tb := range tables {
		tb.setPosition(i)
		if names[tb.tableName()] {
			panic(fmt.Sprintf("two tables are called %s", tb.tableName()))
		}
		names[tb.tableName()] = true
		for _, n := range tb.recordNumbers() {
			if numbers[n] {
				panic(fmt.Sprintf("table %s: a record of type %d is of another table", tb.tableName(), n))
			}
			numbers[n] = true
		}
	}
	return tables
}

// databaseSchema returns the declaration of all tables for go-memdb.
func databaseSchema() *memdb.DBSchema {
	s := &memdb.DBSchema{Tables: make(map[string]*memdb.TableSchema, len(tables))}
	for _, tb := range tables {
		s.Tables[tb.tableName()] = tb.memdbSchema()
	}
	return s
}

// metaRow holds the newest entry that changed the table name. name may also be one of the constants below.
type metaRow struct {
	name  string
	index fleet.Index
}

// Names in metaTable that do not stand for a table. See also metaServices.
const (
	metaApplied  = "applied"  // changes with every entry
	metaRollouts = "rollouts" // changes when a deployment begins
)

// savedMeta is a metaRow in a snapshot.
type savedMeta struct {
	Name  string
	Index fleet.Index
}

var metaTable = table[metaRow]{
	name: "meta",
	key:  func(r *metaRow) []byte { return key(r.name) },
	records: []record[metaRow]{savedRecord(1,
		func(r *metaRow) *savedMeta { return &savedMeta{r.name, r.index} },
		func(_ *loader, s *savedMeta) (*metaRow, error) { return &metaRow{s.Name, s.Index}, nil })},
	describe: func(d *describer, _ string, r *metaRow) { d.writeTableLine("index", r.name, r.index) },
}
