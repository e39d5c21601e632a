package journal

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// withChecksum returns the columns of a database row followed by their checksum, as arguments of an INSERT.
//
// SQLite checks the structure of its pages, so it does not notice a bit that flips in a value. The hash chain
// protects the bodies of rows; the checksum protects everything else, keys included.
func withChecksum(columns ...any) []any { return append(columns, checksum(columns...)) }

// checkUnaltered returns an error that wraps errDamaged if the columns do not match their stored checksum sum.
// A null sum passes: releases without checksums wrote that row. The first column is the key.
func checkUnaltered(sum sql.NullInt64, table string, columns ...any) error {
	if sum.Valid && sum.Int64 != checksum(columns...) {
		return damaged("table %s: the checksum of %v does not match", table, columns[0])
	}
	return nil
}

// checksum returns the checksum of a row's columns, in order, each with its length.
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
			panic(fmt.Sprintf("a column of type %T has no checksum", c)) // only the journal's own statements call this
		}
	}
	return int64(sum)
}
