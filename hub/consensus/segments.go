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

// segments are the log's files. They mend what is wrong with raft-wal 0.4.0,
// each of which a kill at the wrong moment turns into a hub that never starts
// again:
//
//   - A tail that is cut (a former leader drops what was not committed) is noted
//     as sealed, but gets no index; reading it fails after the next start. Open
//     reads such a file through instead.
//   - A cut that overtakes the rotation of a full file seals the wrong one.
//     settled lets it wait.
//   - A file that was full when the process died is not rotated when it is opened
//     again, and takes no more entries. repair rotates it.
type segments struct {
	*segment.Filer

	mu       sync.Mutex
	rotating chan struct{} // closed at the end of the rotation that is due; nil: none is
}

var _ types.SegmentFiler = (*segments)(nil)

// Create is how a rotation ends. raft-wal holds its lock, so that whoever goes on
// now comes after it.
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

func (s *segments) RecoverTail(info types.SegmentInfo) (types.SegmentWriter, error) {
	w, err := s.Filer.RecoverTail(info)
	if err != nil {
		return nil, err
	}
	return &tail{w, s}, nil
}

func (s *segments) Open(info types.SegmentInfo) (types.SegmentReader, error) {
	if info.IndexStart == 0 {
		return s.Filer.RecoverTail(info)
	}
	return s.Filer.Open(info)
}

// waitForRotation returns when no rotation is due.
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

// tail is the file that is appended to. Once it is sealed, raft-wal rotates.
type tail struct {
	types.SegmentWriter
	files *segments
}

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

// finishRotation finishes, before the log in dir is opened, a rotation that the end of
// the process cut off, or the writing of a file's last batch.
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
	if end == 0 { // nothing in it was committed: a new file takes its place
		*last = next
	} else {
		// IndexStart stays 0, since the index may be in the batch that was cut off.
		last.SealTime, last.MaxIndex = time.Now(), end
		next.BaseIndex, next.MinIndex = end+1, end+1
		st.Segments = append(st.Segments, next)
	}
	if err := meta.CommitState(st); err != nil {
		return fmt.Errorf("store the list of the log's files: %w", err)
	}
	return nil
}

// inspectSegment reads a file through: the last entry in it (0: none), and whether it
// takes no more.
func (s *segments) inspectSegment(info types.SegmentInfo) (end uint64, sealed bool, err error) {
	w, err := s.Filer.RecoverTail(info)
	if errors.Is(err, fs.ErrNotExist) { // it was about to be made
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read the log's file %s: %w", segment.FileName(info), err)
	}
	sealed, _, err = w.Sealed()
	return w.LastIndex(), sealed, errors.Join(err, w.Close())
}
