package store_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry/edge/store"
	"skerry/fleet"
)

func configOf(dir string) store.Config {
	return store.Config{Dir: dir, MaxBytes: 1 << 20, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
}

func mustOpenStore(tb testing.TB, cfg store.Config) *store.Store {
	tb.Helper()
	s, err := store.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// put downloads content under a key.
func put(s *store.Store, key store.Key, content []byte) error {
	d, err := s.Begin(context.Background(), key)
	if err != nil {
		return err
	}
	if err := d.Restart("v1"); err != nil {
		return errors.Join(err, d.Suspend())
	}
	if _, err := d.Write(content); err != nil {
		return errors.Join(err, d.Suspend())
	}
	_, err = d.Commit("name")
	return err
}

func mustPut(tb testing.TB, s *store.Store, key store.Key, content []byte) {
	tb.Helper()
	if err := put(s, key, content); err != nil {
		tb.Fatal(err)
	}
}

func read(s *store.Store, key store.Key) ([]byte, error) {
	f, _, err := s.Open(context.Background(), key)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

func mustHaveContent(tb testing.TB, s *store.Store, key store.Key, want []byte) {
	tb.Helper()
	if got, err := read(s, key); err != nil || !bytes.Equal(got, want) {
		tb.Errorf("content of %v is %d bytes, %v; want %d bytes", key, len(got), err, len(want))
	}
}

func sha256Of(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func TestStoreKeepsContents(t *testing.T) {
	dir := t.TempDir()
	s := mustOpenStore(t, configOf(dir))
	a, b := store.Key{Source: "http://x/a"}, store.Key{Source: "http://x/b", Options: map[string]string{"token": "secret"}}
	for key, content := range map[string][]byte{"a": []byte("content of a"), "b": []byte("content of b")} {
		mustPut(t, s, map[string]store.Key{"a": a, "b": b}[key], content)
	}
	if _, err := read(s, store.Key{Source: "http://x/b"}); !errors.Is(err, store.ErrMissing) {
		t.Errorf("without the options of its key: %v", err)
	}
	s = mustOpenStore(t, configOf(dir))
	mustHaveContent(t, s, a, []byte("content of a"))
	mustHaveContent(t, s, b, []byte("content of b"))
	mustHaveContent(t, s, store.Key{Source: "elsewhere", Checksum: sha256Of([]byte("content of b"))}, []byte("content of b"))
	list := s.List()
	if len(list) != 2 || list[1].Key.Source != a.Source || list[0].Key.Options != nil {
		t.Errorf("the list is %+v", list)
	}
	if n, err := s.Remove(a.Source); n != 1 || err != nil || s.Has(a) || s.Used() != 12 {
		t.Errorf("removed %d, %v; it has %v, %d bytes", n, err, s.Has(a), s.Used())
	}
}

func TestLoadedContentAnswersEveryRequestForItsSource(t *testing.T) {
	s := mustOpenStore(t, configOf(t.TempDir()))
	content := []byte("from a stick")
	if _, err := s.Load(context.Background(), store.Key{Source: "http://x/a"}, "a", bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	sum := md5.Sum(content)
	right := store.Key{Source: "http://x/a", Options: map[string]string{"h": "v"}, Checksum: "md5:" + hex.EncodeToString(sum[:])}
	mustHaveContent(t, s, right, content)
	wrong := store.Key{Source: "http://x/a", Checksum: "md5:" + strings.Repeat("0", 32)}
	if _, err := read(s, wrong); fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Errorf("with another checksum: %v", err)
	}
	mustHaveContent(t, s, right, content)
}

func TestWrongChecksumIsNotStored(t *testing.T) {
	s := mustOpenStore(t, configOf(t.TempDir()))
	key := store.Key{Source: "http://x/a", Checksum: "sha1:" + strings.Repeat("0", 40)}
	if err := put(s, key, []byte("x")); fleet.CodeOf(err) != fleet.CodeInvalid || s.Has(key) || s.Used() != 0 {
		t.Errorf("%v; it has %v, %d bytes", err, s.Has(key), s.Used())
	}
}

func TestFlippedBitIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	content := []byte("content")
	key := store.Key{Source: "http://x/a"}
	mustPut(t, mustOpenStore(t, configOf(dir)), key, content)
	path := filepath.Join(dir, "blobs", strings.TrimPrefix(sha256Of(content), "sha256:"))
	if err := os.WriteFile(path, []byte("contEnt"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := mustOpenStore(t, configOf(dir))
	if _, err := read(s, key); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("a flipped bit: %v", err)
	}
	if s.Has(key) {
		t.Error("the damaged content is still there")
	}
	mustPut(t, s, key, content)
	mustHaveContent(t, s, key, content)
}

func TestEvictionSparesPinnedContents(t *testing.T) {
	dir := t.TempDir()
	cfg := configOf(dir)
	cfg.MaxBytes = 400
	s := mustOpenStore(t, cfg)
	key := func(i int) store.Key { return store.Key{Source: fmt.Sprint("http://x/", i)} }
	content := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 100) }
	if err := s.Pin("alloc-1", key(0)); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		mustPut(t, s, key(i), content(i))
	}
	mustHaveContent(t, s, key(1), content(1)) // used after the second
	s = mustOpenStore(t, cfg)
	mustPut(t, s, key(4), content(4))
	for i, want := range []bool{true, true, false, true, true} {
		if s.Has(key(i)) != want {
			t.Errorf("content %d is there: %v, want %v", i, s.Has(key(i)), want)
		}
	}
	if err := s.Pin("alloc-2", key(1), key(3), key(4)); err != nil {
		t.Fatal(err)
	}
	err := put(s, key(5), content(5))
	if fleet.CodeOf(err) != fleet.CodeUnavailable || !strings.Contains(err.Error(), "--store-size") {
		t.Errorf("with everything pinned: %v", err)
	}
	if err := errors.Join(s.Unpin("alloc-1"), s.Unpin("alloc-1"), s.Unpin("alloc-2")); err != nil {
		t.Fatal(err)
	}
	mustPut(t, mustOpenStore(t, cfg), key(6), bytes.Repeat([]byte("x"), 390))
}

// TestEvict frees space on the disk: of what no allocation needs, that which was used least recently first. A download
// that an allocation will go on with stays.
func TestEvict(t *testing.T) {
	s := mustOpenStore(t, configOf(t.TempDir()))
	key := func(name string) store.Key { return store.Key{Source: "http://x/" + name} }
	content := bytes.Repeat([]byte("x"), 100)
	if err := s.Pin("alloc-1", key("pinned"), key("cut-pinned")); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"pinned", "first", "second"} {
		mustPut(t, s, key(name), append(content, byte(i)))
	}
	if _, err := s.Load(t.Context(), key("loaded"), "", bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cut", "cut-pinned"} {
		d, err := s.Begin(t.Context(), key(name))
		if err == nil {
			err = d.Restart("v1")
		}
		if err == nil {
			_, err = d.Write(content)
		}
		if err := errors.Join(err, d.Suspend()); err != nil {
			t.Fatal(err)
		}
	}
	mustHaveContent(t, s, key("first"), append(content, 1)) // used after the second
	for _, step := range []struct {
		bytes int64
		left  int64
		gone  string
	}{{0, 603, ""}, {1, 503, ""}, {100, 402, "second"}, {1000, 301, "first"}, {1000, 301, ""}} {
		if err := s.Evict(step.bytes); err != nil || s.Used() != step.left || step.gone != "" && s.Has(key(step.gone)) {
			t.Fatalf("after the eviction of %d bytes: %d are left (%v), want %d, without %q", step.bytes, s.Used(), err, step.left, step.gone)
		}
	}
	if !s.Has(key("pinned")) || !s.Has(key("loaded")) {
		t.Error("what is needed, or was loaded by hand, is gone")
	}
	d, err := s.Begin(t.Context(), key("cut-pinned"))
	if err != nil || d.Size() != 100 {
		t.Fatalf("the download that is needed has %d bytes (%v), want 100", d.Size(), err)
	}
	if err := d.Suspend(); err != nil {
		t.Fatal(err)
	}
}

func TestCutDownloadGoesOn(t *testing.T) {
	dir := t.TempDir()
	key := store.Key{Source: "http://x/a"}
	s := mustOpenStore(t, configOf(dir))
	d, err := s.Begin(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(d, strings.NewReader("lost"))
	if err = errors.Join(err, d.Restart("v1")); err == nil {
		_, err = io.Copy(d, strings.NewReader("first "))
	}
	if err = errors.Join(err, d.Suspend()); err != nil {
		t.Fatal(err)
	}
	s = mustOpenStore(t, configOf(dir))
	if d, err = s.Begin(context.Background(), key); err != nil || d.Size() != 6 || d.Validator() != "v1" {
		t.Fatalf("%v: it goes on at %d of %q", err, d.Size(), d.Validator())
	}
	if _, err = io.Copy(d, strings.NewReader("second")); err != nil {
		t.Fatal(err)
	}
	if _, err = d.Commit(""); err != nil {
		t.Fatal(err)
	}
	mustHaveContent(t, s, key, []byte("first second"))
}

// A download starts again at byte 0 if its recorded bytes are lost or changed. Later bytes, which were not flushed,
// are dropped.
func TestDamagedDownloadBeginsAnew(t *testing.T) {
	key := store.Key{Source: "http://x/a"}
	for content, want := range map[string]int64{"": 0, "fir\x00\x00\x00": 0, "first and bytes that were not flushed": 6} {
		dir := t.TempDir()
		d, err := mustOpenStore(t, configOf(dir)).Begin(context.Background(), key)
		if err == nil {
			err = d.Restart("v1")
		}
		if err == nil {
			_, err = io.Copy(d, strings.NewReader("first "))
		}
		if err = errors.Join(err, d.Suspend()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "partial", key.ID()), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err = mustOpenStore(t, configOf(dir)).Begin(context.Background(), key)
		if err != nil || d.Size() != want {
			t.Errorf("with %q: %v, it goes on at %d, want %d", content, err, d.Size(), want)
		}
		if err := d.Discard(); err != nil {
			t.Error(err)
		}
	}
}

// TestCrashAtEachStep fails each write once, opens the store again, and finds the content or nothing, and every
// pin that was reported durable.
func TestCrashAtEachStep(t *testing.T) {
	content := []byte("content")
	key, old := store.Key{Source: "http://x/a"}, store.Key{Source: "http://x/old"}
	for at := 1; ; at++ {
		dir := t.TempDir()
		mustPut(t, mustOpenStore(t, configOf(dir)), old, []byte("old"))
		cfg, n, label := configOf(dir), 0, ""
		cfg.Step = func(l string) error {
			if n++; n >= at {
				label = l
				return errors.New("the power is cut")
			}
			return nil
		}
		s := mustOpenStore(t, cfg)
		pinned := s.Pin("alloc", key, old) == nil
		put(s, key, content)
		unpinned := s.Unpin("alloc") == nil
		_, removed := s.Remove(old.Source)
		s = mustOpenStore(t, configOf(dir))
		if got, err := read(s, key); !errors.Is(err, store.ErrMissing) && !bytes.Equal(got, content) {
			t.Errorf("after a crash before %s it has %q, %v", label, got, err)
		}
		if got, err := read(s, old); removed == nil && label == "" != errors.Is(err, store.ErrMissing) || err == nil && string(got) != "old" {
			t.Errorf("after a crash before %s it has the old %q, %v", label, got, err)
		}
		if has := len(s.PinnedAllocs()) == 1; has != (pinned && !unpinned) {
			t.Errorf("after a crash before %s the pin is there: %v", label, has)
		}
		mustPut(t, s, key, content)
		mustHaveContent(t, s, key, content)
		if label == "" {
			break
		}
	}
}

func TestParseChecksum(t *testing.T) {
	for text, want := range map[string]string{
		"MD5:" + strings.Repeat("A", 32): "md5:" + strings.Repeat("a", 32), strings.Repeat("b", 40): "sha1:" + strings.Repeat("b", 40),
		"sha512:" + strings.Repeat("0", 128): "sha512:" + strings.Repeat("0", 128),
		"md5:12":                             "", "": "", "crc32:12345678": "", "file:http://x/SHA256SUMS": "", "sha256:" + strings.Repeat("x", 64): "",
	} {
		got, err := store.ParseChecksum(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
}

func TestNewerStoreIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "version"), []byte("2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(configOf(dir)); fleet.CodeOf(err) != fleet.CodeVersion {
		t.Error(err)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"Version":1,"Key":{"Source":"x"},"SHA256":"`+strings.Repeat("0", 64)+`","Size":1}`), []byte(`{"Version":1,"Keys":["a"]}`), []byte(`{"Version":1,"Validator":"a","Size":3}`))
	f.Fuzz(func(t *testing.T, key, pins, mark []byte) {
		dir := t.TempDir()
		mustOpenStore(t, configOf(dir))
		id := store.Key{Source: "x"}.ID()
		for name, text := range map[string][]byte{
			"keys/" + id: key, "pins/alloc": pins, "partial/" + id + ".at": mark, "partial/" + id: []byte("abc"), "blobs/" + strings.Repeat("0", 64): []byte("y"),
		} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := mustOpenStore(t, configOf(dir))
		if _, err := read(s, store.Key{Source: "x"}); err == nil {
			t.Error("a content with a wrong checksum was read")
		}
		mustPut(t, s, store.Key{Source: "x"}, []byte("z"))
	})
}
