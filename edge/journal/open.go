package journal

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
)

// openSound opens the database and returns it with the state to keep in memory. A database that is damaged,
// missing although expected, or shorter than its high-water mark is set aside first, and replaced by one with
// its readable parts.
func openSound(cfg Config) (*database, durableState, error) {
	if err := finishSwap(cfg.Path); err != nil {
		return nil, durableState{}, err
	}
	var db *database
	var mem durableState
	var err error
	if cfg.Expected && isDatabaseGone(cfg.Path) {
		err = damaged("the database is gone")
	} else {
		db, mem, err = openChecked(cfg.Path)
	}
	if seen := readHighWater(cfg.Path); err == nil && seen.Generation == mem.generation && seen.Seq > mem.head.Last {
		err = errors.Join(damaged("the newest row was %d, and the database ends at row %d", seen.Seq, mem.head.Last), db.close())
	}
	if mem.unsound > 0 {
		cfg.Log.Warn("acknowledged rows of the journal were damaged: they are dropped, the cluster has them", "path", cfg.Path, "up_to", mem.unsound)
	}
	if err == nil || !isDamage(err) && !deniesWrites(cfg.Path, err) {
		return db, mem, diskError(err)
	}
	cfg.Log.Error("journal is damaged and is set aside", "path", cfg.Path, "error", err)
	if err := quarantine(cfg, err, nil); err != nil {
		return nil, durableState{}, fmt.Errorf("replace a damaged database: %w", diskError(err))
	}
	db, mem, err = openChecked(cfg.Path)
	return db, mem, diskError(err)
}

// isDatabaseGone reports whether the database and its log are both missing or empty.
func isDatabaseGone(path string) bool {
	for _, p := range []string{path, path + suffixWAL} {
		if info, err := os.Stat(p); err == nil && info.Size() > 0 {
			return false
		}
	}
	return true
}

// openChecked opens the database at path, makes or migrates it, checks it, and returns it with the state to
// keep in memory. It returns an error if the database takes no writes.
func openChecked(path string) (*database, durableState, error) {
	db, err := openDatabase(path)
	if err != nil {
		return nil, durableState{}, err
	}
	mem, err := checkAndLoad(db)
	if err == nil {
		err = db.checkWritable()
	}
	if err != nil {
		return nil, durableState{}, errors.Join(err, db.close())
	}
	return db, mem, nil
}

// checkWritable returns an error if the database takes no writes.
func (d *database) checkWritable() error {
	return d.execStatement("DELETE FROM meta WHERE key = ''") // changes nothing, but needs write access
}

// deniesWrites reports whether SQLite refuses to write although the file is writable: its header is damaged.
func deniesWrites(path string, err error) bool {
	if _, extended := sqliteCode(err); extended != sqliteReadOnly {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// checkAndLoad checks the pages, the checksums and the chain of rows, and returns the state to keep in memory.
// Damage is an error that wraps errDamaged, except in rows that the cluster has: those are deleted.
func checkAndLoad(db *database) (durableState, error) {
	mem := durableState{states: map[fleet.AllocID]State{}}
	mem.checkpoint.AckAge = -1
	if err := db.checkPages(); err != nil {
		return mem, err
	}
	for key, into := range map[string]any{metaCheckpoint: &mem.checkpoint, metaLink: &mem.link, metaQuarantined: &mem.quarantined, metaLost: &mem.missing} {
		if err := db.readMeta(key, into); err != nil {
			return mem, err
		}
	}
	if err := db.loadStates(mem.states); err != nil {
		return mem, err
	}
	if _, err := db.readDesired(); err != nil {
		return mem, err
	}
	if err := db.checkSums(); err != nil {
		return mem, err
	}
	return mem, db.loadRows(&mem)
}

// checkPages runs SQLite's check of a database's structure. The first row of its result is "ok" only if there is no other.
func (d *database) checkPages() error {
	var found string
	if err := d.queryRow("PRAGMA quick_check(10)").Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return damaged("%s", found)
	}
	return nil
}

// loadStates adds the stored state of each allocation to the map into.
func (d *database) loadStates(into map[fleet.AllocID]State) error {
	return d.forEachResult(selectStates, nil, func(rows *sql.Rows) (bool, error) {
		id, s, err := scanState(rows)
		into[id] = s
		return true, err
	})
}

// loadRows sets the head in mem, deletes damaged rows that are acknowledged, and checks the chain of the rows
// that are not. If the newest row is younger than the checkpoint in mem, its time replaces the checkpoint's.
func (d *database) loadRows(mem *durableState) error {
	var b base
	if err := d.readMeta(metaBase, &b); err != nil {
		return err
	}
	mem.head = Head{First: b.Seq + 1, Last: b.Seq, ChainHash: b.Hash}
	mem.generation = b.Generation
	if err := d.loadRowBounds(mem); err != nil {
		return err
	}
	if mem.checkpoint.Acknowledged > mem.head.Last {
		return damaged("row %d was acknowledged, and the database ends at row %d", mem.checkpoint.Acknowledged, mem.head.Last)
	}
	if err := d.deleteDamagedAcknowledged(mem, b); err != nil {
		return err
	}
	from := max(mem.head.First, mem.checkpoint.Acknowledged+1)
	prev, err := d.hashAt(from - 1)
	if err != nil {
		return err
	}
	var last row
	err = d.eachRow(from, func(r row) (bool, error) {
		if err := r.verifyChain(prev); err != nil {
			return false, err
		}
		prev, last = r.hash, r
		return true, nil
	})
	if err != nil {
		return err
	}
	mem.head.ChainHash = prev
	if last.seq == 0 {
		return nil
	}
	if err := d.findNewestUrgent(mem, from); err != nil {
		return err
	}
	t, err := syncproto.DecodeRow(last.body)
	if err != nil {
		return damaged("decode row %d: %v", last.seq, err)
	}
	if later := time.Duration(last.age) - mem.checkpoint.Age; later > 0 {
		mem.checkpoint.BootID, mem.checkpoint.Mono, mem.checkpoint.Age = t.BootID, t.Mono, time.Duration(last.age)
		mem.checkpoint.Closed, mem.sinceCheckpoint = false, later
	}
	return nil
}

// deleteDamagedAcknowledged deletes the acknowledged rows up to the last damaged one, and updates mem: the
// cluster has them. If the newest row of all is damaged, the chain cannot be continued, and it returns an error
// that wraps errDamaged.
func (d *database) deleteDamagedAcknowledged(mem *durableState, b base) error {
	var cut row
	var freed, since int64
	prev := b.Hash
	err := d.eachRow(mem.head.First, func(r row) (bool, error) {
		if r.seq > mem.checkpoint.Acknowledged {
			return false, nil
		}
		since += int64(len(r.body)) + rowOverhead
		if r.verifyChain(prev) != nil {
			cut, freed = r, since
		}
		prev = r.hash
		return true, nil
	})
	switch {
	case err != nil || cut.seq == 0:
		return err
	case cut.seq == mem.head.Last:
		return damaged("row %d, the newest, does not fit the chain", cut.seq)
	}
	if err := d.deleteRowsInOwnTx(base{Seq: cut.seq, Hash: cut.hash, Generation: b.Generation}); err != nil {
		if isDamage(err) {
			return err
		}
		return nil // the disk is full: the next start drops them
	}
	mem.head.First, mem.unsound = cut.seq+1, cut.seq
	mem.bytes -= freed
	return nil
}

// deleteRowsInOwnTx calls deleteRowsUpTo in a transaction of its own.
func (d *database) deleteRowsInOwnTx(b base) error {
	if err := d.beginTx(); err != nil {
		return err
	}
	if err := d.deleteRowsUpTo(b); err != nil {
		d.rollbackTx()
		return err
	}
	return d.commitTx()
}

// loadRowBounds sets the newest row and the bytes of rows in mem. It returns an error if a row's number is
// missing.
func (d *database) loadRowBounds(mem *durableState) error {
	var n, size int64
	var low, high sql.NullInt64
	err := d.queryRow("SELECT count(*), coalesce(sum(length(body)), 0), min(seq), max(seq) FROM rows").Scan(&n, &size, &low, &high)
	if err != nil || n == 0 {
		return err
	}
	first := fleet.Seq(low.Int64)
	if first != mem.head.First || high.Int64-low.Int64+1 != n {
		return damaged("it has %d rows from %d to %d, and should begin at row %d", n, low.Int64, high.Int64, mem.head.First)
	}
	mem.head.Last = fleet.Seq(high.Int64)
	mem.bytes = size + n*rowOverhead
	return nil
}

// findNewestUrgent sets mem.head.Urgent to the newest urgent row with a number of at least from; without one it
// stays.
func (d *database) findNewestUrgent(mem *durableState, from fleet.Seq) error {
	return d.forEachResult("SELECT body FROM rows WHERE seq >= ? ORDER BY seq DESC", []any{int64(from)}, func(rows *sql.Rows) (bool, error) {
		var body []byte
		if err := rows.Scan(&body); err != nil {
			return false, err
		}
		t, err := syncproto.DecodeRow(body)
		if err != nil {
			return false, damaged("decode a row that is not acknowledged: %v", err)
		}
		if t.Urgent() {
			mem.head.Urgent = t.Seq
		}
		return !t.Urgent(), nil
	})
}

// verifyIntegrity returns an error if a page, the chain of all rows, or a row's checksum is damaged.
func (d *database) verifyIntegrity() error {
	if err := d.checkPages(); err != nil {
		return err
	}
	var b base
	if err := d.readMeta(metaBase, &b); err != nil {
		return err
	}
	prev, next := b.Hash, b.Seq+1
	return d.eachRow(0, func(r row) (bool, error) {
		if r.seq != next {
			return false, damaged("it has row %d where row %d should be", r.seq, next)
		}
		if err := r.verifyChain(prev); err != nil {
			return false, err
		}
		prev, next = r.hash, next+1
		return true, nil
	})
}

// verifyChain returns an error if the row is not the successor of a row with the chain hash prev, or its
// checksum is wrong.
func (r row) verifyChain(prev []byte) error {
	t, err := syncproto.DecodeRow(r.body)
	if err != nil || t.Seq != r.seq {
		return damaged("row %d says that it is row %d (%v)", r.seq, t.Seq, err)
	}
	if !bytes.Equal(r.hash, syncproto.ChainHash(prev, r.body)) {
		return damaged("row %d does not fit the chain", r.seq)
	}
	return r.verifyChecksum()
}
