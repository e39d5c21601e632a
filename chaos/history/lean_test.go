package history_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/fleet"
)

// TestAHubIsWrittenAsItChanges checks that what a hub holds is whole again when it
// is read, and that what did not change takes no place.
func TestAHubIsWrittenAsItChanges(t *testing.T) {
	with := func(index fleet.Index, change func(*check.Hub)) history.Record {
		h := hub(index)
		change(h)
		return seen(0, check.Observation{Hub: h})
	}
	same := func(*check.Hub) {}
	records := []history.Record{
		with(10, same),
		with(11, same),
		with(12, func(h *check.Hub) {
			h.Allocs[0].ClientStatus, h.Allocs[0].ModifyIndex = fleet.ClientUnknown, 12
			h.Nodes = append(h.Nodes, fleet.Node{ID: "n2", ModifyIndex: 12})
		}),
		with(13, func(h *check.Hub) { h.Nodes, h.Evals = nil, nil }),
		seen(0, check.Observation{Process: &check.Process{Name: "hub-1", What: check.ProcessStart}}),
		// It was put back to an older copy: the index that was known says something else.
		with(14, func(h *check.Hub) { h.Allocs[0].ClientStatus, h.Allocs[0].ModifyIndex = fleet.ClientLost, 12 }),
		with(15, same),
		at(0, end),
	}
	text := mustWrite(t, header, records)
	got, err := readAll(mustOpen(t, text))
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		if !reflect.DeepEqual(got[i], records[i]) {
			t.Errorf("record %d: got %+v, want %+v", i, got[i].Hub, records[i].Hub)
		}
	}
	lines := bytes.Split(text, []byte("\n"))
	if n := len(lines[2]); n > 100 {
		t.Errorf("what did not change takes %d bytes: %s", n, lines[2])
	}
	if n := bytes.Count(text, []byte(`"TaskGroups"`)); n != 1 {
		t.Errorf("the body of the job's version is there %d times", n)
	}
}

func TestWhatIsWrittenStaysAsItWas(t *testing.T) {
	h := hub(10)
	mustWrite(t, header, []history.Record{seen(0, check.Observation{Hub: h})})
	if !reflect.DeepEqual(h, hub(10)) {
		t.Errorf("writing changed the record: %+v", h)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	var sizes []int64
	for _, name := range []string{"run.jsonl", "run.jsonl.gz"} {
		path := filepath.Join(dir, name)
		w, err := history.Create(path, header)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range everything() {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := history.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(r)
		if err != nil || !reflect.DeepEqual(got, everything()) {
			t.Errorf("%s: %v, %d records", name, err, len(got))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, info.Size())
	}
	if sizes[1] >= sizes[0] {
		t.Errorf("compressed it has %d bytes, else %d", sizes[1], sizes[0])
	}
	if _, err := history.Open(filepath.Join(dir, "none")); err == nil {
		t.Error("a file that is not there was opened")
	}
}

// TestAnEdgeThatStandsStillIsWrittenShort checks that looks at an edge are whole
// again when they are read, and that those that found nothing new take little place.
func TestAnEdgeThatStandsStillIsWrittenShort(t *testing.T) {
	look := func(at time.Duration, change func(*check.Edge)) history.Record {
		e := &check.Edge{
			Name: "edge-1", NodeID: "n1",
			Link: &check.Link{Connected: true, Session: 3, Epoch: 4, Status: fleet.NodeReady}, Journal: &check.Journal{First: 1, Last: 9, Acknowledged: 9},
		}
		change(e)
		return seen(at, check.Observation{Edge: e})
	}
	same := func(*check.Edge) {}
	records := []history.Record{
		look(1, same),
		look(2, same),
		look(3, func(e *check.Edge) { e.Link.Away, e.Link.NextTry = time.Second, time.Minute }),
		look(4, func(e *check.Edge) { e.Link.Connected = false }),
		look(5, func(e *check.Edge) { e.Link.Connected = false }),
		look(6, func(e *check.Edge) { e.Journal.Last = 10 }),
		look(7, func(e *check.Edge) { e.Journal.Last, e.Rows = 10, []fleet.Transition{row} }),
		look(7, func(e *check.Edge) { e.AgentSince = 5 }),
		look(8, func(e *check.Edge) { e.AgentSince = 5 }),
		look(8, func(e *check.Edge) { e.Link, e.Journal = nil, nil }),
		look(9, func(e *check.Edge) { e.Link, e.Journal = nil, nil }),
		look(10, same),
		look(11, func(e *check.Edge) { e.Processes = map[check.TaskKey]int{} }),
		at(12, end),
	}
	text := mustWrite(t, header, records)
	got, err := readAll(mustOpen(t, text))
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		if !reflect.DeepEqual(got[i], records[i]) && i != 12 { // an empty map is read as none
			t.Errorf("record %d: got %+v, want %+v", i, got[i].Edge, records[i].Edge)
		}
	}
	if n := bytes.Count(text, []byte(`"Still"`)); n != 4 {
		t.Errorf("%d looks are written short, of 4 that found nothing new:\n%s", n, text)
	}
}
