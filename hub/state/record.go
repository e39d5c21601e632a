package state

import "github.com/hashicorp/go-memdb"

// record is one type of snapshot record of a table: save converts a row and calls write for each record,
// load puts the row of a decoded record into the table. A number is never used again for another type.
type record[R any] struct {
	number byte
	save   func(r *R, write func(saved any))
	load   func(in *loader, tb *table[R], body []byte) error
}

// rowRecord declares a record type that holds the row itself.
func rowRecord[R any](number byte) record[R] {
	return savedRecord(number, func(r *R) *R { return r }, func(_ *loader, r *R) (*R, error) { return r, nil })
}

// savedRecord declares a record type that holds a row converted to an S. If load returns nil without an
// error, no row is put into the table: deriveRows makes it from other rows.
func savedRecord[R, S any](number byte, save func(*R) *S, load func(*loader, *S) (*R, error)) record[R] {
	return record[R]{
		number: number,
		save:   func(r *R, write func(any)) { write(save(r)) },
		load: func(in *loader, tb *table[R], body []byte) error {
			s := new(S)
			if err := decode(body, s); err != nil {
				return err
			}
			r, err := load(in, s)
			if err == nil && r != nil {
				tb.putRow(in.t, r)
			}
			return err
		},
	}
}

// partsRecord declares a record type of which one row makes any number of records. load adds the part to
// the row that it belongs to.
func partsRecord[R, S any](number byte, save func(*R) []S, load func(in *loader, tb *table[R], part *S) error) record[R] {
	return record[R]{
		number: number,
		save: func(r *R, write func(any)) {
			for _, s := range save(r) {
				write(s)
			}
		},
		load: func(in *loader, tb *table[R], body []byte) error {
			s := new(S)
			if err := decode(body, s); err != nil {
				return err
			}
			return load(in, tb, s)
		},
	}
}

// recordNumbers returns the record types of this table.
func (tb *table[R]) recordNumbers() []byte {
	var numbers []byte
	for _, rec := range tb.records {
		numbers = append(numbers, rec.number)
	}
	return numbers
}

// persistRows writes the snapshot records of all rows in txn to out.
func (tb *table[R]) persistRows(txn *memdb.Txn, out *recordWriter) {
	if len(tb.records) == 0 {
		return
	}
	for r := range tb.scanRows(txn) {
		for _, rec := range tb.records {
			rec.save(r, func(saved any) { out.writeRecord(rec.number, saved) })
		}
	}
}

// loadRecord decodes a snapshot record and puts its row into the table. known is false if the record type
// belongs to another table.
func (tb *table[R]) loadRecord(in *loader, number byte, body []byte) (known bool, err error) {
	for _, rec := range tb.records {
		if rec.number == number {
			return true, rec.load(in, tb, body)
		}
	}
	return false, nil
}
