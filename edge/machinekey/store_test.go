package machinekey_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/machinekey"
	"skerry/fleet"
	"skerry/internal/datadir"
)

// fakeKeeper seals by a number that stands for its machine, and fails at the call whose number is failAt.
type fakeKeeper struct {
	place   machinekey.Place
	machine byte
	absent  bool
	failAt  int
	calls   int
	wrong   bool // it gives back another key
}

func (f *fakeKeeper) Place() machinekey.Place { return f.place }

func (f *fakeKeeper) call() error {
	if f.calls++; f.calls == f.failAt {
		return errors.New("the chip is broken")
	}
	if f.absent {
		return fmt.Errorf("open the chip: %w", machinekey.ErrAbsent)
	}
	return nil
}

func (f *fakeKeeper) flip(b []byte) []byte {
	b = bytes.Clone(b)
	for i := range b {
		b[i] ^= 0xa5 ^ f.machine
	}
	return b
}

func (f *fakeKeeper) Seal(plain []byte) ([]byte, error) {
	if err := f.call(); err != nil {
		return nil, err
	}
	return append([]byte{f.machine}, f.flip(plain)...), nil
}

func (f *fakeKeeper) Unseal(sealed []byte) ([]byte, error) {
	if err := f.call(); err != nil {
		return nil, err
	}
	if sealed[0] != f.machine {
		return nil, fmt.Errorf("open the seal: %w", machinekey.ErrForeign)
	}
	plain := f.flip(sealed[1:])
	if f.wrong {
		plain[0] ^= 1
	}
	return plain, nil
}

func tpmOf(machine byte) *fakeKeeper {
	return &fakeKeeper{place: machinekey.PlaceTPM, machine: machine}
}

// start opens the store of a data directory, as an agent does at its start. step may fail or panic.
func start(tb testing.TB, dir string, wanted machinekey.Place, step func(string) error, keepers ...machinekey.Keeper) (*machinekey.Store, error) {
	tb.Helper()
	d, err := datadir.Open(dir, datadir.Kind{Owner: "an edge", Version: 1})
	if err != nil {
		tb.Fatal(err)
	}
	defer d.Close()
	if step != nil { // not for the files that opening the directory writes
		if err := d.Close(); err != nil {
			tb.Fatal(err)
		}
		if d, err = datadir.Open(dir, datadir.Kind{Owner: "an edge", Version: 1, Step: step}); err != nil {
			tb.Fatal(err)
		}
		defer d.Close()
	}
	return machinekey.Open(machinekey.Config{Dir: d, Keepers: keepers, Wanted: wanted, Step: step, Log: slog.New(slog.DiscardHandler)})
}

func mustStart(tb testing.TB, dir string, wanted machinekey.Place, keepers ...machinekey.Keeper) *machinekey.Store {
	tb.Helper()
	s, err := start(tb, dir, wanted, nil, keepers...)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// isSame reports whether two stores have one key.
func isSame(a, b *machinekey.Store) bool {
	plain, err := b.Key().Open(a.Key().Seal([]byte("x"), nil), nil)
	return err == nil && string(plain) == "x"
}

// filesInClear returns the files that have a key in clear.
func filesInClear(tb testing.TB, dir string) (names []string) {
	tb.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "identity", "*"))
	if err != nil {
		tb.Fatal(err)
	}
	hidden, err := filepath.Glob(filepath.Join(dir, "identity", ".*"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, path := range append(all, hidden...) {
		if text, err := os.ReadFile(path); err != nil || bytes.Contains(text, []byte("machine-key-1")) {
			names = append(names, filepath.Base(path))
		}
	}
	return names
}

// TestKeyOfANewDirectory: auto takes the first place that works, and a new directory without the wanted place is refused.
func TestKeyOfANewDirectory(t *testing.T) {
	credential := func() *fakeKeeper { return &fakeKeeper{place: machinekey.PlaceCredential, machine: 9} }
	absent := tpmOf(1)
	absent.absent = true
	for name, tc := range map[string]struct {
		wanted  machinekey.Place
		keepers []machinekey.Keeper
		want    machinekey.Place // "": refused
	}{
		"nothing":            {"", nil, machinekey.PlaceFile},
		"a TPM":              {"", []machinekey.Keeper{tpmOf(1), credential()}, machinekey.PlaceTPM},
		"no TPM":             {"", []machinekey.Keeper{absent, credential()}, machinekey.PlaceCredential},
		"a broken one":       {"", []machinekey.Keeper{&fakeKeeper{place: machinekey.PlaceTPM, failAt: 1}}, machinekey.PlaceFile},
		"one that forgets":   {"", []machinekey.Keeper{&fakeKeeper{place: machinekey.PlaceTPM, failAt: 2}}, machinekey.PlaceFile},
		"one that lies":      {"", []machinekey.Keeper{&fakeKeeper{place: machinekey.PlaceTPM, wrong: true}}, machinekey.PlaceFile},
		"wanted":             {machinekey.PlaceCredential, []machinekey.Keeper{tpmOf(1), credential()}, machinekey.PlaceCredential},
		"the file is wanted": {machinekey.PlaceFile, []machinekey.Keeper{tpmOf(1)}, machinekey.PlaceFile},
		"wanted and absent":  {machinekey.PlaceTPM, []machinekey.Keeper{absent, credential()}, ""},
		"wanted and unknown": {machinekey.PlaceTPM, nil, ""},
	} {
		dir := t.TempDir()
		s, err := start(t, dir, tc.wanted, nil, tc.keepers...)
		if tc.want == "" {
			if left, _ := filepath.Glob(filepath.Join(dir, "identity", "*")); err == nil || len(left) > 0 {
				t.Errorf("%s: %v, and left %q", name, err, left)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := s.Status(); got != (machinekey.Status{Place: tc.want}) {
			t.Errorf("%s: %+v", name, got)
		}
		if clear := filesInClear(t, dir); (len(clear) > 0) != (tc.want == machinekey.PlaceFile) {
			t.Errorf("%s: in clear are %q", name, clear)
		}
		for _, k := range tc.keepers {
			k.(*fakeKeeper).wrong = false
		}
		if again := mustStart(t, dir, "", tc.keepers...); !isSame(s, again) || again.Status().Place != tc.want {
			t.Errorf("%s: after a restart: %+v", name, again.Status())
		}
	}
}

// TestKeyMoves: a start with another place moves the key, which stays the same, and nothing in clear is left behind. Without a
// wanted place the key stays where it is. A move that fails at any call of the chip changes nothing.
func TestKeyMoves(t *testing.T) {
	dir := t.TempDir()
	tpm, credential := tpmOf(1), &fakeKeeper{place: machinekey.PlaceCredential, machine: 9}
	first := mustStart(t, dir, machinekey.PlaceFile, tpm, credential)
	for _, to := range []machinekey.Place{machinekey.PlaceTPM, "", machinekey.PlaceCredential, machinekey.PlaceTPM, machinekey.PlaceFile, "", machinekey.PlaceTPM} {
		want := to
		if to == "" {
			want = mustStart(t, dir, "", tpm, credential).Status().Place
		}
		s := mustStart(t, dir, to, tpm, credential)
		if got := s.Status(); got != (machinekey.Status{Place: want}) || !isSame(first, s) {
			t.Fatalf("moved to %q: %+v", to, got)
		}
		left, err := os.ReadDir(filepath.Join(dir, "identity"))
		if err != nil || len(left) != 1 || (len(filesInClear(t, dir)) > 0) != (want == machinekey.PlaceFile) {
			t.Fatalf("moved to %q: %v is left, %v", to, left, err)
		}
	}
	for call := range 2 {
		dir := t.TempDir()
		first := mustStart(t, dir, "")
		s := mustStart(t, dir, machinekey.PlaceTPM, &fakeKeeper{place: machinekey.PlaceTPM, failAt: call + 1})
		if got := s.Status(); got.Place != machinekey.PlaceFile || got.Wanted != machinekey.PlaceTPM || !strings.Contains(got.Error, "the chip is broken") || !isSame(first, s) {
			t.Errorf("call %d fails: %+v", call, got)
		}
		if clear := filesInClear(t, dir); !slices.Equal(clear, []string{"machine-key"}) {
			t.Errorf("call %d fails: in clear are %q", call, clear)
		}
	}
}

// TestAMoveIsCutOff: at each step of a move the disk fails or the agent is killed. The key is there at the next start, and
// once that has moved it, nothing in clear is left behind.
func TestAMoveIsCutOff(t *testing.T) {
	steps := []string{machinekey.StepAside, datadir.StepWrite, machinekey.StepErase}
	for _, label := range steps {
		for _, killed := range []bool{false, true} {
			dir := t.TempDir()
			first := mustStart(t, dir, "")
			seen := 0
			func() {
				defer func() { _ = recover() }()
				s, err := start(t, dir, machinekey.PlaceTPM, func(l string) error {
					if l != label {
						return nil
					}
					if seen++; killed {
						panic("killed")
					}
					return errors.New("the disk fails")
				}, tpmOf(1))
				if err != nil || !isSame(first, s) {
					t.Errorf("%s fails: %v", label, err)
				}
			}()
			if seen == 0 {
				t.Errorf("%s: the step was not reached", label)
			}
			if s := mustStart(t, dir, "", tpmOf(1)); !isSame(first, s) || s.Status().Error != "" {
				t.Errorf("%s, killed %t: the key is another one: %+v", label, killed, s.Status())
			}
			if s := mustStart(t, dir, machinekey.PlaceTPM, tpmOf(1)); !isSame(first, s) || s.Status().Place != machinekey.PlaceTPM {
				t.Errorf("%s, killed %t: moved later: %+v", label, killed, s.Status())
			}
			left, err := os.ReadDir(filepath.Join(dir, "identity"))
			if err != nil || len(left) != 1 || len(filesInClear(t, dir)) > 0 {
				t.Errorf("%s, killed %t: %v is left, %v", label, killed, left, err)
			}
		}
	}
}

// TestRestsAreErased: files that a killed agent was writing, or had half erased, are gone after the next start.
func TestRestsAreErased(t *testing.T) {
	dir := t.TempDir()
	first := mustStart(t, dir, machinekey.PlaceTPM, tpmOf(1))
	_, text := machinekey.New()
	for name, content := range map[string][]byte{".machine-key.17": text, "machine-key.old": make([]byte, len(text))} {
		if err := os.WriteFile(filepath.Join(dir, "identity", name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s := mustStart(t, dir, "", tpmOf(1)); !isSame(first, s) {
		t.Errorf("the key is another one: %+v", s.Status())
	}
	if left, err := os.ReadDir(filepath.Join(dir, "identity")); err != nil || len(left) != 1 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestLostKey: an edge starts without its key, with another one in memory. A key that is lost is replaced when a hub has
// answered and not before; one that is out of reach is kept, and is there again at a later start.
func TestLostKey(t *testing.T) {
	absent := tpmOf(1)
	absent.absent = true
	for name, tc := range map[string]struct {
		wanted   machinekey.Place
		keeper   *fakeKeeper
		damage   string
		replaced machinekey.Place // after an answer; "": it is not
	}{
		"another machine":             {"", tpmOf(2), "", machinekey.PlaceTPM},
		"a file is wanted":            {machinekey.PlaceFile, absent, "", machinekey.PlaceFile},
		"no TPM":                      {"", absent, "", ""},
		"no TPM, and it is wanted":    {machinekey.PlaceTPM, absent, "", ""},
		"the TPM fails":               {"", &fakeKeeper{place: machinekey.PlaceTPM, machine: 1, failAt: 1}, "", ""},
		"damaged":                     {"", tpmOf(1), "skerry-machine-key-2 tpm !", machinekey.PlaceTPM},
		"sealed by an unknown way":    {"", tpmOf(1), "skerry-machine-key-2 magic AAAA", machinekey.PlaceTPM},
		"a key of another length":     {"", tpmOf(1), "skerry-machine-key-2 tpm " + base64.StdEncoding.EncodeToString([]byte{1, 2, 3}), machinekey.PlaceTPM},
		"in clear, of another length": {"", tpmOf(1), "skerry-machine-key-1 AAAA", machinekey.PlaceTPM},
	} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			first := mustStart(t, dir, machinekey.PlaceTPM, tpmOf(1))
			path := filepath.Join(dir, "identity", "machine-key")
			if tc.damage != "" {
				if err := os.WriteFile(path, []byte(tc.damage), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			before, _ := os.ReadFile(path)
			d, err := datadir.Open(dir, datadir.Kind{Owner: "an edge", Version: 1})
			if err != nil {
				t.Fatal(err)
			}
			s, err := machinekey.Open(machinekey.Config{Dir: d, Keepers: []machinekey.Keeper{tc.keeper}, Wanted: tc.wanted, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(name, err)
			}
			if got := s.Status(); got.Place != machinekey.PlaceMemory || got.Error == "" || isSame(first, s) {
				t.Errorf("%s: %+v", name, got)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			synctest.Wait()
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, before) {
				t.Errorf("%s: before a hub answered the file became %q, %v", name, now, err)
			}
			s.NoteAnswer()
			s.NoteAnswer()
			synctest.Wait()
			cancel()
			if err := errors.Join(<-done, d.Close()); err != nil {
				t.Error(name, err)
			}
			if tc.replaced == "" {
				if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, before) || s.Status().Place != machinekey.PlaceMemory {
					t.Errorf("%s: the file became %q, %v", name, now, err)
				}
				if again := mustStart(t, dir, "", tpmOf(1)); !isSame(first, again) {
					t.Errorf("%s: the key is not there again", name)
				}
				return
			}
			if got := s.Status(); got != (machinekey.Status{Place: tc.replaced}) {
				t.Errorf("%s: after an answer: %+v", name, got)
			}
			if again := mustStart(t, dir, "", tc.keeper); !isSame(s, again) {
				t.Errorf("%s: the key that replaced it was not kept", name)
			}
		})
	}
}

// TestReplacementIsTriedAgain: a chip that fails when the lost key is to be replaced is asked again a minute later.
func TestReplacementIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		mustStart(t, dir, machinekey.PlaceTPM, tpmOf(1))
		d, err := datadir.Open(dir, datadir.Kind{Owner: "an edge", Version: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		s, err := machinekey.Open(machinekey.Config{
			Dir: d, Keepers: []machinekey.Keeper{&fakeKeeper{place: machinekey.PlaceTPM, machine: 2, failAt: 2}}, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		s.NoteAnswer()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := s.Run(ctx); err != nil || s.Status() != (machinekey.Status{Place: machinekey.PlaceTPM}) {
			t.Errorf("%+v, %v", s.Status(), err)
		}
	})
}

// TestKeyOfARevokedEdge: once the edge is revoked, the running agent alone has the key; after it, nothing can be decrypted.
func TestKeyOfARevokedEdge(t *testing.T) {
	for _, place := range []machinekey.Place{machinekey.PlaceFile, machinekey.PlaceTPM} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			chip := tpmOf(1)
			mustStart(t, dir, place, chip)
			d, err := datadir.Open(dir, datadir.Kind{Owner: "an edge", Version: 1})
			if err != nil {
				t.Fatal(err)
			}
			s, err := machinekey.Open(machinekey.Config{Dir: d, Keepers: []machinekey.Keeper{chip}, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			sealed := s.Key().Seal([]byte("a secret"), nil)
			s.NoteRevoked()
			s.NoteRevoked()
			if err := errors.Join(s.Run(t.Context()), d.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Key().Open(sealed, nil); err != nil {
				t.Errorf("at %s, the running agent: %v", place, err)
			}
			again := mustStart(t, dir, "", chip)
			if _, err := again.Key().Open(sealed, nil); err == nil || again.Status().Place != place {
				t.Errorf("at %s, the next agent has the key: %+v, %v", place, again.Status(), err)
			}
		})
	}
}

// TestCredential: the credential that sealed the key opens it, and every other one is an error that says what to do.
func TestCredential(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, machinekey.CredentialName)
	c := machinekey.NewCredential(dir)
	mustWrite := func(secret []byte) {
		t.Helper()
		if err := os.WriteFile(path, secret, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Seal([]byte("key")); !errors.Is(err, machinekey.ErrAbsent) || !strings.Contains(err.Error(), "LoadCredentialEncrypted") {
		t.Errorf("no credential: %v", err)
	}
	if _, err := machinekey.NewCredential("").Unseal(nil); !errors.Is(err, machinekey.ErrAbsent) {
		t.Errorf("no folder: %v", err)
	}
	mustWrite(bytes.Repeat([]byte{7}, 31))
	if _, err := c.Seal([]byte("key")); fleet.CodeOf(err) != fleet.CodeInvalid || errors.Is(err, machinekey.ErrAbsent) {
		t.Errorf("a short credential: %v", err)
	}
	mustWrite(bytes.Repeat([]byte{7}, 32))
	sealed, err := c.Seal([]byte("key"))
	if err != nil || bytes.Contains(sealed, []byte("key")) {
		t.Fatal(sealed, err)
	}
	if plain, err := c.Unseal(sealed); err != nil || string(plain) != "key" {
		t.Errorf("%q, %v", plain, err)
	}
	mustWrite(bytes.Repeat([]byte{8}, 32))
	if _, err := c.Unseal(sealed); !errors.Is(err, machinekey.ErrForeign) {
		t.Errorf("another credential: %v", err)
	}
	mustWrite(bytes.Repeat([]byte{7}, 1<<20+1))
	if _, err := c.Unseal(sealed); fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Errorf("a huge credential: %v", err)
	}
}
