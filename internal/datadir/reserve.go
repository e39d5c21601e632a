package datadir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"skerry/internal/durable"
	"skerry/internal/pace"
)

// reserveFile holds disk space that is given up, a piece at a time, when the disk is full.
const reserveFile = "reserve"

const (
	// lowSpace is how little may be free before a piece of the reserve is given up: what
	// ten tasks need to start again, and the journal to say so.
	lowSpace = 1 << 20
	// reservePieces is in how many pieces the reserve is given up; keptPieces of them are given up during a start only,
	// because others may use the disk, too: they take what is given up while the disk is full.
	reservePieces = 8
	keptPieces    = reservePieces / 2
	// reserveShare of the disk's size is the largest reserve: a small disk is not to be
	// filled by it.
	reserveShare = 20
	// WatchSpace looks at the disk again before it can be full, if no more than fillRate bytes a second are written, but
	// not earlier than after spaceCheckInterval, and not later than after maxSpaceCheckInterval.
	spaceCheckInterval    = 2 * time.Second
	maxSpaceCheckInterval = 30 * time.Second
	fillRate              = 512 << 20
)

// Space is how a data directory's disk stands.
type Space struct {
	Free     int64 // bytes
	Reserve  int64 // bytes that the reserve holds now
	Reserved int64 // bytes that it holds when the disk has room
}

// Full reports that the reserve had to be given up, in part or as a whole.
func (s Space) Full() bool { return s.Reserve < s.Reserved }

// Space returns how the disk stands; zero where that is not known, or where there is no reserve.
func (d *Dir) Space() Space {
	if d.kind.Reserve <= 0 {
		return Space{}
	}
	free, total, err := d.kind.Free(d.path)
	if err != nil {
		return Space{}
	}
	s := Space{Free: free, Reserved: min(d.kind.Reserve, total/reserveShare)}
	if info, err := os.Stat(d.File(reserveFile)); err == nil {
		s.Reserve = min(info.Size(), s.Reserved)
	}
	return s
}

// EndStart keeps the rest of the reserve that is for starts until the next Open.
func (d *Dir) EndStart() {
	d.reserve.Lock()
	defer d.reserve.Unlock()
	d.started = true
}

// ReleaseReserve gives up a piece of the reserve. It reports false where nothing is left of it, or, after EndStart, only
// what is kept for starts.
func (d *Dir) ReleaseReserve() bool {
	d.reserve.Lock()
	defer d.reserve.Unlock()
	return d.releaseReservePiece(d.Space(), !d.started)
}

// releaseReservePiece makes the reserve file smaller by one piece; false: nothing may be given up, or that failed.
// Only with forStart it gives up what is kept for starts. reserve is locked.
func (d *Dir) releaseReservePiece(s Space, forStart bool) bool {
	piece, kept := max(s.Reserved/reservePieces, 1), int64(0)
	if !forStart {
		kept = piece * keptPieces
	}
	if s.Reserve <= kept {
		return false
	}
	// A file that gets smaller needs no new block, also on a disk that has none.
	return os.Truncate(d.File(reserveFile), max(kept, s.Reserve-piece)) == nil
}

// CheckSpace gives up pieces of the reserve while the disk has hardly any room, but no more at once than makes enough
// room, and fills it again where the disk has enough. It leaves what is kept for starts.
func (d *Dir) CheckSpace() Space { return d.checkSpace(false) }

func (d *Dir) checkSpace(forStart bool) Space {
	d.reserve.Lock()
	defer d.reserve.Unlock()
	s := d.Space()
	before := s.Reserve
	for s.Reserved > 0 && s.Free < lowSpace && before-s.Reserve < lowSpace && d.releaseReservePiece(s, forStart) {
		s = d.Space()
	}
	if missing := s.Reserved - s.Reserve; missing > 0 && s.Free > missing+2*lowSpace {
		// Where the disk does not take it, the next look tries again.
		if err := d.fillReserve(s.Reserved); err == nil {
			s = d.Space()
		}
	}
	return s
}

// timeToFill returns the pause until the next look at the disk.
func (s Space) timeToFill() time.Duration {
	if s.Full() {
		return spaceCheckInterval
	}
	seconds := time.Duration(max(0, s.Free-lowSpace) / fillRate)
	return min(max(seconds*time.Second, spaceCheckInterval), maxSpaceCheckInterval)
}

// WatchSpace calls CheckSpace every 2 to 30 seconds until ctx ends, the less often the more is free. It calls changed with
// what it found where that differs from the last time in whether the disk is full.
func (d *Dir) WatchSpace(ctx context.Context, changed func(Space)) {
	for full := false; ; {
		s := d.CheckSpace()
		if s.Full() != full {
			full = s.Full()
			changed(s)
		}
		if !pace.Rest(ctx, s.timeToFill()) {
			return
		}
	}
}

// fillReserve makes the reserve file size bytes large. If the disk has no room, the file keeps its size.
func (d *Dir) fillReserve(size int64) error {
	f, err := os.OpenFile(d.File(reserveFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	before, err := f.Stat()
	if err == nil {
		err = durable.Allocate(f, size)
	}
	if err != nil && before != nil {
		err = errors.Join(err, f.Truncate(before.Size()))
	}
	return errors.Join(err, f.Close())
}

// replaceWithReserve replaces a file, and gives up pieces of the reserve while the disk is full.
func (d *Dir) replaceWithReserve(path string, content []byte, mode fs.FileMode) error {
	for {
		var err error
		if d.kind.Step != nil {
			err = d.kind.Step(StepWrite)
		}
		if err == nil {
			err = durable.Replace(path, content, mode)
		}
		if !diskFull(err) || !d.ReleaseReserve() {
			return err
		}
	}
}
