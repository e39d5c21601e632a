package state

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"

	"skerry/fleet"
)

// Bounds of a snapshot that a user restores.
const (
	// MaxSnapshot is the largest snapshot file. The file travels through the log, and is in the
	// memory of every hub until it is applied.
	MaxSnapshot = 256 << 20
	// SnapshotPartBytes is the largest part of the file in one entry.
	SnapshotPartBytes = 1 << 20
	// maxInflated bounds the decompressed records.
	maxInflated = 2 << 30
	// maxForgotten is how many ranges of forgotten entries a state keeps.
	maxForgotten = 64
)

// SnapshotPart stores one part of a snapshot file. Parts are numbered from 0 and come in order. Part 0
// removes the parts of any other restore. Nothing else changes.
type SnapshotPart struct {
	command
	Restore string // id of the restore
	Number  uint64
	Data    []byte // at most SnapshotPartBytes
}

// SnapshotRestore replaces the state by the snapshot in the stored parts, on every hub, in this one entry.
// Some things are not rewound: see rewindToSnapshot. It is refused and changes nothing if the parts do not
// match Size and Sum, or if the snapshot is unusable.
type SnapshotRestore struct {
	command
	Restore  string
	Size     int64
	Sum      []byte // SHA-256 of the file
	EvalSeed string
	Now      int64 // UnixNano
}

// SnapshotDrop removes the parts of an abandoned restore. An empty Restore removes those of any.
type SnapshotDrop struct {
	command
	Restore string
}

// partRow is a stored part of a snapshot file. Parts are replicated and are in snapshots, so that every
// hub has the same ones when the restore is committed, also a hub that started meanwhile.
type partRow struct {
	restore string
	number  uint64
	data    []byte
}

// savedPart is a partRow in a snapshot.
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

// loadPart converts a snapshot record to a part. It refuses a number beyond MaxSnapshot.
func loadPart(_ *loader, s *savedPart) (*partRow, error) {
	if s.Number*SnapshotPartBytes >= MaxSnapshot {
		return nil, fmt.Errorf("part %d of a snapshot", s.Number)
	}
	return &partRow{s.Restore, s.Number, s.Data}, nil
}

// snapshotPart applies the command SnapshotPart: it stores one part of a snapshot file. It is refused
// (conflict) if the part before it is missing.
func (t *tx) snapshotPart(c SnapshotPart) Result {
	switch {
	case c.Restore == "":
		return refusal(fleet.CodeInvalid, "take part %d of a snapshot: it belongs to no restore", c.Number)
	case len(c.Data) == 0 || len(c.Data) > SnapshotPartBytes:
		return refusal(fleet.CodeInvalid, "take part %d of a snapshot: it has %d bytes, 1 to %d are allowed", c.Number, len(c.Data), SnapshotPartBytes)
	case c.Number*SnapshotPartBytes >= MaxSnapshot:
		return refusal(fleet.CodeInvalid, "take part %d of a snapshot: a snapshot may have at most %d bytes", c.Number, MaxSnapshot)
	}
	if c.Number == 0 {
		t.dropParts()
	} else if before := partTable.currentRow(t, indexKey(c.Number-1)); before == nil || before.restore != c.Restore {
		return refusal(fleet.CodeConflict, "take part %d of a snapshot: the part before it is missing", c.Number).
			withErrorHint("another restore was begun, or another hub leads now: restore the file again")
	}
	partTable.putRow(t, &partRow{c.Restore, c.Number, c.Data})
	return Result{}
}

// snapshotDrop applies the command SnapshotDrop: it removes the stored parts of a restore.
func (t *tx) snapshotDrop(c SnapshotDrop) Result {
	if first := partTable.currentRow(t, indexKey(uint64(0))); first != nil && (c.Restore == "" || c.Restore == first.restore) {
		t.dropParts()
	}
	return Result{}
}

// dropParts removes all stored parts.
func (t *tx) dropParts() {
	for p := range partTable.scanRows(t.base) {
		partTable.removeRow(t, indexKey(p.number))
	}
}

// withErrorHint adds a hint for the user to a refusal.
func (r Result) withErrorHint(text string) Result {
	r.Err = r.Err.WithHint("%s", text)
	return r
}

// Restoring returns the id of the restore whose parts are stored; ok is false if there are none.
func (v *View) Restoring() (restore string, ok bool) {
	p, ok := partTable.watchRow(v, indexKey(uint64(0)))
	if !ok {
		return "", false
	}
	return p.restore, true
}

// applySnapshotRestore applies SnapshotRestore: it replaces the generation gen by one that holds the
// restored state. If that fails only the applied index changes. The caller holds s.mu.
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

// assembleSnapshot joins the stored parts of a restore. It fails if they do not match c's size and
// checksum.
func (v *View) assembleSnapshot(c SnapshotRestore) ([]byte, error) {
	if c.Size < 0 || c.Size > MaxSnapshot {
		return nil, fleet.Errorf(fleet.CodeInvalid, "restore a snapshot: it has %d bytes, at most %d are allowed", c.Size, MaxSnapshot).
			WithHint("put back the data directories of all hubs")
	}
	file := make([]byte, 0, c.Size)
	for p := range partTable.scanRows(v.txn) {
		if p.restore == c.Restore {
			file = append(file, p.data...)
		}
	}
	if sum := sha256.Sum256(file); int64(len(file)) != c.Size || !bytes.Equal(sum[:], c.Sum) {
		return nil, fleet.Errorf(fleet.CodeConflict, "restore a snapshot: %d bytes arrived, which do not match the file of %d bytes", len(file), c.Size).
			WithHint("another restore was begun, or another hub leads now: restore the file again")
	}
	return file, nil
}

// TryRestore checks whether a snapshot can be restored over this state, by restoring it into a copy. It
// returns that copy. Errors: invalid (damaged, not a snapshot), CodeVersion (of a newer release), conflict
// (of another cluster, or newer than this state).
func (v *View) TryRestore(r io.Reader, now int64) (*View, error) {
	gen, err := v.restoredGeneration(r, v.Index()+1, SnapshotRestore{EvalSeed: "rehearsal", Now: now})
	if err != nil {
		return nil, err
	}
	return &View{txn: gen.db.Txn(false)}, nil
}

// restoredGeneration returns a new database with the snapshot in r restored over this view by the entry
// index.
// It turns a panic into an error: a bad file must not crash all hubs, and again whenever they replay their
// log.
func (v *View) restoredGeneration(r io.Reader, index fleet.Index, c SnapshotRestore) (gen *generation, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			gen, err = nil, fleet.Errorf(fleet.CodeInvalid, "restore a snapshot: it contradicts itself: %v", broken)
		}
	}()
	old := &View{txn: v.txn} // does not watch
	gen = newGeneration()
	if err := readSnapshot(gen.db, &boundedReader{r: r, left: MaxSnapshot}, maxInflated); err != nil {
		return nil, unusableSnapshotError("read", err)
	}
	snapshot := &View{txn: gen.db.Txn(false)}
	if err := snapshot.Check(); err != nil {
		return nil, unusableSnapshotError("check", err)
	}
	if err := old.checkEarlierState(snapshot); err != nil {
		return nil, err
	}
	t := beginEntry(gen.db, index)
	t.rewindToSnapshot(old, snapshot.Index(), c)
	t.commitEntry(gen.db)
	if err := (&View{txn: gen.db.Txn(false)}).Check(); err != nil {
		return nil, unusableSnapshotError("continue from", err)
	}
	return gen, nil
}

// checkEarlierState returns an error unless the snapshot is an earlier state of this cluster.
func (v *View) checkEarlierState(snapshot *View) error {
	mine, ok := v.Cluster()
	if !ok {
		return fleet.Errorf(fleet.CodeUnavailable, "restore a snapshot: this cluster does not exist yet")
	}
	its, ok := snapshot.Cluster()
	switch {
	case !ok:
		return fleet.Errorf(fleet.CodeInvalid, "restore a snapshot: it belongs to no cluster")
	case its.ID != mine.ID:
		return fleet.Errorf(fleet.CodeConflict, "restore a snapshot: it belongs to cluster %s, and this is cluster %s",
			fleet.Short(its.ID), fleet.Short(mine.ID)).
			WithHint("hubs and edges trust the certificates of their own cluster alone; take a snapshot of this one")
	case snapshot.Index() > v.Index():
		return fleet.Errorf(fleet.CodeConflict, "restore a snapshot: it was taken at entry %d, and this cluster is at entry %d",
			snapshot.Index(), v.Index()).
			WithHint("the hubs' data directories were replaced by older ones since then: put back newer ones")
	}
	return nil
}

// unusableSnapshotError wraps the reason why a snapshot cannot be restored, with a hint. It keeps an error
// with CodeVersion as it is.
func unusableSnapshotError(verb string, err error) *fleet.Error {
	e := fleet.AsError(err)
	if e.Code != fleet.CodeVersion {
		e = fleet.Errorf(fleet.CodeInvalid, "%s the snapshot: %v", verb, err).
			WithHint("the file is damaged, truncated or no snapshot of Skerry; skerry operator snapshot inspect checks a file")
	}
	return e
}

// boundedReader reads from r, and fails when more than left bytes are read.
type boundedReader struct {
	r    io.Reader
	left int64
}

// Read reads from b.r. It returns an error instead of io.EOF once the bound is reached.
func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fleet.Errorf(fleet.CodeInvalid, "read the snapshot: it has more than %d bytes", MaxSnapshot)
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// Restored describes the newest restore of the cluster.
type Restored struct {
	Index fleet.Index // of the entry that restored the snapshot
	From  fleet.Index // the entry that the snapshot was taken at
	Time  int64       // UnixNano, by the leader's clock
}

// restoredRow holds the newest restore, and the ranges of entries whose effects restores have removed.
type restoredRow struct {
	Restored  Restored
	Forgotten []entryRange // oldest first
}

var restoredTable = table[restoredRow]{
	name: "restored", key: onlyRow[restoredRow], announced: true,
	records: []record[restoredRow]{rowRecord[restoredRow](90)},
}

// entryRange is the log entries after From, up to and including To.
type entryRange struct{ From, To fleet.Index }

// knowsEntry reports whether the state has, or once had, the effects of an entry: no restore has removed
// them. r may be nil: nothing was restored.
func (r *restoredRow) knowsEntry(index fleet.Index) bool {
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

// Restored returns the newest restore, or a zero value if there was none.
func (v *View) Restored() Restored {
	if r, ok := restoredTable.watchRow(v, onlyKey); ok {
		return r.Restored
	}
	return Restored{}
}
