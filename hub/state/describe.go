package state

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/hashicorp/go-memdb"
)

// Describe writes all replicated rows of the view as text, one row a line, in a stable order: two states
// are equal if and only if their texts are.
func (v *View) Describe(w io.Writer) error {
	d := &describer{w: bufio.NewWriter(w)}
	for _, tb := range tables {
		if tb.isDigested() {
			tb.describeRows(v.txn, d)
		}
	}
	if d.err != nil {
		return fmt.Errorf("describe the state: %w", d.err)
	}
	return d.w.Flush()
}

// describer writes the lines of Describe, and remembers its first error.
type describer struct {
	w   *bufio.Writer
	err error // the first error
}

// writeTableLine writes one line: the table's name, and each part as JSON.
func (d *describer) writeTableLine(table string, parts ...any) {
	fmt.Fprint(d.w, table)
	for _, p := range parts {
		b, err := json.Marshal(p)
		if err != nil && d.err == nil {
			d.err = err
		}
		fmt.Fprintf(d.w, " %s", b)
	}
	fmt.Fprintln(d.w)
}

// describeRows writes the lines of this table's rows.
func (tb *table[R]) describeRows(txn *memdb.Txn, d *describer) {
	for r := range tb.scanRows(txn) {
		if tb.describe != nil {
			tb.describe(d, tb.name, r)
		} else {
			d.writeTableLine(tb.name, r)
		}
	}
}

// describeHistory writes one line for each entry of a history.
func (d *describer) describeHistory(h history) {
	for _, e := range h.entries {
		d.writeTableLine(" history", e.index, e.row, e.hubEvent, e.offline, e.vital)
	}
	if h.dropped > 0 {
		d.writeTableLine(" history dropped", h.dropped)
	}
}
