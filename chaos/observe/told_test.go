package observe_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"skerry/chaos/check"
	"skerry/chaos/observe"
	"skerry/fleet"
	"skerry/hub/consensus"
	"skerry/hub/state"
)

// checkToldEntry checks that an entry is the same after it went through a file.
func (p *pair) checkToldEntry(a consensus.Applied) {
	p.tb.Helper()
	path := filepath.Join(p.tb.TempDir(), "told")
	teller := mustOpenWriter(p.tb, path)
	if err := teller.WriteEntry(a); err != nil {
		p.tb.Fatal(err)
	}
	if err := teller.Close(); err != nil {
		p.tb.Fatal(err)
	}
	read := mustRead(p.tb, observe.NewEntryReader("hub-1", path), true)
	want := observe.Applied("hub-1", a, true)
	if len(read) != 1 || text(p.tb, read[0]) != text(p.tb, want) || !reflect.DeepEqual(read[0].Effects.Rollouts, want.Effects.Rollouts) {
		p.tb.Errorf("entry %d was told as %s, want %s", a.Index, text(p.tb, read), text(p.tb, want))
	}
}

func mustOpenWriter(tb testing.TB, path string) *observe.EntryWriter {
	tb.Helper()
	t, err := observe.NewEntryWriter("hub-1", path)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func mustRead(tb testing.TB, t *observe.EntryReader, wants bool) (all []*check.Applied) {
	tb.Helper()
	if err := t.Next(func(fleet.Index) bool { return wants }, func(a *check.Applied) { all = append(all, a) }); err != nil {
		tb.Fatal(err)
	}
	return all
}

func text(tb testing.TB, v any) string {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// TestToldOverAKill reads the entries of a hub that is killed in the middle of a line, and goes on with a later entry
// when it is back.
func TestToldOverAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "told")
	told, store := observe.NewEntryReader("hub-1", path), state.New()
	if got := mustRead(t, told, true); len(got) != 0 {
		t.Fatalf("of a hub that was never started: %v", got)
	}
	entry := func(index fleet.Index) consensus.Applied {
		c := state.Evals{Now: 7}
		return consensus.Applied{Index: index, Term: 2, Command: c, Result: store.Apply(index, c), View: store.View()}
	}
	first := mustOpenWriter(t, path)
	for i := range fleet.Index(2) {
		if err := first.WriteEntry(entry(i + 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()-20)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := mustRead(t, told, false); len(got) != 1 || got[0].Index != 1 || got[0].Effects != nil {
		t.Fatalf("up to the kill: %s", text(t, got))
	}
	second := mustOpenWriter(t, path)
	if err := second.WriteEntry(entry(3)); err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if got := mustRead(t, told, true); len(got) != 1 || got[0].Index != 3 || got[0].Effects == nil {
		t.Fatalf("after the kill: %s", text(t, got))
	}
	if got := mustRead(t, told, true); len(got) != 0 {
		t.Fatalf("told twice: %s", text(t, got))
	}
	other := observe.NewEntryReader("hub-2", path)
	if err := other.Next(func(fleet.Index) bool { return true }, func(*check.Applied) {}); err == nil {
		t.Error("what hub-1 tells was taken for what hub-2 does")
	}
}
