package consensus_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"skerry/fleet"
	"skerry/hub/consensus"
)

// segment is a small file of the log: a few entries fill it.
const segment = 4 << 10

func mustOpenLog(tb rapid.TB, dir string) consensus.Log {
	tb.Helper()
	l, err := consensus.OpenLog(dir, segment, func(err error) { tb.Errorf("told to fail: %v", err) })
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// modelLog is a log in memory, dumb on purpose.
type modelLog struct {
	first   uint64 // index of entries[0]
	entries [][]byte
}

func (m *modelLog) lastIndex() uint64 { return m.first + uint64(len(m.entries)) - 1 }

func entry(index uint64, data []byte) *raft.Log {
	return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data}
}

func mustStore(tb rapid.TB, l consensus.Log, first uint64, data ...[]byte) {
	tb.Helper()
	var logs []*raft.Log
	for i, d := range data {
		logs = append(logs, entry(first+uint64(i), d))
	}
	if err := l.StoreLogs(logs); err != nil {
		tb.Fatal(err)
	}
}

// compareWithLog compares a log with the model.
func (m *modelLog) compareWithLog(t *rapid.T, l consensus.Log) {
	first, err1 := l.FirstIndex()
	last, err2 := l.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if len(m.entries) == 0 {
		if first != 0 || last != 0 {
			t.Fatalf("an empty log goes from %d to %d", first, last)
		}
		return
	}
	if first != m.first || last != m.lastIndex() {
		t.Fatalf("from %d to %d, want %d to %d", first, last, m.first, m.lastIndex())
	}
	for i, want := range m.entries {
		var got raft.Log
		if err := l.GetLog(m.first+uint64(i), &got); err != nil {
			t.Fatalf("entry %d: %v", m.first+uint64(i), err)
		}
		if !bytes.Equal(got.Data, want) {
			t.Fatalf("entry %d has %d bytes, want %d", got.Index, len(got.Data), len(want))
		}
	}
}

// TestLogKeepsWhatRaftGivesIt compares the log with a model, over what raft does
// with it: appending, cutting either end or all of it, and starting again, also
// after a death in the middle of a rotation.
func TestLogKeepsWhatRaftGivesIt(t *testing.T) {
	root := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		dir := filepath.Join(root, fmt.Sprint(runs))
		l := mustOpenLog(t, dir)
		m := &modelLog{first: 1}
		reopen := func(between func()) {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			between()
			l = mustOpenLog(t, dir)
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				var batch [][]byte
				for _, n := range rapid.SliceOfN(rapid.IntRange(0, segment/3), 1, 5).Draw(t, "sizes") {
					batch = append(batch, bytes.Repeat([]byte{byte(len(m.entries))}, n))
				}
				mustStore(t, l, m.first+uint64(len(m.entries)), batch...)
				m.entries = append(m.entries, batch...)
			},
			"cut the start": func(t *rapid.T) {
				if len(m.entries) == 0 {
					t.Skip()
				}
				n := rapid.IntRange(1, len(m.entries)).Draw(t, "entries")
				if err := l.DeleteRange(m.first, m.first+uint64(n)-1); err != nil {
					t.Fatal(err)
				}
				m.entries = slices.Delete(m.entries, 0, n)
				m.first += uint64(n)
			},
			"cut the end": func(t *rapid.T) {
				if len(m.entries) < 2 {
					t.Skip()
				}
				n := rapid.IntRange(1, len(m.entries)-1).Draw(t, "entries")
				if err := l.DeleteRange(m.lastIndex()-uint64(n)+1, m.lastIndex()); err != nil {
					t.Fatal(err)
				}
				m.entries = m.entries[:len(m.entries)-n]
			},
			"skip ahead, as after a snapshot": func(t *rapid.T) {
				if len(m.entries) > 0 {
					t.Skip()
				}
				m.first += uint64(rapid.IntRange(1, 1000).Draw(t, "entries"))
			},
			"start again": func(*rapid.T) { reopen(func() {}) },
			"vote": func(t *rapid.T) {
				term := rapid.Uint64().Draw(t, "term")
				if err := l.SetUint64([]byte("term"), term); err != nil {
					t.Fatal(err)
				}
				if got, err := l.GetUint64([]byte("term")); err != nil || got != term {
					t.Fatalf("term %d, %v, want %d", got, err, term)
				}
			},
			"": func(t *rapid.T) { m.compareWithLog(t, l) },
		})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// fill appends entries until there are at least two files, and returns how many.
func fill(tb testing.TB, l consensus.Log, dir string) (last uint64) {
	tb.Helper()
	for index := uint64(1); ; index++ {
		mustStore(tb, l, index, bytes.Repeat([]byte{byte(index)}, 500))
		files, err := filepath.Glob(filepath.Join(dir, "*.wal"))
		if err != nil {
			tb.Fatal(err)
		}
		if len(files) > 1 {
			return index
		}
	}
}

func mustHaveEntries(tb testing.TB, l consensus.Log, last uint64) {
	tb.Helper()
	for index := uint64(1); index <= last; index++ {
		var got raft.Log
		if err := l.GetLog(index, &got); err != nil || len(got.Data) != 500 || got.Data[0] != byte(index) {
			tb.Fatalf("entry %d of %d: %d bytes, %v", index, last, len(got.Data), err)
		}
	}
}

// lose gives a log whose process died when a file was full and no other made.
func lose(tb testing.TB, dir string) (full uint64) {
	tb.Helper()
	l := mustOpenLog(tb, dir)
	last := fill(tb, l, dir)
	if err := l.Close(); err != nil {
		tb.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil {
		tb.Fatal(err)
	}
	slices.Sort(files)
	newest := files[len(files)-1]
	var base uint64
	if _, err := fmt.Sscanf(filepath.Base(newest), "%d-", &base); err != nil {
		tb.Fatal(err)
	}
	if base > last+1 {
		tb.Fatalf("%s begins after %d", newest, last)
	}
	if lost, err := consensus.LoseRotation(dir); err != nil || !lost {
		tb.Fatalf("lost %t, %v", lost, err)
	}
	if err := os.Remove(newest); err != nil {
		tb.Fatal(err)
	}
	return base - 1
}

func TestLogGoesOnAfterALostRotation(t *testing.T) {
	dir := t.TempDir()
	full := lose(t, dir)
	l := mustOpenLog(t, dir)
	mustHaveEntries(t, l, full)
	mustStore(t, l, full+1, bytes.Repeat([]byte{byte(full + 1)}, 500))
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = mustOpenLog(t, dir)
		mustHaveEntries(t, l, full+1)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLogGoesOnAfterATornBatch damages the last batch of a file that was full: it
// was not acknowledged, and everything before it was.
func TestLogGoesOnAfterATornBatch(t *testing.T) {
	dir := t.TempDir()
	full := lose(t, dir)
	files, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(content, bytes.Repeat([]byte{byte(full)}, 400))
	content[at] ^= 0xff
	if err := os.WriteFile(files[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	l := mustOpenLog(t, dir)
	if last, err := l.LastIndex(); err != nil || last != full-1 {
		t.Fatalf("ends at %d, %v, want %d", last, err, full-1)
	}
	mustHaveEntries(t, l, full-1)
	mustStore(t, l, full, bytes.Repeat([]byte{byte(full)}, 500))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpenLog(t, dir)
	mustHaveEntries(t, l, full)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLogThatCannotBeWrittenStopsTheHub(t *testing.T) {
	var told []error
	dir := t.TempDir()
	l, err := consensus.OpenLog(dir, segment, func(err error) { told = append(told, err) })
	if err != nil {
		t.Fatal(err)
	}
	mustStore(t, l, 1, []byte("a"))
	for range 2 { // a gap, which the log refuses as a full disk would
		if err := l.StoreLog(entry(7, []byte("b"))); err == nil {
			t.Fatal("a gap was taken")
		}
	}
	if len(told) != 1 {
		t.Fatalf("told %d times", len(told))
	}
	if e := fleet.AsError(told[0]); e.Code != fleet.CodeUnavailable || e.Hint == "" {
		t.Fatalf("told %+v", e)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWhenASnapshotIsDue(t *testing.T) {
	for _, try := range []struct {
		entries    uint64
		bytes      int64
		maxEntries uint64
		maxBytes   int64
		want       bool
	}{
		{0, 0, 100, 1000, false},
		{0, 2000, 100, 1000, false}, // nothing new
		{99, 999, 100, 1000, false},
		{100, 0, 100, 1000, true},
		{1, 1000, 100, 1000, true},
	} {
		if got := consensus.Due(try.entries, try.bytes, try.maxEntries, try.maxBytes); got != try.want {
			t.Errorf("%+v: got %t", try, got)
		}
	}
}

func TestHowManyEntriesTrail(t *testing.T) {
	for _, try := range []struct {
		entries uint64
		bytes   int64
		limit   uint64
		want    uint64
	}{
		{0, 0, 4096, 4096},
		{10_000, 3 << 20, 4096, 4096},        // 300 bytes each: the limit
		{1000, 1000 << 14, 4096, 1024},       // 16 KiB each: 16 MiB
		{1000, 1000 * 512 << 10, 4096, 64},   // 512 KiB each: not fewer than 64
		{1000, 1000 * 512 << 10, 10, 10},     // but never above the limit
		{5, 5, 4096, 4096},                   // one byte each
		{1, 16 << 20, 4096, 64},              // one large one
		{1 << 20, 1 << 34, 1 << 30, 1 << 10}, // many
	} {
		if got := consensus.Trailing(try.entries, try.bytes, try.limit); got != try.want {
			t.Errorf("%+v: got %d", try, got)
		}
	}
}
