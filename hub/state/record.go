package state

import "github.com/hashicorp/go-memdb"

// record is one type of record that a table's rows are in a snapshot. Its number is never
// used again.
type record[R any] struct {
	number byte
	save   func(r *R, write func(saved any))
	load   func(in *loader, tb *table[R], body []byte) error
}

// rowRecord is a record that holds a row as it is.
func rowRecord[R any](number byte) record[R] {
	return savedRecord(number, func(r *R) *R { return r }, func(_ *loader, r *R) (*R, error) { return r, nil })
}

// savedRecord is a record that holds a row as an S. Where load returns nil, the row
// follows from other rows.
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

// partsRecord is a record of which a row is any number. load adds a part to its row in
// the table that it is given.
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

func (tb *table[R]) recordNumbers() []byte {
	var numbers []byte
	for _, rec := range tb.records {
		numbers = append(numbers, rec.number)
	}
	return numbers
}

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

func (tb *table[R]) loadRecord(in *loader, number byte, body []byte) (known bool, err error) {
	for _, rec := range tb.records {
		if rec.number == number {
			return true, rec.load(in, tb, body)
		}
	}
	return false, nil
}
