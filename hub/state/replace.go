package state

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"

	"skerry/fleet"
)

// Bounds of a snapshot that a person hands in.
const (
	// MaxSnapshot is how large its file may be: it is in the log, and until it is
	// applied in the memory of every hub.
	MaxSnapshot = 256 << 20
	// SnapshotPartBytes is what one entry carries of it.
	SnapshotPartBytes = 1 << 20
	// maxInflated is how much its records may take.
	maxInflated = 2 << 30
	// maxForgotten is how many pieces of the log a state remembers not to know.
	maxForgotten = 64
)

// SnapshotPart brings a piece of a snapshot into the log, from number 0 on, each
// after the one before. The first one of a restore takes the place of another
// restore that is under way. Nothing else changes by it.
type SnapshotPart struct {
	command
	Restore string // tells one restore from another
	Number  uint64
	Data    []byte // at most SnapshotPartBytes
}

// SnapshotRestore replaces the state by the snapshot whose parts are there (see
// rewind.go for what is not wound back), in this one entry, on every hub. It is
// refused, and changes nothing, where the parts are not the file that Size and Sum
// tell of, or the snapshot cannot be taken.
type SnapshotRestore struct {
	command
	Restore  string
	Size     int64
	Sum      []byte // SHA-256 of the file
	EvalSeed string
	Now      int64 // UnixNano
}

// SnapshotDrop removes the chunks of an abandoned restore; an empty Restore means any.
type SnapshotDrop struct {
	command
	Restore string
}

// partRow is a piece of a snapshot that waits for the rest. They are replicated and
// in snapshots like everything else: every hub has the same ones when the restore
// is committed, also one that started in between.
type partRow struct {
	restore string
	number  uint64
	data    []byte
}

type savedPart struct {
	Restore string
	Number  uint64
	Data    []byte
}

var partTable = table[partRow]{
	name: "snapshot parts", key: func(r *partRow) []byte { return indexKey(r.number) },
	records: []record[partRow]{savedRecord(91, func(r *partRow) *savedPart { return &savedPart{r.restore, r.number, r.data} }, loadPart)},
	describe: func(d *describer, table string, r *partRow) {
		d.writeTableLine(table, r.restore, r.number, len(r.data))
	},
}

func loadPart(_ *loader, s *savedPart) (*partRow, error) {
	if s.Number*SnapshotPartBytes >= MaxSnapshot {
		return nil, fmt.Errorf("part %d of a snapshot", s.Number)
	}
	return &partRow{s.Restore, s.Number, s.Data}, nil
}

func (t *tx) snapshotPart(c SnapshotPart) Result {
	switch {
	case c.Restore == "":
		return refused(fleet.CodeInvalid, "take part %d of a snapshot: it belongs to no restore", c.Number)
	case len(c.Data) == 0 || len(c.Data) > SnapshotPartBytes:
		return refused(fleet.CodeInvalid, "take part %d of a snapshot: it has %d bytes, 1 to %d are allowed", c.Number, len(c.Data), SnapshotPartBytes)
	case c.Number*SnapshotPartBytes >= MaxSnapshot:
		return refused(fleet.CodeInvalid, "take part %d of a snapshot: at most %d bytes are taken", c.Number, MaxSnapshot)
	}
	if c.Number == 0 {
		t.dropParts()
	} else if before := partTable.currentRow(t, indexKey(c.Number-1)); before == nil || before.restore != c.Restore {
		return refused(fleet.CodeConflict, "take part %d of a snapshot: the one before it is not there", c.Number).
			withErrorHint("another restore was begun, or another hub leads now: restore the file again")
	}
	partTable.putRow(t, &partRow{c.Restore, c.Number, c.Data})
	return Result{}
}

func (t *tx) snapshotDrop(c SnapshotDrop) Result {
	if first := partTable.currentRow(t, indexKey(uint64(0))); first != nil && (c.Restore == "" || c.Restore == first.restore) {
		t.dropParts()
	}
	return Result{}
}

func (t *tx) dropParts() {
	for p := range partTable.scanRows(t.base) {
		partTable.removeRow(t, indexKey(p.number))
	}
}

// withErrorHint adds to a refusal what to do about it.
func (r Result) withErrorHint(text string) Result {
	r.Err = r.Err.WithHint("%s", text)
	return r
}

// Restoring names the restore whose parts are in the state; ok is false where
// there is none.
func (v *View) Restoring() (restore string, ok bool) {
	p, ok := partTable.watchRow(v, indexKey(uint64(0)))
	if !ok {
		return "", false
	}
	return p.restore, true
}

// applySnapshotRestore is Apply of a SnapshotRestore.
func (s *Store) applySnapshotRestore(gen *generation, index fleet.Index, c SnapshotRestore) Result {
	old := &View{txn: gen.db.Txn(false)}
	var next *generation
	file, err := old.assembleSnapshot(c)
	if err == nil {
		next, err = old.restoredGeneration(bytes.NewReader(file), index, c)
	}
	if err != nil {
		beginEntry(gen.db, index).commitEntry(gen.db)
		return Result{Index: index, Err: fleet.AsError(err)}
	}
	s.cur.Store(next)
	close(gen.gone)
	return Result{Index: index}
}

// assembleSnapshot puts the parts of a restore together.
func (v *View) assembleSnapshot(c SnapshotRestore) ([]byte, error) {
	if c.Size < 0 || c.Size > MaxSnapshot {
		return nil, fleet.Errorf(fleet.CodeInvalid, "restore a snapshot: it has %d bytes, at most %d are taken", c.Size, MaxSnapshot)
	}
	file := make([]byte, 0, c.Size)
	for p := range partTable.scanRows(v.txn) {
		if p.restore == c.Restore {
			file = append(file, p.data...)
		}
	}
	if sum := sha256.Sum256(file); int64(len(file)) != c.Size || !bytes.Equal(sum[:], c.Sum) {
		return nil, fleet.Errorf(fleet.CodeConflict, "restore a snapshot: %d bytes of it arrived, which are not the %d of the file", len(file), c.Size).
			WithHint("another restore was begun, or another hub leads now: restore the file again")
	}
	return file, nil
}

// Rehearse finds out whether a snapshot can be restored over this state, by doing
// all of it aside. What it refuses is invalid (damaged, not a snapshot), of a newer
// release (CodeVersion), or conflict: of another cluster, or of entries that this
// cluster's log has not come to. It returns the state as it would be.
func (v *View) Rehearse(r io.Reader, now int64) (*View, error) {
	gen, err := v.restoredGeneration(r, v.Index()+1, SnapshotRestore{EvalSeed: "rehearsal", Now: now})
	if err != nil {
		return nil, err
	}
	return &View{txn: gen.db.Txn(false)}, nil
}

// restoredGeneration makes the state that follows when the snapshot in r is restored at
// index. A file that a person handed in must not stop all hubs, again and again
// whenever they read their log: what it breaks nevertheless is told, and the state
// stays as it is.
func (v *View) restoredGeneration(r io.Reader, index fleet.Index, c SnapshotRestore) (gen *generation, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			gen, err = nil, fleet.Errorf(fleet.CodeInvalid, "restore a snapshot: it contradicts itself: %v", broken)
		}
	}()
	old := &View{txn: v.txn} // remembers nothing
	gen = newGeneration()
	if err := restore(gen.db, &boundedReader{r: r, left: MaxSnapshot}, maxInflated); err != nil {
		return nil, unusableSnapshot("read", err)
	}
	snapshot := &View{txn: gen.db.Txn(false)}
	if err := snapshot.Check(); err != nil {
		return nil, unusableSnapshot("check", err)
	}
	if err := old.checkEarlierState(snapshot); err != nil {
		return nil, err
	}
	t := beginEntry(gen.db, index)
	t.rewindToSnapshot(old, snapshot.Index(), c)
	t.commitEntry(gen.db)
	if err := (&View{txn: gen.db.Txn(false)}).Check(); err != nil {
		return nil, unusableSnapshot("go on from", err)
	}
	return gen, nil
}

// checkEarlierState refuses what is not an earlier state of this very cluster.
func (v *View) checkEarlierState(snapshot *View) error {
	mine, ok := v.Cluster()
	if !ok {
		return fleet.Errorf(fleet.CodeUnavailable, "restore a snapshot: this cluster is not made yet")
	}
	its, ok := snapshot.Cluster()
	switch {
	case !ok:
		return fleet.Errorf(fleet.CodeInvalid, "restore a snapshot: it is of no cluster")
	case its.ID != mine.ID:
		return fleet.Errorf(fleet.CodeConflict, "restore a snapshot: it is of cluster %s, and this is cluster %s",
			fleet.Short(its.ID), fleet.Short(mine.ID)).
			WithHint("hubs and edges trust the certificates of their own cluster alone; take a snapshot of this one")
	case snapshot.Index() > v.Index():
		return fleet.Errorf(fleet.CodeConflict, "restore a snapshot: it was taken at entry %d, and this cluster is at entry %d",
			snapshot.Index(), v.Index()).
			WithHint("the hubs were put back to older data directories since: put back newer ones")
	}
	return nil
}

// unusableSnapshot is the error of a snapshot that cannot be taken.
func unusableSnapshot(verb string, err error) *fleet.Error {
	e := fleet.AsError(err)
	if e.Code != fleet.CodeVersion {
		e = fleet.Errorf(fleet.CodeInvalid, "%s the snapshot: %v", verb, err).
			WithHint("the file is damaged, cut short or none of skerry's; skerry operator snapshot inspect checks one")
	}
	return e
}

// boundedReader fails where more is read than may be, rather than end there.
type boundedReader struct {
	r    io.Reader
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fleet.Errorf(fleet.CodeInvalid, "a snapshot is larger than may be")
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// Restored is the last restore that the state has gone through.
type Restored struct {
	Index fleet.Index // of the entry that restored the snapshot
	From  fleet.Index // the entry that the snapshot was taken at
	Time  int64       // UnixNano, of the hub that led
}

// restoredRow is what restores leave behind: the newest one, and which entries of the
// log the state may know nothing of.
type restoredRow struct {
	Restored  Restored
	Forgotten []entryRange // oldest first
}

var restoredTable = table[restoredRow]{
	name: "restored", key: onlyRow[restoredRow], announced: true,
	records: []record[restoredRow]{rowRecord[restoredRow](90)},
}

// entryRange is the entries after From, up to To.
type entryRange struct{ From, To fleet.Index }

// hasKnownEntry reports whether the state has ever had what an entry left.
func (r *restoredRow) hasKnownEntry(index fleet.Index) bool {
	if r == nil {
		return true
	}
	for _, s := range r.Forgotten {
		if index > s.From && index <= s.To {
			return false
		}
	}
	return true
}

// Restored tells of the last restore; all zero where there was none.
func (v *View) Restored() Restored {
	if r, ok := restoredTable.watchRow(v, onlyKey); ok {
		return r.Restored
	}
	return Restored{}
}
