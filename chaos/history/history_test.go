package history_test

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/fleet"
)

var header = history.Header{
	Format: history.Format, Name: "one cut", Seed: 7, Clock: history.Virtual,
	Start:    time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
	Repeat:   "skerry-chaos sim --seed 7",
	Versions: map[string]string{"skerry": "v0.1.0"},
	Topology: history.Topology{
		Hubs:  []string{"hub-1"},
		Edges: []history.EdgeMachine{{Name: "edge-1", NodeID: "n1"}},
		Jobs:  []history.JobWanted{{ID: "web", Count: 1}},
	},
	Schedule: "fault cut edge-1 at 1m for 30s\n",
}

// everything is one record of each kind, in order of time.
func everything() []history.Record {
	return []history.Record{
		{At: 0, Event: history.Process{Name: "edge-1", What: history.ProcessStart, Boot: "b1"}},
		{At: 1, Event: history.Enrolled{Edge: "edge-1", NodeID: "n1"}},
		{At: 2, Event: history.Leader{Hub: "hub-1", Leads: true, Term: 2}},
		{At: 3, Event: history.Node{Hub: "hub-1", ID: "n1", Status: fleet.NodeReady, Epoch: 1}},
		{At: 4, Event: history.Operation{Client: "c1", Does: history.OpRegister, Job: "web", Value: "1", Call: 3, Outcome: history.OutcomeOK}},
		{At: 5, Event: history.Alloc{Hub: "hub-1", ID: "a1", Name: "web.main[0]", Job: "web", Node: "n1", Desired: "run", Client: "running"}},
		{At: 6, Event: history.Task{Edge: "edge-1", Alloc: "a1", Task: "main", Runs: true}},
		{At: 7, Event: history.Session{Edge: "edge-1", State: history.SessionUp, Hub: "hub-1", Epoch: 1}},
		{At: 8, Event: history.Journal{Edge: "edge-1", Head: 9, Acked: 4}},
		{At: time.Minute, Event: history.Fault{ID: 1, Fault: "cut", Targets: []string{"edge-1"}, Detail: "both ways"}},
		{At: 80 * time.Second, Event: history.Refused{By: "hub-1", From: "edge-1", Code: fleet.CodeStaleSession, Reason: "3 after 4"}},
		{At: 90 * time.Second, Event: history.FaultEnd{ID: 1, Hits: 41}},
		{At: 91 * time.Second, Event: history.Violation{Violation: check.Violation{Invariant: 1, Message: "row 4 was applied twice"}, Where: "hub-1"}},
		{At: 91 * time.Second, Event: history.Note{Where: "edge-1", Text: "fsync took 2 s"}},
		{At: 92 * time.Second, Event: history.Sometimes{Name: "session refused", Count: 1, Least: 1}},
		{At: 92 * time.Second, Event: history.Verdict{Invariant: 1, Statement: check.Invariant(1).Statement(), Judged: 30, Violations: 1}},
		{At: 92 * time.Second, Event: history.End{Outcome: history.Violated, Reasons: []string{"invariant 1"}, Wall: time.Second, Shortest: "fault cut edge-1 at 1m for 1s\n"}},
	}
}

func mustWrite(tb testing.TB, h history.Header, records []history.Record) []byte {
	tb.Helper()
	var b bytes.Buffer
	w, err := history.NewWriter(&b, h)
	if err != nil {
		tb.Fatalf("begin: %v", err)
	}
	for _, r := range records {
		if err := w.Write(r.At, r.Event); err != nil {
			tb.Fatalf("write: %v", err)
		}
	}
	if err := w.Flush(); err != nil {
		tb.Fatalf("flush: %v", err)
	}
	return b.Bytes()
}

func mustOpen(tb testing.TB, text []byte) *history.Reader {
	tb.Helper()
	r, err := history.NewReader(bytes.NewReader(text))
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	return r
}

// readAll reads to the end; the error is nil for a whole history.
func readAll(r *history.Reader) ([]history.Record, error) {
	var records []history.Record
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		if err != nil {
			return records, err
		}
		records = append(records, rec)
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	want := everything()
	r := mustOpen(t, mustWrite(t, header, want))
	if got := r.Header(); !reflect.DeepEqual(got, header) {
		t.Errorf("header: got %+v, want %+v", got, header)
	}
	got, err := readAll(r)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %+v, want %+v", err, got, want)
	}
}

// TestEveryKindIsInTheExample keeps everything complete: what a reader knows is
// written and read above.
func TestEveryKindIsInTheExample(t *testing.T) {
	seen := map[reflect.Type]bool{}
	for _, r := range everything() {
		seen[reflect.TypeOf(r.Event)] = true
	}
	if len(seen) != history.Kinds() {
		t.Errorf("the example has %d kinds of record, a reader knows %d", len(seen), history.Kinds())
	}
}

func TestCrossingTimesAreRaised(t *testing.T) {
	text := mustWrite(t, header, []history.Record{
		{At: 20, Event: history.Note{Text: "later"}},
		{At: 10, Event: history.Note{Text: "earlier"}},
		{At: 30, Event: history.End{Outcome: history.Pass}},
	})
	got, err := readAll(mustOpen(t, text))
	if err != nil || got[1].At != 20 {
		t.Errorf("got %v, %+v, want the second at 20", err, got)
	}
}

func TestManyMayWrite(t *testing.T) {
	var b bytes.Buffer
	w, err := history.NewWriter(&b, header)
	if err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for n := range 200 {
				if err := w.Write(time.Duration(n*8+i), history.Note{Text: strings.Repeat("x", n)}); err != nil {
					t.Errorf("write: %v", err)
				}
			}
		})
	}
	writers.Wait()
	if err := errors.Join(w.Write(0, history.End{Outcome: history.Pass}), w.Flush()); err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(mustOpen(t, b.Bytes())); err != nil || len(got) != 8*200+1 {
		t.Errorf("read %d records: %v", len(got), err)
	}
}

type failing struct{ after int }

func (f *failing) Write(p []byte) (int, error) {
	if f.after -= len(p); f.after < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestAFailureIsKept(t *testing.T) {
	w, err := history.NewWriter(&failing{after: 5000}, header)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = w.Write(0, history.Note{Text: strings.Repeat("x", 100)})
	}
	if !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got %v", err)
	}
	if err := w.Flush(); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("flush forgot it: %v", err)
	}
}

func TestALongLineIsNotWritten(t *testing.T) {
	w, err := history.NewWriter(io.Discard, header)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(0, history.Note{Text: strings.Repeat("x", history.MaxLine)}); err == nil {
		t.Error("it was written")
	}
}

func TestWhatIsNoHistory(t *testing.T) {
	good := string(mustWrite(t, header, nil))
	note := `{"at":1,"kind":"note","event":{"text":"x"}}` + "\n"
	end := `{"at":2,"kind":"end","event":{"outcome":"pass","wall":1}}` + "\n"
	for name, c := range map[string]struct{ text, says string }{
		"empty":              {"", "empty"},
		"no header":          {note, "no version"},
		"no JSON":            {"hello\n", "no version"},
		"of another version": {strings.Replace(good, `"format":1`, `"format":2`, 1), "version 2"},
		"unknown clock":      {strings.Replace(good, `"virtual"`, `"sun"`, 1), `"sun"`},
		"unknown field":      {strings.Replace(good, `"seed"`, `"sed"`, 1), `"sed"`},
		"unknown kind":       {good + `{"at":1,"kind":"moon","event":{}}` + "\n", `"moon"`},
		"no event":           {good + `{"at":1,"kind":"note"}` + "\n", "missing"},
		"unknown in event":   {good + `{"at":1,"kind":"note","event":{"txt":"x"}}` + "\n", `"txt"`},
		"of another type":    {good + `{"at":1,"kind":"note","event":{"text":4}}` + "\n", "string"},
		"two values":         {good + strings.TrimSuffix(note, "\n") + note, "behind the value"},
		"back in time":       {good + strings.Replace(note, "1", "9", 1) + note, "stands behind one at 9ns"},
		"half a line":        {good + note[:20], "line 2"},
		"behind the end":     {good + end + note, "behind the end"},
		"cut short":          {good + note, "cut short"},
		"too long":           {good + strings.Replace(note, "x", strings.Repeat("x", history.MaxLine), 1), "longer than"},
	} {
		r, err := history.NewReader(strings.NewReader(c.text))
		if err == nil {
			_, err = readAll(r)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want something with %q", name, err, c.says)
		}
	}
}

func TestACutShortHistoryIsKnown(t *testing.T) {
	records := everything()
	got, err := readAll(mustOpen(t, mustWrite(t, header, records[:5])))
	if !errors.Is(err, history.ErrCutShort) || len(got) != 5 {
		t.Errorf("got %v after %d records", err, len(got))
	}
}

func FuzzReader(f *testing.F) {
	f.Add(mustWrite(f, header, everything()))
	f.Add(mustWrite(f, header, nil))
	f.Add([]byte("{}\n{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := history.NewReader(bytes.NewReader(text))
		if err != nil {
			return
		}
		records, err := readAll(r)
		if err != nil {
			return
		}
		again, err := readAll(mustOpen(t, mustWrite(t, r.Header(), records)))
		if err != nil || len(again) != len(records) {
			t.Fatalf("written again, %d records became %d: %v", len(records), len(again), err)
		}
	})
}
