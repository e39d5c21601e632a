package consensus

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// rotateTimeout bounds the wait for a rotation: some writes and fsyncs.
const rotateTimeout = 10 * time.Second

// segments creates and opens the log's files for raft-wal. It corrects three faults of raft-wal
// 0.4.0. With each of them, a kill at the wrong moment leaves a hub that never starts again:
//
//   - A tail that is truncated (a former leader drops uncommitted entries) is recorded as
//     sealed, but gets no index, and cannot be read after the next start. Open scans such a
//     file instead.
//   - A truncation that overtakes the rotation of a full file seals the wrong file.
//     waitForRotation makes it wait.
//   - A file that was full when the process died is not rotated when it is opened again, and
//     takes no more entries. finishRotation rotates it.
type segments struct {
	*segment.Filer

	mu       sync.Mutex
	rotating chan struct{} // closed when the current rotation ends; nil: there is none
}

var _ types.SegmentFiler = (*segments)(nil)

// Create creates the next file, which ends a rotation. raft-wal holds its lock meanwhile, so a writer that
// is woken here still comes after the rotation.
func (s *segments) Create(info types.SegmentInfo) (types.SegmentWriter, error) {
	w, err := s.Filer.Create(info)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rotating != nil {
		close(s.rotating)
		s.rotating = nil
	}
	return &tail{w, s}, nil
}

// RecoverTail opens the file that is appended to, after a start.
func (s *segments) RecoverTail(info types.SegmentInfo) (types.SegmentWriter, error) {
	w, err := s.Filer.RecoverTail(info)
	if err != nil {
		return nil, err
	}
	return &tail{w, s}, nil
}

// Open opens a sealed file for reading. A file without an index is scanned.
func (s *segments) Open(info types.SegmentInfo) (types.SegmentReader, error) {
	if info.IndexStart == 0 {
		return s.Filer.RecoverTail(info)
	}
	return s.Filer.Open(info)
}

// waitForRotation returns when no rotation is in progress, or an error after rotateTimeout.
func (s *segments) waitForRotation() error {
	s.mu.Lock()
	rotating := s.rotating
	s.mu.Unlock()
	if rotating == nil {
		return nil
	}
	select {
	case <-rotating:
		return nil
	case <-time.After(rotateTimeout):
		return fmt.Errorf("rotate the log: not done after %s", rotateTimeout)
	}
}

// tail is the file that entries are appended to. When it is full, raft-wal rotates it.
type tail struct {
	types.SegmentWriter
	files *segments
}

// Append appends entries, and records that a rotation is in progress if they fill the file.
func (t *tail) Append(entries []types.LogEntry) error {
	if err := t.SegmentWriter.Append(entries); err != nil {
		return err
	}
	sealed, _, err := t.Sealed()
	if err != nil || !sealed {
		return err
	}
	t.files.mu.Lock()
	defer t.files.mu.Unlock()
	t.files.rotating = make(chan struct{})
	return nil
}

// finishRotation changes the list of files in dir, before the log is opened, if the last file is full: it
// seals that file and adds a new one. A crash can leave it full, in the middle of a rotation or of the
// last write.
func (s *segments) finishRotation(meta *metadb.BoltMetaDB, dir string) error {
	st, err := meta.Load(dir)
	if err != nil {
		return fmt.Errorf("load the list of the log's files: %w", err)
	}
	if len(st.Segments) == 0 || !st.Segments[len(st.Segments)-1].SealTime.IsZero() {
		return nil
	}
	last := &st.Segments[len(st.Segments)-1]
	end, sealed, err := s.inspectSegment(*last)
	if err != nil || !sealed {
		return err
	}
	next := *last
	next.ID, next.CreateTime = st.NextSegmentID, time.Now()
	st.NextSegmentID++
	if end == 0 { // the file has no complete batch: a new file replaces it
		*last = next
	} else {
		// IndexStart stays 0, because the index may be in the batch that was cut off.
		last.SealTime, last.MaxIndex = time.Now(), end
		next.BaseIndex, next.MinIndex = end+1, end+1
		st.Segments = append(st.Segments, next)
	}
	if err := meta.CommitState(st); err != nil {
		return fmt.Errorf("store the list of the log's files: %w", err)
	}
	return nil
}

// inspectSegment scans a file. It returns the newest entry in it (0: none), and whether the file is full.
func (s *segments) inspectSegment(info types.SegmentInfo) (end uint64, sealed bool, err error) {
	w, err := s.Filer.RecoverTail(info)
	if errors.Is(err, fs.ErrNotExist) { // listed, but not created yet
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read the log's file %s: %w", segment.FileName(info), err)
	}
	sealed, _, err = w.Sealed()
	return w.LastIndex(), sealed, errors.Join(err, w.Close())
}
