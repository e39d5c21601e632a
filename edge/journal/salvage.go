package journal

import (
	"bytes"
	"database/sql"

	"skerry/fleet"
	"skerry/syncproto"
)

// salvaged is what could be read of a damaged database.
type salvaged struct {
	base    *base // nil: not readable
	mark    mark
	link    Link
	missing lost
	past    []Quarantine
	last    delivery
	rows    []row // in order, each decodable and with its number in it
	whole   bool  // the newest row was reached from the end
	states  map[fleet.AllocID]State
	desired []storedDesired
	bodies  map[string][]byte
	handles []storedHandle
}

type storedDesired struct {
	alloc, job, reason string
	body               []byte
	stop               bool
	mentioned          int64
}

type storedHandle struct {
	alloc, key string
	handle     []byte
}

// salvage reads what it can: every table for itself, and rows from both ends.
func salvage(path string) salvaged {
	s := salvaged{states: map[fleet.AllocID]State{}, bodies: map[string][]byte{}}
	s.mark.AckAge = -1
	if gone(path) {
		return s
	}
	db, err := connect(path)
	if err != nil {
		return s // nothing of it can be read
	}
	defer db.close()
	var b base
	if db.meta(metaBase, &b) == nil {
		s.base = &b
	}
	// A value that cannot be read stays zero; the hub says it again.
	_ = db.meta(metaMark, &s.mark)
	_ = db.meta(metaLink, &s.link)
	_ = db.meta(metaQuarantined, &s.past)
	_ = db.meta(metaDesired, &s.last)
	_ = db.meta(metaLost, &s.missing)
	s.readTables(db)
	s.readRows(db)
	return s
}

// readTables reads the tables beside the rows, each up to its first damage from
// either end.
func (s *salvaged) readTables(db *database) {
	for _, order := range []string{"ASC", "DESC"} {
		_ = db.each("SELECT alloc, body FROM states ORDER BY alloc "+order, nil, func(rows *sql.Rows) (bool, error) {
			var id string
			var body []byte
			if err := rows.Scan(&id, &body); err != nil {
				return false, err
			}
			if st, err := decodeState(body); err == nil {
				s.states[fleet.AllocID(id)] = st
			}
			return true, nil
		})
		_ = db.each("SELECT hash, job FROM bodies ORDER BY hash "+order, nil, func(rows *sql.Rows) (bool, error) {
			var hash string
			var job []byte
			if err := rows.Scan(&hash, &job); err != nil {
				return false, err
			}
			if _, err := syncproto.DecodeJob(job); err == nil {
				s.bodies[hash] = job
			}
			return true, nil
		})
		_ = db.each("SELECT alloc, body, job, stop, reason, mentioned FROM desired ORDER BY alloc "+order, nil, func(rows *sql.Rows) (bool, error) {
			var d storedDesired
			if err := rows.Scan(&d.alloc, &d.body, &d.job, &d.stop, &d.reason, &d.mentioned); err != nil {
				return false, err
			}
			var a syncproto.DesiredAlloc
			if decode(d.body, &a) == nil && string(a.ID) == d.alloc {
				s.desired = append(s.desired, d)
			}
			return true, nil
		})
		_ = db.each("SELECT alloc, key, handle FROM handles ORDER BY alloc "+order, nil, func(rows *sql.Rows) (bool, error) {
			var h storedHandle
			if err := rows.Scan(&h.alloc, &h.key, &h.handle); err != nil {
				return false, err
			}
			s.handles = append(s.handles, h)
			return true, nil
		})
	}
}

// readRows reads rows from the oldest on, and from the newest back to there.
func (s *salvaged) readRows(db *database) {
	read := func(order string, after fleet.Seq) (found []row) {
		err := db.each("SELECT seq, age, hash, body FROM rows WHERE seq > ? ORDER BY seq "+order, []any{int64(after)}, func(rows *sql.Rows) (bool, error) {
			var r row
			var seq int64
			if err := rows.Scan(&seq, &r.age, &r.hash, &r.body); err != nil {
				return false, err
			}
			r.seq = fleet.Seq(seq)
			if t, err := syncproto.DecodeRow(r.body); err == nil && t.Seq == r.seq && len(r.hash) > 0 {
				found = append(found, r)
			}
			return true, nil
		})
		s.whole = s.whole || err == nil || order == "DESC" && len(found) > 0
		return found
	}
	defer func() {
		s.dropAltered()
		s.dropFar()
	}()
	s.rows = read("ASC", 0)
	if s.whole {
		return
	}
	var after fleet.Seq
	if n := len(s.rows); n > 0 {
		after = s.rows[n-1].seq
	}
	tail := read("DESC", after)
	for i := len(tail) - 1; i >= 0; i-- {
		s.rows = append(s.rows, tail[i])
	}
}

// dropAltered drops rows whose bytes are not those that were hashed. Where the
// row behind tells that it is the hash that was altered, that is mended.
func (s *salvaged) dropAltered() {
	kept := s.rows[:0]
	var last row
	if s.base != nil {
		last = row{seq: s.base.Seq, hash: s.base.Hash}
	}
	for i, r := range s.rows {
		want := syncproto.ChainHash(last.hash, r.body)
		known := r.seq == last.seq+1 && (last.seq > 0 || s.base != nil)
		if known && !bytes.Equal(want, r.hash) {
			if i+1 == len(s.rows) || !bytes.Equal(s.rows[i+1].hash, syncproto.ChainHash(want, s.rows[i+1].body)) {
				last = row{seq: r.seq, hash: r.hash}
				continue
			}
			r.hash = want
		}
		kept, last = append(kept, r), r
	}
	s.rows = kept
}

// maxHole is how many rows may be missing between two that are believed: each of
// them gets a row that stands for it.
const maxHole = 1 << 16

// dropFar keeps, of rows that lie further apart than can be, the longest run: a
// number that was altered stands alone.
func (s *salvaged) dropFar() {
	var best []row
	for begin, i := 0, 1; i <= len(s.rows); i++ {
		if i < len(s.rows) && s.rows[i].seq-s.rows[i-1].seq <= maxHole {
			continue
		}
		if i-begin > len(best) {
			best = s.rows[begin:i]
		}
		begin = i
	}
	s.rows = best
}
