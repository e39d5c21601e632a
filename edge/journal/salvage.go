package journal

import (
	"bytes"
	"database/sql"
	"errors"
	"strings"

	"skerry/fleet"
	"skerry/syncproto"
)

// salvaged is the content that could be read from a damaged database. The parts that could not be read are
// zero.
type salvaged struct {
	base       *base // nil: not readable
	checkpoint clockCheckpoint
	link       Link
	missing    lostRows
	past       []Quarantine // earlier quarantines
	last       delivery     // newest delivery of a hub
	rows       []row        // in order; each can be decoded and holds its own number
	whole      bool         // reading reached the newest row
	states     map[fleet.AllocID]State
	desired    []storedDesired
	bodies     []storedBody
	handles    []storedHandle
}

// salvage reads as much as possible from a copy of a damaged database, to which it may add the columns of
// checksums. It reads every table on its own, and rows from both ends. It never fails: unreadable parts stay
// zero.
func salvage(path string) salvaged {
	s := salvaged{states: map[fleet.AllocID]State{}}
	s.checkpoint.AckAge = -1
	if isDatabaseGone(path) {
		return s
	}
	db, err := connect(path)
	if err != nil {
		return s // nothing can be read
	}
	defer db.close()
	for _, statement := range strings.Split(migrations[1], "\n") {
		_ = db.execStatement(statement) // adds checksums to a database of an older release
	}
	var b base
	if db.readMeta(metaBase, &b) == nil {
		s.base = &b
	}
	// A value that cannot be read stays zero; the hub sends it again.
	_ = db.readMeta(metaCheckpoint, &s.checkpoint)
	_ = db.readMeta(metaLink, &s.link)
	_ = db.readMeta(metaQuarantined, &s.past)
	_ = db.readMeta(metaDesired, &s.last)
	_ = db.readMeta(metaLost, &s.missing)
	s.readTables(db)
	s.readRows(db)
	return s
}

// readTables reads states, job bodies, desired allocations and handles from both ends, each up to its first
// unreadable page, and skips altered rows. Entries may occur twice.
func (s *salvaged) readTables(db *database) {
	for query, scan := range map[string]func(*sql.Rows) error{
		selectStates: func(rows *sql.Rows) error {
			id, state, err := scanState(rows)
			if err == nil {
				s.states[id] = state
			}
			return err
		},
		selectBodies:  salvageInto(&s.bodies, scanBody),
		selectDesired: salvageInto(&s.desired, scanDesired),
		selectHandles: salvageInto(&s.handles, scanHandle),
	} {
		for _, order := range []string{"ASC", "DESC"} {
			_ = db.forEachResult(query+" ORDER BY 1 "+order, nil, func(rows *sql.Rows) (bool, error) {
				err := scan(rows)
				if errors.Is(err, errDamaged) {
					err = nil // skip this row only
				}
				return true, err
			})
		}
	}
}

// salvageInto returns a function that scans one row and, if that succeeds, appends the result to a list.
func salvageInto[T any](list *[]T, scan func(*sql.Rows) (T, error)) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		v, err := scan(rows)
		if err == nil {
			*list = append(*list, v)
		}
		return err
	}
}

// readRows reads rows forward from the oldest and, if that does not reach the end, backward from the newest. It
// then drops altered rows and outliers, and repairs ages.
func (s *salvaged) readRows(db *database) {
	read := func(order string, after fleet.Seq) (found []row) {
		err := db.forEachResult("SELECT seq, age, hash, body, sum FROM rows WHERE seq > ? ORDER BY seq "+order, []any{int64(after)}, func(rows *sql.Rows) (bool, error) {
			r, err := scanRow(rows)
			if err != nil {
				return false, err
			}
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
		s.dropOutlierRows()
		s.repairRowAges()
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

// dropAltered drops the rows whose bytes do not match their chain hash. If the next row shows that only the
// hash was altered, it corrects the hash and keeps the row.
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

// maxHole bounds the missing rows between two rows: a gap row is stored for each.
const maxHole = 1 << 16

// dropOutlierRows keeps the longest run of rows with holes of at most maxHole. A row with an altered
// number stands alone.
func (s *salvaged) dropOutlierRows() {
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

// repairRowAges replaces an altered age by that of the row before; by 0 in the first row.
func (s *salvaged) repairRowAges() {
	for i, r := range s.rows {
		if r.verifyChecksum() == nil {
			continue
		}
		s.rows[i].age = 0
		if i > 0 {
			s.rows[i].age = s.rows[i-1].age
		}
	}
}
