package variables

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/machinekey"
	"skerry/fleet"
	"skerry/internal/codec"
	"skerry/syncproto"
)

// memory is a journal in memory.
type memory struct {
	mu      sync.Mutex
	handles map[string][]byte
}

func (m *memory) PutHandle(_ context.Context, _ fleet.AllocID, key string, handle []byte, _ ...fleet.Transition) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if handle == nil {
		delete(m.handles, key)
	} else {
		m.handles[key] = handle
	}
	return nil
}

func (m *memory) Handles(context.Context, fleet.AllocID) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.handles), nil
}

func mustOpen(tb testing.TB, m *memory, key *machinekey.Key, read func(path string) bool) *Keeper {
	tb.Helper()
	k, err := Open(Config{
		Journal: m, Sealer: key, Log: slog.New(slog.DiscardHandler),
		Read: func(_ context.Context, _, path string) (bool, error) { return read(path), nil },
	})
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

func delivered(path, value string) syncproto.DeliveredVariable {
	items, err := syncproto.EncodeItems(map[string]string{"k": value})
	if err != nil {
		panic(err) // plain texts
	}
	return syncproto.DeliveredVariable{Namespace: "default", Path: path, ModifyIndex: 3, Items: items}
}

func mustAccept(tb testing.TB, k *Keeper, list ...syncproto.DeliveredVariable) {
	tb.Helper()
	if err := k.Accept(tb.Context(), list); err != nil {
		tb.Fatal(err)
	}
}

func held(k *Keeper) string {
	var out []string
	for _, n := range k.sortedNames() {
		items, _ := k.Variable(n.namespace, n.path)
		out = append(out, n.path+"="+items["k"])
	}
	return strings.Join(out, " ")
}

func TestVariablesOutliveARestart(t *testing.T) {
	m := &memory{handles: map[string][]byte{"prefetch/x": {1}}}
	key, text := machinekey.New()
	k := mustOpen(t, m, key, nil)
	mustAccept(t, k, delivered("nomad/jobs/a", "geheim"), delivered("nomad/jobs/b", "x"), delivered("nomad/jobs/c", "y"))
	mustAccept(t, k, delivered("nomad/jobs/b", "z"), syncproto.DeliveredVariable{Namespace: "default", Path: "nomad/jobs/c", Deleted: true})
	for name, raw := range m.handles {
		if bytes.Contains(raw, []byte("geheim")) {
			t.Errorf("%s is in clear", name)
		}
	}
	again, err := machinekey.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	k = mustOpen(t, m, again, nil)
	if got := held(k); got != "nomad/jobs/a=geheim nomad/jobs/b=z" {
		t.Fatal(got)
	}
	other, _ := machinekey.New()
	if got := held(mustOpen(t, m, other, nil)); got != "" {
		t.Fatalf("with another key: %s", got)
	}
	m.handles["variable/default/nomad/jobs/x"] = m.handles["variable/default/nomad/jobs/b"]
	if got := held(mustOpen(t, m, key, nil)); got != "nomad/jobs/a=geheim nomad/jobs/b=z" {
		t.Fatalf("a record of another path: %s", got)
	}
	if err := k.Accept(t.Context(), []syncproto.DeliveredVariable{delivered("a.b", "x")}); fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Fatal(err)
	}
}

// TestDeletions: an edge forgets a variable that was deleted, unless its own is newer than the deletion, and keeps those
// of which the hub says nothing.
func TestDeletions(t *testing.T) {
	m := &memory{handles: map[string][]byte{}}
	key, _ := machinekey.New()
	k := mustOpen(t, m, key, nil)
	deleted := func(path string, at fleet.Index) syncproto.DeliveredVariable {
		return syncproto.DeliveredVariable{Namespace: "default", Path: path, ModifyIndex: at, Deleted: true}
	}
	mustAccept(t, k, delivered("a", "1"), delivered("b", "2"), delivered("c", "3")) // changed at index 3
	mustAccept(t, k)
	mustAccept(t, k, deleted("a", 2), deleted("unknown", 9))
	k = mustOpen(t, m, key, nil) // the index is known after a restart
	mustAccept(t, k, deleted("b", 2))
	if got := held(k); got != "a=1 b=2 c=3" {
		t.Fatalf("after older deletions the edge has %q", got)
	}
	mustAccept(t, k, deleted("a", 4), deleted("b", 0))
	if got := held(mustOpen(t, m, key, nil)); got != "c=3" {
		t.Fatalf("after the deletions the edge has %q", got)
	}
}

// TestDeletionsAfterARestore has the cluster go back: its indexes begin anew. A deletion from before the restore is older than what
// the edge has, one from after it is newer.
func TestDeletionsAfterARestore(t *testing.T) {
	m := &memory{handles: map[string][]byte{}}
	key, _ := machinekey.New()
	k := mustOpen(t, m, key, nil)
	at := func(d syncproto.DeliveredVariable, index fleet.Index) syncproto.DeliveredVariable {
		d.ModifyIndex = index
		return d
	}
	deleted := func(path string, index fleet.Index) syncproto.DeliveredVariable {
		return syncproto.DeliveredVariable{Namespace: "default", Path: path, ModifyIndex: index, Deleted: true}
	}
	mustAccept(t, k, at(delivered("a", "1"), 90), at(delivered("b", "2"), 91), at(delivered("c", "3"), 10))
	if err := k.NoteIndex(t.Context(), 50); err != nil {
		t.Fatal(err)
	}
	k = mustOpen(t, m, key, nil) // it is known after a restart
	mustAccept(t, k, deleted("a", 40), deleted("b", 60), deleted("c", 9))
	if got := held(k); got != "a=1 c=3" {
		t.Errorf("the edge has %q", got)
	}
}

// TestAgeOfVariables: an edge knows when the items of a variable were stored, also after a restart and after the cluster went back. It
// tells that without the items.
func TestAgeOfVariables(t *testing.T) {
	m := &memory{handles: map[string][]byte{}}
	key, _ := machinekey.New()
	k := mustOpen(t, m, key, nil)
	timed := delivered("nomad/jobs/a", "geheim")
	timed.ModifyTime = 1_700_000_000_000_000_001
	mustAccept(t, k, timed, delivered("nomad/jobs/b", "of an older hub"), delivered("nomad/jobs/c", "not asked for"))
	want := func(indexOfA, indexOfB fleet.Index) {
		t.Helper()
		want := []fleet.VariableMeta{
			{Namespace: "default", Path: "nomad/jobs/b", ModifyIndex: indexOfB},
			{Namespace: "default", Path: "nomad/jobs/a", ModifyIndex: indexOfA, ModifyTime: timed.ModifyTime},
		}
		if got := k.Kept("default", []string{"nomad/jobs/b", "nomad/jobs/none", "nomad/jobs/a"}); !slices.Equal(got, want) {
			t.Errorf("kept %+v, want %+v", got, want)
		}
	}
	want(3, 3)
	if err := k.NoteIndex(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	want(2, 2)
	k = mustOpen(t, m, key, nil)
	want(2, 2)
	if got := k.Kept("another", []string{"nomad/jobs/a"}); len(got) != 0 {
		t.Errorf("in another namespace: %+v", got)
	}
}

// TestUnreadVariablesAreForgotten: a variable is kept for a while before its allocation arrives, as long as one may read
// it, and not longer.
func TestUnreadVariablesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{handles: map[string][]byte{}}
		key, _ := machinekey.New()
		var mu sync.Mutex
		read := map[string]bool{}
		k := mustOpen(t, m, key, func(path string) bool { mu.Lock(); defer mu.Unlock(); return read[path] })
		set := func(path string, may bool) { mu.Lock(); defer mu.Unlock(); read[path] = may }
		go k.Run(t.Context())
		mustAccept(t, k, delivered("nomad/jobs/a", "1"), delivered("nomad/jobs/b", "2"))
		want := func(after time.Duration, text string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := held(k); got != text {
				t.Fatalf("held %q, want %q", got, text)
			}
		}
		want(time.Minute, "nomad/jobs/a=1 nomad/jobs/b=2")
		set("nomad/jobs/a", true)
		want(2*time.Minute, "nomad/jobs/a=1")
		want(24*time.Hour, "nomad/jobs/a=1")
		set("nomad/jobs/a", false)
		want(forgetPoll, "")
		if len(m.handles) != 0 {
			t.Fatalf("the journal has %v", m.handles)
		}
	})
}

// FuzzDecodeRecord: no bytes make it panic, and it accepts no record of another path.
func FuzzDecodeRecord(f *testing.F) {
	good, err := codec.Marshal(record{1, "default", "nomad/jobs", 3, map[string]string{"a": "b"}, 5})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, plain []byte) {
		r, err := decodeRecord("variable/default/nomad/jobs", plain)
		if err == nil && (name{r.Namespace, r.Path}).journalKey() != "variable/default/nomad/jobs" {
			t.Fatalf("%+v", r)
		}
	})
}
