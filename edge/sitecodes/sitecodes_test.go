package sitecodes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/edge/machinekey"
	"skerry/fleet"
	"skerry/internal/codec"
	"skerry/internal/sitecode"
	"skerry/syncproto"
)

// memory is a journal in memory.
type memory struct {
	mu      sync.Mutex
	handles map[string][]byte
	floor   time.Time
	broken  error
}

func (m *memory) PutHandle(_ context.Context, _ fleet.AllocID, key string, handle []byte, _ ...fleet.Transition) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.broken != nil:
		return m.broken
	case handle == nil:
		delete(m.handles, key)
	default:
		m.handles[key] = handle
	}
	return nil
}

func (m *memory) Handles(context.Context, fleet.AllocID) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.handles), nil
}

func (m *memory) TimeFloor() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.floor.UnixNano()
}

// fixture is a Keeper with its journal, its machine and its wall clock.
type fixture struct {
	testing.TB
	journal *memory
	key     *machinekey.Key
	wall    time.Time
	*Keeper
}

var begin = time.Unix(1_800_000_000, 0)

func newFixture(tb testing.TB) *fixture {
	key, _ := machinekey.New()
	f := &fixture{TB: tb, journal: &memory{handles: map[string][]byte{}, floor: begin}, key: key, wall: begin}
	f.mustReboot()
	return f
}

// mustReboot opens the Keeper again, with nothing but the disk.
func (f *fixture) mustReboot() {
	f.Helper()
	var err error
	f.Keeper, err = Open(Config{Journal: f.journal, Sealer: f.key, Now: func() time.Time { return f.wall }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
}

// passTime lets time pass, on both clocks.
func (f *fixture) passTime(d time.Duration) {
	f.wall = f.wall.Add(d)
	f.journal.mu.Lock()
	defer f.journal.mu.Unlock()
	f.journal.floor = f.journal.floor.Add(d)
}

func (f *fixture) mustAccept(list ...syncproto.DeliveredSiteCode) (held []string) {
	f.Helper()
	all, err := f.Accept(f.Context(), list)
	if err != nil {
		f.Fatal(err)
	}
	for _, d := range all {
		held = append(held, fmt.Sprintf("%s:%d:%s", d.ID, d.ModifyIndex, strings.Join(d.Capabilities, "+")))
		if d.Hash != nil || d.Salt != nil || d.Name != "" {
			f.Errorf("more than what is known of code %s is told", d.ID)
		}
	}
	return held
}

// drawn is a code that a hub delivers, with what the person types. Its hash is cheap.
func drawn(tb testing.TB, name string, capabilities ...string) (text string, d syncproto.DeliveredSiteCode) {
	tb.Helper()
	text, id, hash, err := sitecode.Draw()
	if err != nil {
		tb.Fatal(err)
	}
	_, secret, err := sitecode.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	hash.Rounds = 10
	if hash.Hash, err = sitecode.HashSecret(secret, hash); err != nil {
		tb.Fatal(err)
	}
	return text, syncproto.DeliveredSiteCode{
		ID: id, ModifyIndex: 5, Name: name, Capabilities: capabilities, Salt: hash.Salt, Hash: hash.Hash, Rounds: hash.Rounds, Expires: begin.Add(24 * time.Hour).Unix(),
	}
}

// wrong is another code with the id of text.
func wrong(text string) string {
	last := "0"
	if strings.HasSuffix(text, last) {
		last = "1"
	}
	return text[:len(text)-1] + last
}

// mustRefuse gives a code that is refused with a message.
func (f *fixture) mustRefuse(text, message string, counts bool) {
	f.Helper()
	_, tried, err := f.Check(f.Context(), text)
	if fleet.CodeOf(err) != fleet.CodeForbidden || !strings.Contains(err.Error(), message) || tried != counts {
		f.Fatalf("tried %t, %v, not %q", tried, err, message)
	}
}

func (f *fixture) mustPass(text, name string) {
	f.Helper()
	if d, tried, err := f.Check(f.Context(), text); err != nil || !tried || d.Name != name {
		f.Fatalf("%q, tried %t, %v", d.Name, tried, err)
	}
}

// TestCodesOutliveReboots: a code that was delivered works after a reboot without a link, and nothing of it is on the disk
// in clear. A revoked one is gone, after a reboot too. What is older than what is there changes nothing.
func TestCodesOutliveReboots(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann, ofAnn := drawn(t, "Ann Marked-Name", "read", "write")
	bob, ofBob := drawn(t, "Bob")
	if got := f.mustAccept(ofAnn, ofBob); len(got) != 2 || !slices.Contains(got, ofAnn.ID+":5:read+write") {
		t.Fatalf("held %q", got)
	}
	f.mustReboot()
	f.mustPass(strings.ToUpper(ann), "Ann Marked-Name")
	f.mustPass(bob, "Bob")
	f.mustRefuse("zzzz-zzzz-zzzz", "it is wrong", true)
	for key, raw := range f.journal.handles {
		if bytes.Contains(raw, []byte("Marked")) || bytes.Contains(raw, ofAnn.Hash) {
			t.Errorf("%s is on the disk in clear", key)
		}
	}
	old := ofAnn
	old.ModifyIndex, old.Capabilities = 4, []string{"exec"}
	more := ofAnn // its policies were changed, and not the code
	more.Capabilities = []string{"read"}
	if got := f.mustAccept(more, old, syncproto.DeliveredSiteCode{ID: ofBob.ID, ModifyIndex: 4, Revoked: true}); len(got) != 2 || !slices.Contains(got, ofAnn.ID+":5:read") {
		t.Fatalf("held %q", got)
	}
	if got := f.mustAccept(syncproto.DeliveredSiteCode{ID: ofBob.ID, ModifyIndex: 6, Revoked: true}); len(got) != 1 {
		t.Fatalf("held %q", got)
	}
	for _, index := range []fleet.Index{5, 4} { // the cluster goes back before the code's last change
		if err := f.NoteIndex(t.Context(), index); err != nil {
			t.Fatal(err)
		}
		if got := f.mustAccept(old); (got[0] == ofAnn.ID+":4:exec") != (index == 4) {
			t.Errorf("after a session at index %d: %q", index, got)
		}
	}
	f.mustReboot()
	f.mustRefuse(bob, "was revoked", true)
	f.mustPass(ann, "Ann Marked-Name")
	f.key, _ = machinekey.New() // of another machine
	f.mustReboot()
	if got := f.mustAccept(); len(got) != 0 {
		t.Fatalf("another machine reads %q", got)
	}
}

// TestTriesAreBound: after five wrong tries in a row each further one costs a pause that doubles, in which the right code
// is refused, too. Neither a reboot nor the wall clock shortens it. Another code works meanwhile, and a right one ends it.
func TestTriesAreBound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann, ofAnn := drawn(t, "Ann")
	bob, ofBob := drawn(t, "Bob")
	f.mustAccept(ofAnn, ofBob)
	for range freeTries {
		f.mustRefuse(wrong(ann), "it is wrong", true)
	}
	f.mustPass(ann, "Ann")
	for range freeTries + 1 {
		f.mustRefuse(wrong(ann), "it is wrong", true)
	}
	f.mustRefuse(ann, "another 1m0s", false)
	f.mustReboot()
	f.mustRefuse(ann, "after 6 wrong tries", false)
	f.wall = f.wall.Add(24 * 365 * time.Hour)
	f.mustRefuse(ann, "another 1m0s", false)
	f.wall = begin
	f.mustPass(bob, "Bob")
	f.passTime(time.Minute)
	f.mustRefuse(wrong(ann), "it is wrong", true)
	f.passTime(time.Minute)
	f.mustRefuse(ann, "another 1m0s", false)
	f.passTime(time.Minute)
	f.mustPass(ann, "Ann")
	f.mustRefuse(wrong(ann), "it is wrong", true)
	f.mustPass(ann, "Ann")
	for i := range freeTries + 1 { // codes that are not here have one bound together
		f.mustRefuse(fmt.Sprintf("zzz%d-zzzz-zzzz", i), "it is wrong", true)
	}
	f.mustRefuse("zzzz-zzzz-zzzz", "another 1m0s", false)
	f.mustPass(ann, "Ann")
}

// TestNoTryIsFree: a try that cannot be journaled is not answered, also not of the right code.
func TestNoTryIsFree(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann, ofAnn := drawn(t, "Ann")
	f.mustAccept(ofAnn)
	f.journal.broken = errors.New("the disk is gone")
	for _, text := range []string{ann, wrong(ann)} {
		if _, tried, err := f.Check(t.Context(), text); !errors.Is(err, f.journal.broken) || tried {
			t.Errorf("tried %t, %v", tried, err)
		}
	}
	f.journal.broken = nil
	if _, tried, err := f.Check(t.Context(), "not a code"); fleet.CodeOf(err) != fleet.CodeInvalid || tried {
		t.Errorf("tried %t, %v", tried, err)
	}
	f.journal.handles[triesKey] = []byte("damaged")
	f.mustReboot()
	f.mustRefuse(ann, "it has to wait", false)
	f.passTime(time.Minute)
	f.mustPass(ann, "Ann")
}

// TestCodesEnd: a code is refused from its end on, also if the wall clock is put back afterwards, and is forgotten once it
// has certainly ended.
func TestCodesEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann, ofAnn := drawn(t, "Ann")
	f.mustAccept(ofAnn)
	f.passTime(24*time.Hour - time.Second)
	f.mustPass(ann, "Ann")
	f.wall = f.wall.Add(time.Second)
	f.mustRefuse(ann, "it ended at 2027-01-16T08:00:00Z", true)
	if got := f.mustAccept(); len(got) != 1 {
		t.Fatalf("held %q while only the wall clock says that it has ended", got)
	}
	f.passTime(time.Second)
	f.wall = begin
	f.mustRefuse(ann, "it ended at", true)
	if got := f.mustAccept(); len(got) != 0 {
		t.Fatalf("held %q", got)
	}
}

// TestDeliveriesAreChecked refuses codes that are no codes, and more than the bound.
func TestDeliveriesAreChecked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, good := drawn(t, "Ann")
	for _, change := range []func(d *syncproto.DeliveredSiteCode){
		func(d *syncproto.DeliveredSiteCode) { d.ID = "../.." }, func(d *syncproto.DeliveredSiteCode) { d.Name = "" },
		func(d *syncproto.DeliveredSiteCode) { d.Rounds = sitecode.MaxRounds + 1 }, func(d *syncproto.DeliveredSiteCode) { d.Hash = nil },
		func(d *syncproto.DeliveredSiteCode) { d.Name = strings.Repeat("n", 1000) },
	} {
		bad := good
		change(&bad)
		if _, err := f.Accept(t.Context(), []syncproto.DeliveredSiteCode{bad}); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for i := range syncproto.MaxSiteCodes + 1 {
		good.ID = fmt.Sprintf("z%03d", i)
		if _, err := f.Accept(t.Context(), []syncproto.DeliveredSiteCode{good}); (err != nil) != (i == syncproto.MaxSiteCodes) {
			t.Fatalf("code %d: %v", i, err)
		}
	}
}

// TestUnknownCodesTakeAsLong: the check of a code that the edge does not have costs what those that it has cost.
func TestUnknownCodesTakeAsLong(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if got := f.standIn(); got.Rounds != sitecode.Rounds {
		t.Errorf("without codes %d rounds", got.Rounds)
	}
	_, ofAnn := drawn(t, "Ann")
	f.mustAccept(ofAnn)
	if got := f.standIn(); got.Rounds != ofAnn.Rounds {
		t.Errorf("with a code %d rounds, and its has %d", got.Rounds, ofAnn.Rounds)
	}
}

func TestPauses(t *testing.T) {
	t.Parallel()
	for wrong, want := range map[int]time.Duration{
		0: 0, 5: 0, 6: time.Minute, 7: 2 * time.Minute, 8: 4 * time.Minute, 16: 1024 * time.Minute, 17: longestPause, 1 << 30: longestPause,
	} {
		if got := pauseAfter(wrong); got != want {
			t.Errorf("after %d wrong tries: %s, not %s", wrong, got, want)
		}
	}
}

// FuzzDecodeRecord: no bytes make it panic, and it accepts no record of another code, and none that costs too much.
func FuzzDecodeRecord(f *testing.F) {
	good, err := codec.Marshal(record{1, syncproto.DeliveredSiteCode{ID: "k7m2", Name: "Ann", Salt: make([]byte, 16), Hash: make([]byte, 32), Rounds: 1, Expires: 2}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, plain []byte) {
		d, err := decodeRecord("sitecode/k7m2", plain)
		if err == nil && (d.ID != "k7m2" || d.Rounds > sitecode.MaxRounds || len(d.Hash) != 32) {
			t.Fatalf("%+v", d)
		}
	})
}

// FuzzDecodeTries: no bytes make it panic, and no count that it accepts gives tries away.
func FuzzDecodeTries(f *testing.F) {
	good, err := codec.Marshal(triesRecord{1, map[string]tries{"k7m2": {Wrong: 6, Until: 5}, unknownID: {Wrong: 1}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, plain []byte) {
		all, err := decodeTries(plain)
		for id, one := range all {
			if err == nil && (one.Wrong < 1 || pauseAfter(one.Wrong) < 0) {
				t.Fatalf("%s: %+v", id, one)
			}
		}
	})
}
