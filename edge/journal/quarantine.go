package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
)

// Quarantine describes a damaged database that was set aside.
type Quarantine struct {
	Path     string    `cbor:"1,keyasint"` // where it is kept
	Reason   string    `cbor:"2,keyasint"` // what is wrong with it
	Found    time.Time `cbor:"3,keyasint"` // by the edge's wall clock
	Salvaged int       `cbor:"4,keyasint"` // rows that were carried over
	Lost     int       `cbor:"5,keyasint"` // rows known to be lost; a gap row stands for each
	// EndUnknown says that the number of the newest row is not known: more rows than Lost may be lost.
	EndUnknown bool `cbor:"6,keyasint,omitempty"`
}

// Suffixes of files beside a database that is being replaced. Only a complete new database is renamed
// to .new, so a .new without a database can be moved into its place.
const (
	suffixNew   = ".new"
	suffixBuild = ".build"
	suffixWork  = ".work"
	suffixWAL   = "-wal"
)

// quarantine copies the damaged database to PATH.damaged-N, builds a new one from its readable parts and from
// what more adds, and replaces it. No connection may be open. It may be interrupted at any point and run again.
// more may be nil.
func quarantine(cfg Config, reason error, more func(*salvaged)) error {
	if err := cfg.Step(StepQuarantine); err != nil {
		return err
	}
	kept, err := keepCopy(cfg.Path)
	if err != nil {
		return err
	}
	if err := removeDatabase(cfg.Path + suffixWork); err != nil {
		return err
	}
	if err := copyDatabase(cfg.Path, cfg.Path+suffixWork); err != nil {
		return err
	}
	s := salvage(cfg.Path + suffixWork)
	if more != nil {
		more(&s)
	}
	if err := cfg.Step(StepSalvage); err != nil {
		return err
	}
	q := Quarantine{Path: kept, Reason: shortReason(reason.Error()), Found: cfg.Now().UTC(), Salvaged: len(s.rows)}
	if err := buildDatabase(cfg, s, q); err != nil {
		return err
	}
	if err := cfg.Step(StepSwap); err != nil {
		return err
	}
	if err := removeDatabase(cfg.Path + suffixWork); err != nil {
		return err
	}
	if err := os.Remove(cfg.Path); err != nil {
		return err
	}
	return finishSwap(cfg.Path)
}

// finishSwap moves PATH.new to path if the database at path is missing, and removes the old log. Otherwise it
// does nothing. It also finishes a replacement that was interrupted.
func finishSwap(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(path + suffixNew); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// SQLite must not apply the log of the old database to the new one.
	if err := removeDatabase(path); err != nil {
		return err
	}
	if err := os.Rename(path+suffixNew, path); err != nil {
		return err
	}
	return syncDir(path)
}

// keepCopy copies the database and its log to the next free PATH.damaged-N, and returns that path.
func keepCopy(path string) (kept string, err error) {
	for number := 1; ; number++ {
		kept = fmt.Sprintf("%s.damaged-%d", path, number)
		if _, err := os.Stat(kept); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return "", err
		}
	}
	return kept, copyDatabase(path, kept)
}

// copyDatabase copies the database's log and then the database: if a copy of the database exists, so does that
// of its log. If the database is missing, both it and the copy become empty files.
func copyDatabase(from, to string) error {
	if _, err := os.Stat(from + suffixWAL); err == nil {
		if err := copyFile(from+suffixWAL, to+suffixWAL); err != nil {
			return err
		}
	}
	return copyFile(from, to)
}

// copyBlock is the unit that is given up if the disk cannot read it: a page.
const copyBlock = 4096

// copyFile copies a file durably, with zeros for unreadable blocks. It makes an empty file if from is missing.
func copyFile(from, to string) error {
	in, err := os.OpenFile(from, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	block := make([]byte, copyBlock)
	for at := int64(0); at < info.Size() && err == nil; at += copyBlock {
		part := block[:min(copyBlock, info.Size()-at)]
		if _, unreadable := in.ReadAt(part, at); unreadable != nil {
			clear(part)
		}
		_, err = out.Write(part)
	}
	return errors.Join(err, out.Sync(), out.Close())
}

// removeDatabase removes the files of a database: itself, its logs and its index. Missing files are no error.
func removeDatabase(path string) error {
	var errs []error
	for _, suffix := range []string{"", suffixWAL, "-shm", "-journal"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// syncDir makes a rename durable: it syncs the folder that contains path.
func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	// Some file systems cannot sync a folder; they order renames themselves.
	_ = d.Sync()
	return d.Close()
}

// buildDatabase writes a new database from what was salvaged, and renames it to .new when it is complete.
func buildDatabase(cfg Config, s salvaged, q Quarantine) error {
	path := cfg.Path + suffixBuild
	if err := errors.Join(removeDatabase(path), removeDatabase(cfg.Path+suffixNew)); err != nil {
		return err
	}
	db, err := openDatabase(path)
	if err != nil {
		return err
	}
	err = db.beginTx()
	if err == nil {
		err = db.fillFromSalvage(s, q, readHighWater(cfg.Path))
	}
	if err == nil {
		err = db.commitTx()
	}
	if err := errors.Join(err, db.close()); err != nil {
		return err
	}
	return os.Rename(path, cfg.Path+suffixNew)
}

// fillFromSalvage writes the salvaged content and the Quarantine q into a new database. By seen, the high-water
// mark, it decides whether rows may be missing, and stores that with how many.
func (d *database) fillFromSalvage(s salvaged, q Quarantine, seen highWaterMark) error {
	chained, start, holes, intact := rechain(s)
	last := start.Seq + fleet.Seq(len(chained))
	known := s.base != nil && seen.Generation == s.base.Generation || s.base == nil && seen.Seq > 0
	missing := lostRows{Reason: q.Reason, From: last + 1}
	switch {
	case intact && s.whole && known && seen.Seq <= last && s.missing.Reason == "":
		missing = lostRows{}
	case s.missing.Reason != "" && s.missing.From <= last: // damaged a second time before a hub answered
		missing.From = s.missing.From
		q.EndUnknown = true
	case known:
		missing.To = max(seen.Seq, last)
	default:
		q.EndUnknown = true
	}
	q.Lost = holes
	if missing.To > last {
		q.Lost += int(min(missing.To-last, math.MaxInt32))
	}
	start.Generation = max(start.Generation, seen.Generation) + 1
	s.checkpoint.Acknowledged = min(max(s.checkpoint.Acknowledged, start.Seq), last)
	s.last.Index = 0 // the hub then names every allocation again
	for _, r := range chained {
		if err := d.putRow(r); err != nil {
			return err
		}
		s.applyRow(r)
	}
	for id, state := range s.states {
		state.Seq = min(state.Seq, last)
		s.states[id] = state
	}
	for key, value := range map[string]any{
		metaBase: start, metaCheckpoint: s.checkpoint, metaLink: s.link, metaDesired: s.last, metaLost: missing,
		metaQuarantined: append(s.past, q),
	} {
		if err := d.putMeta(key, value); err != nil {
			return err
		}
	}
	if err := d.putStates(s.states); err != nil {
		return err
	}
	return d.refillTables(s)
}

// applyRow applies a row to the salvaged state of its allocation, if that is older than the row, and to the
// salvaged state of the link. A row that cannot be decoded changes nothing.
func (s *salvaged) applyRow(r row) {
	t, err := syncproto.DecodeRow(r.body)
	switch {
	case err != nil:
	case t.Kind == fleet.TransitionDisconnect:
		s.link.Disconnected = true
	case t.Kind == fleet.TransitionReconnect:
		s.link.Disconnected = false
	case t.Alloc != "" && t.Seq > s.states[t.Alloc].Seq:
		s.states[t.Alloc] = s.states[t.Alloc].applyTransition(t)
	}
}

// refillTables writes the salvaged job bodies, desired allocations and handles. The lists may hold duplicates:
// the last one counts.
func (d *database) refillTables(s salvaged) error {
	for _, b := range s.bodies {
		if err := d.putBody(b.hash, b.raw); err != nil {
			return err
		}
	}
	for _, a := range s.desired {
		if err := d.putDesired(a); err != nil {
			return err
		}
	}
	for _, h := range s.handles {
		if err := d.putHandle(h); err != nil {
			return err
		}
	}
	return nil
}

// rechain builds a chain without holes from the salvaged rows: a gap row replaces each lost row, so that the
// others keep their numbers. start is the base before the chain, holes the number of gap rows. intact says that
// no row after the base is lost and no hash changed.
func rechain(s salvaged) (chained []row, start base, holes int, intact bool) {
	switch {
	case s.base != nil && (len(s.rows) == 0 || s.rows[0].seq > s.base.Seq && s.rows[0].seq-s.base.Seq <= maxHole):
		start, intact = *s.base, true
	case len(s.rows) > 0:
		start.Seq = s.rows[0].seq - 1
	default:
		start.Seq = s.checkpoint.Acknowledged
	}
	prev, next := start.Hash, start.Seq+1
	for _, r := range s.rows {
		for ; next < r.seq; next++ {
			gap := gapRow(next, r)
			prev = syncproto.ChainHash(prev, gap.body)
			gap.hash = prev
			chained = append(chained, gap)
			holes++
		}
		prev = syncproto.ChainHash(prev, r.body)
		intact = intact && holes == 0 && bytes.Equal(prev, r.hash)
		r.hash = prev
		chained = append(chained, r)
		next++
	}
	return chained, start, holes, intact
}

// damageMessage is the message of a row that stands for a lost one.
const damageMessage = "the journal was damaged"

// gapRow returns a row with the number seq that stands for one lost row. Its time is that of next, the row
// after it.
func gapRow(seq fleet.Seq, next row) row {
	t := fleet.Transition{Seq: seq, Kind: fleet.TransitionGap, Dropped: 1, Message: damageMessage}
	if n, err := syncproto.DecodeRow(next.body); err == nil {
		t.BootID, t.Mono, t.Wall = n.BootID, n.Mono, n.Wall
	}
	body, err := syncproto.EncodeRow(t)
	if err != nil {
		panic(fmt.Sprintf("encode a gap row: %v", err)) // constants, and values that were encoded before
	}
	return row{seq: seq, age: next.age, body: body}
}
