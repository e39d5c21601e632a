package journal

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// withChecksum returns a row's columns with the checksum that stands behind them.
//
// SQLite's own check looks at the structure of its pages: a bit that flips in a value
// makes another value, which it takes for what was written. The chain of hashes
// guards what a row of the rows says; the checksum guards all else, keys too.
func withChecksum(columns ...any) []any { return append(columns, checksum(columns...)) }

// checkUnaltered says what is wrong with a row of a table; sum is null in one that a release
// wrote which knew no checksums.
func checkUnaltered(sum sql.NullInt64, table string, columns ...any) error {
	if sum.Valid && sum.Int64 != checksum(columns...) {
		return damaged("table %s: the checksum of %v does not fit", table, columns[0])
	}
	return nil
}

// checksum is that of a row's columns in their order, each with its length.
func checksum(columns ...any) int64 {
	var sum uint32
	add := func(b []byte) { sum = crc32.Update(sum, castagnoli, b) }
	var number [binary.MaxVarintLen64]byte
	for _, c := range columns {
		switch v := c.(type) {
		case int64:
			add(number[:binary.PutVarint(number[:], v)])
		case bool:
			flag := int64(0)
			if v {
				flag = 1
			}
			add(number[:binary.PutVarint(number[:], flag)])
		case string:
			add(number[:binary.PutUvarint(number[:], uint64(len(v)))])
			add([]byte(v))
		case []byte:
			add(number[:binary.PutUvarint(number[:], uint64(len(v)))])
			add(v)
		default:
			panic(fmt.Sprintf("a column of type %T has no checksum", c)) // the journal's own statements
		}
	}
	return int64(sum)
}
