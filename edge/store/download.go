package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"

	"skerry/fleet"
	"skerry/internal/durable"
)

const (
	markSuffix = ".at"
	markEvery  = 8 << 20 // bytes that a loss of power may lose
)

// mark records how many bytes of an interrupted download are durable, and of which version of the source.
type mark struct {
	Version   int
	Validator string // of the source: an ETag or a modification time
	Size      int64
	State     []byte // of the sha256 hash after those bytes
}

// Download is a content that is being written into the store. One goroutine uses it, and ends it with Commit, Suspend
// or Discard. No other goroutine can download the same key meanwhile.
type Download struct {
	store *Store
	key   Key
	id    string
	file  *os.File
	sum   hash.Hash
	at    mark
	size  int64
	done  chan struct{}
}

// Begin starts a download or resumes an interrupted one. It waits while another goroutine downloads the same key: the
// content may be in the store when Begin returns, so callers check Has after it.
func (s *Store) Begin(ctx context.Context, key Key) (*Download, error) {
	id := key.ID()
	d := &Download{store: s, key: key, id: id, sum: sha256.New(), done: make(chan struct{})}
	for {
		s.mu.Lock()
		other := s.busy[id]
		if other == nil {
			s.busy[id] = d.done
			s.mu.Unlock()
			break
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if err := d.openPartial(); err != nil {
		d.releaseKey()
		return nil, fmt.Errorf("begin the download of %s: %w", key, err)
	}
	return d, nil
}

// Size returns the number of bytes written, those of an earlier attempt included.
func (d *Download) Size() int64 { return d.size }

// Validator returns the validator that Restart was given for the written bytes.
func (d *Download) Validator() string { return d.at.Validator }

// Restart drops the written bytes, to download the source from its first byte. validator names the version of the
// source. With an empty validator the download cannot be resumed after an interruption.
func (d *Download) Restart(validator string) error {
	d.sum.Reset()
	d.at, d.size = mark{Version: entryVersion, Validator: validator}, 0
	d.noteSize()
	if err := errors.Join(d.file.Truncate(0), seekTo(d.file, 0)); err != nil {
		return fmt.Errorf("restart the download of %s: %w", d.key, err)
	}
	return d.writeMark()
}

// Write appends bytes. The error of a full store is a *fleet.Error.
func (d *Download) Write(p []byte) (int, error) {
	s := d.store
	s.mu.Lock()
	err := s.errFull()
	if d.size+int64(len(p)) <= s.cfg.MaxBytes { // evict nothing for a content that can never fit
		err = s.makeRoom(int64(len(p)))
	}
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := d.file.Write(p)
	d.sum.Write(p[:n])
	d.size += int64(n)
	d.noteSize()
	if err == nil && d.at.Validator != "" && d.size-d.at.Size >= markEvery {
		err = d.writeMark()
	}
	return n, err
}

// Commit makes the download an entry of the store if it has the checksum of its key. The entry is durable when Commit
// returns. After an error the written bytes are removed.
func (d *Download) Commit(name string) (Entry, error) {
	return d.commitEntry(Entry{Name: name})
}

func (d *Download) commitEntry(e Entry) (Entry, error) {
	defer d.releaseKey()
	s := d.store
	e.Version, e.Key, e.Size, e.Stored = entryVersion, d.key, d.size, s.cfg.Now()
	e.SHA256 = hex.EncodeToString(d.sum.Sum(nil))
	err := d.checkContent()
	if err == nil {
		err = d.publishBlob(e)
	}
	if err != nil {
		return Entry{}, errors.Join(fmt.Errorf("store %s: %w", d.key, err), d.removeFiles())
	}
	return e, nil
}

// Suspend ends the attempt and keeps the written bytes for the next Begin. Without a validator it removes them.
func (d *Download) Suspend() error {
	defer d.releaseKey()
	if d.at.Validator == "" || d.size == 0 {
		return d.removeFiles()
	}
	if err := errors.Join(d.writeMark(), d.file.Close()); err != nil {
		return fmt.Errorf("suspend the download of %s: %w", d.key, err)
	}
	return nil
}

// Discard ends the download and removes the written bytes.
func (d *Download) Discard() error {
	defer d.releaseKey()
	return d.removeFiles()
}

// Load stores a content by hand, from r. It answers every request for the key's source from then on.
func (s *Store) Load(ctx context.Context, key Key, name string, r io.Reader) (Entry, error) {
	d, err := s.Begin(ctx, key)
	if err != nil {
		return Entry{}, err
	}
	if err := d.Restart(""); err != nil {
		return Entry{}, errors.Join(err, d.Discard())
	}
	if _, err := io.Copy(d, readerOf(ctx, r)); err != nil {
		return Entry{}, errors.Join(fmt.Errorf("load %s into the store: %w", key, err), d.Discard())
	}
	return d.commitEntry(Entry{Name: name, Loaded: true})
}

// openPartial opens the file of the download, with the bytes that agree with its mark.
func (d *Download) openPartial() (err error) {
	path := d.store.pathOf("partial", d.id)
	if d.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	at, err := d.store.readMark(d.id)
	if err == nil {
		err = d.checkPrefix(at)
	}
	if err != nil { // no mark, or a damaged one
		d.sum.Reset()
		at = mark{Version: entryVersion}
	}
	d.at, d.size = at, at.Size
	d.noteSize()
	if err := errors.Join(d.file.Truncate(at.Size), seekTo(d.file, at.Size)); err != nil {
		return errors.Join(err, d.file.Close())
	}
	return nil
}

// checkPrefix hashes the bytes of an earlier attempt and compares them with their mark.
func (d *Download) checkPrefix(at mark) error {
	if _, err := io.CopyN(d.sum, d.file, at.Size); err != nil {
		return err
	}
	if state, err := hashState(d.sum); err != nil || !bytes.Equal(state, at.State) {
		return errors.Join(errors.New("the bytes are not those of the mark"), err)
	}
	return nil
}

// writeMark flushes the written bytes, then records their number.
func (d *Download) writeMark() error {
	if d.at.Validator == "" {
		return nil // it cannot be resumed
	}
	state, err := hashState(d.sum)
	if err != nil {
		return err
	}
	d.at.Size, d.at.State = d.size, state
	text, err := json.Marshal(d.at)
	if err == nil {
		err = d.store.cfg.Step("flush-partial")
	}
	if err == nil {
		err = d.file.Sync()
	}
	if err == nil {
		err = d.store.cfg.Step("write-mark")
	}
	if err != nil {
		return fmt.Errorf("record the progress of %s: %w", d.key, err)
	}
	if err := durable.Replace(d.store.pathOf("partial", d.id+markSuffix), text, 0o600); err != nil {
		return fmt.Errorf("record the progress of %s: %w", d.key, err)
	}
	return nil
}

// checkContent compares the content with the checksum of the key.
func (d *Download) checkContent() error {
	h, want := newHash(d.key.Checksum)
	if h == nil {
		return nil
	}
	if err := seekTo(d.file, 0); err != nil {
		return err
	}
	if _, err := io.Copy(h, d.file); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return wrongChecksum(d.key, got)
	}
	return nil
}

// publishBlob renames the file to a blob, writes the key, and removes the mark, in this order.
func (d *Download) publishBlob(e Entry) error {
	s := d.store
	if err := s.cfg.Step("flush-blob"); err != nil {
		return err
	}
	if err := errors.Join(d.file.Sync(), d.file.Close()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cfg.Step("rename-blob"); err != nil {
		return err
	}
	if err := durable.Rename(s.pathOf("partial", d.id), s.blobPath(e.SHA256)); err != nil {
		return err
	}
	delete(s.partials, d.id)
	if err := s.makeRoom(0); err != nil {
		return err
	}
	if err := s.writeEntry(e); err != nil {
		return err
	}
	s.verified[e.SHA256] = true
	if err := s.cfg.Step("remove-mark"); err != nil {
		s.cfg.Log.Debug("mark of a download not removed", "error", err)
		return nil
	}
	return removeFile(s.pathOf("partial", d.id+markSuffix))
}

// removeFiles removes the files of the download.
func (d *Download) removeFiles() error {
	_ = d.file.Close() // Commit may have closed it
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	return d.store.removePartial(d.id)
}

// removePartial removes the files of a download. The caller has the lock.
func (s *Store) removePartial(id string) error {
	delete(s.partials, id)
	return errors.Join(removeFile(s.pathOf("partial", id+markSuffix)), removeFile(s.pathOf("partial", id)))
}

// releaseKey lets the next goroutine download the key.
func (d *Download) releaseKey() {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	delete(d.store.busy, d.id)
	close(d.done)
}

func (d *Download) noteSize() {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	d.store.partials[d.id] = d.size
}

// readMark reads the mark of an interrupted download.
func (s *Store) readMark(id string) (mark, error) {
	text, err := readRecord(s.pathOf("partial", id+markSuffix))
	if err != nil {
		return mark{}, err
	}
	return decodeMark(text)
}

func decodeMark(text []byte) (mark, error) {
	var m mark
	if err := json.Unmarshal(text, &m); err != nil {
		return mark{}, err
	}
	if m.Version != entryVersion || m.Size < 0 || m.Validator == "" {
		return mark{}, fleet.Errorf(fleet.CodeVersion, "the mark of a download is of another version")
	}
	return m, nil
}

// hashState returns the state of a sha256 as bytes.
func hashState(h hash.Hash) ([]byte, error) { return h.(encoding.BinaryMarshaler).MarshalBinary() }

func seekTo(f *os.File, at int64) error {
	_, err := f.Seek(at, io.SeekStart)
	return err
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
