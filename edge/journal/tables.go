package journal

import (
	"database/sql"
	"fmt"

	"skerry/fleet"
	"skerry/syncproto"
)

// Desired state, job bodies and handles on disk. An error of a scan that is errDamaged concerns one row
// only: the rows after it may be readable.

const (
	selectDesired = "SELECT alloc, body, job, stop, reason, mentioned, sum FROM desired"
	selectBodies  = "SELECT hash, job, sum FROM bodies"
	selectHandles = "SELECT alloc, key, handle, sum FROM handles"
)

// storedDesired is a desired allocation as the table desired stores it.
type storedDesired struct {
	alloc     syncproto.DesiredAlloc
	job       string // hash of its job body; "": only its stop is known
	stop      bool
	reason    string // of the stop
	mentioned int64  // index of the newest delivery that named it
}

// putDesired writes an allocation to the table desired, in place of the stored one.
func (d *database) putDesired(s storedDesired) error {
	body, err := encode(s.alloc)
	if err != nil {
		return fmt.Errorf("encode allocation %s: %w", s.alloc.ID, err)
	}
	return d.execStatement("INSERT OR REPLACE INTO desired (alloc, body, job, stop, reason, mentioned, sum) VALUES (?, ?, ?, ?, ?, ?, ?)",
		withChecksum(string(s.alloc.ID), body, s.job, s.stop, s.reason, s.mentioned)...)
}

// scanDesired reads one row of table desired and checks its checksum. Each error wraps errDamaged.
func scanDesired(rows *sql.Rows) (s storedDesired, err error) {
	var id string
	var body []byte
	var sum sql.NullInt64
	if err := rows.Scan(&id, &body, &s.job, &s.stop, &s.reason, &s.mentioned, &sum); err != nil {
		return s, damaged("read a row of table desired: %v", err)
	}
	if err := checkUnaltered(sum, "desired", id, body, s.job, s.stop, s.reason, s.mentioned); err != nil {
		return s, err
	}
	if err := decode(body, &s.alloc); err != nil || string(s.alloc.ID) != id {
		return s, damaged("decode the desired state of allocation %s, which names allocation %s: %v", id, s.alloc.ID, err)
	}
	return s, nil
}

// storedBody is a job body: an encoded job under its hash.
type storedBody struct {
	hash string
	raw  []byte
	job  *fleet.Job // decoded from raw
}

// putBody writes an encoded job to the table bodies, under its hash.
func (d *database) putBody(hash string, raw []byte) error {
	return d.execStatement("INSERT OR REPLACE INTO bodies (hash, job, sum) VALUES (?, ?, ?)", withChecksum(hash, raw)...)
}

// scanBody reads one row of table bodies, checks its checksum, and decodes the job. Each error wraps
// errDamaged.
func scanBody(rows *sql.Rows) (s storedBody, err error) {
	var sum sql.NullInt64
	if err := rows.Scan(&s.hash, &s.raw, &sum); err != nil {
		return s, damaged("read a row of table bodies: %v", err)
	}
	if err := checkUnaltered(sum, "bodies", s.hash, s.raw); err != nil {
		return s, err
	}
	if s.job, err = syncproto.DecodeJob(s.raw); err != nil {
		return s, damaged("decode job body %s: %v", s.hash, err)
	}
	return s, nil
}

// storedHandle is a runner's record as the table handles stores it.
type storedHandle struct {
	alloc, key string
	handle     []byte
}

// putHandle writes a runner's record to the table handles, in place of the stored one.
func (d *database) putHandle(h storedHandle) error {
	return d.execStatement("INSERT OR REPLACE INTO handles (alloc, key, handle, sum) VALUES (?, ?, ?, ?)", withChecksum(h.alloc, h.key, h.handle)...)
}

// scanHandle reads one row of table handles and checks its checksum. Each error wraps errDamaged.
func scanHandle(rows *sql.Rows) (h storedHandle, err error) {
	var sum sql.NullInt64
	if err := rows.Scan(&h.alloc, &h.key, &h.handle, &sum); err != nil {
		return h, damaged("read a row of table handles: %v", err)
	}
	return h, checkUnaltered(sum, "handles", h.alloc, h.key, h.handle)
}

// checkSums checks the checksums of the meta table, of job bodies and of handles, which checkAndLoad does not
// read otherwise.
func (d *database) checkSums() error {
	for query, scan := range map[string]func(*sql.Rows) error{
		"SELECT key, value, sum FROM meta": func(rows *sql.Rows) error {
			var key string
			var value []byte
			var sum sql.NullInt64
			if err := rows.Scan(&key, &value, &sum); err != nil {
				return damaged("read a row of table meta: %v", err)
			}
			return checkUnaltered(sum, "meta", key, value)
		},
		selectBodies:  func(rows *sql.Rows) error { _, err := scanBody(rows); return err },
		selectHandles: func(rows *sql.Rows) error { _, err := scanHandle(rows); return err },
	} {
		err := d.forEachResult(query, nil, func(rows *sql.Rows) (bool, error) { return true, scan(rows) })
		if err != nil {
			return err
		}
	}
	return nil
}
