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
	Start:    time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	Repeat:   "skerry-chaos sim --seed 7",
	Versions: map[string]string{"skerry": "v0.1.0"},
	Hubs:     []string{"hub-1"}, Edges: []string{"edge-1"},
	Schedule: "fault cut edge-1 at 1m for 30s\n",
	Limits:   check.Limits{Heal: 5 * time.Minute},
}

var (
	job = &fleet.Job{
		ID: "web", Namespace: fleet.DefaultNamespace, Version: 3, SpecHash: "abc", Type: fleet.JobTypeService,
		TaskGroups: []fleet.TaskGroup{{Name: "main", Count: 1}},
	}
	node  = fleet.Node{ID: "n1", Name: "edge-1", Status: fleet.NodeReady, ModifyIndex: 5, Attributes: map[string]string{"a": "b"}, Resources: fleet.Resources{CPU: 4000, MemoryMB: 4096}}
	alloc = fleet.Alloc{
		ID: "a1", Namespace: fleet.DefaultNamespace, Name: "web.main[0]", NodeID: "n1", JobID: "web", Job: job, JobVersion: 3, JobHash: "abc",
		TaskGroup: "main", ClientStatus: fleet.ClientRunning, ModifyIndex: 9, AllocatedResources: fleet.Resources{CPU: 50, MemoryMB: 32, DiskMB: 1},
		AllocStates: []fleet.AllocState{{Field: fleet.AllocStateClientStatus, Value: "running", Time: time.Date(2026, 1, 1, 0, 0, 1, 5, time.UTC)}},
	}
	eval = fleet.Evaluation{ID: "e1", JobID: "web", Status: fleet.EvalComplete, ModifyIndex: 8, EscapedClass: true}
	row  = fleet.Transition{Seq: 4, BootID: "b1", Kind: fleet.TransitionTask, Alloc: "a1", Event: &fleet.TaskEvent{Type: fleet.TaskStarted}}
)

// hub is the hub's state at an index, with the nouns above.
func hub(index fleet.Index) *check.Hub {
	return &check.Hub{
		Name: "hub-1", Index: index, Term: 2, Leads: true,
		Nodes: []fleet.Node{node}, Allocs: []fleet.Alloc{alloc}, Evals: []fleet.Evaluation{eval},
	}
}

func seen(at time.Duration, o check.Observation) history.Record {
	o.At = at
	return history.Record{Observation: o}
}

func at(at time.Duration, r history.Record) history.Record {
	r.At = at
	return r
}

// everything is at least one record of each kind, in order of time.
func everything() []history.Record {
	entry := fleet.HistoryEntry{Side: fleet.SideEdge, Index: 9, AllocID: "a1", NodeID: "n1", Transition: &row, Time: time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)}
	quiet := hub(12)
	quiet.NodeHistory = map[fleet.NodeID][]fleet.HistoryEntry{"n1": {{Side: fleet.SideHub, NodeID: "n1", Event: fleet.EventNodeReconnected, Time: time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)}}}
	quiet.AllocHistory = map[fleet.AllocID][]fleet.HistoryEntry{"a1": {entry}}
	quiet.Dropped = map[fleet.AllocID]uint64{"a1": 2}
	return []history.Record{
		seen(0, check.Observation{Process: &check.Process{Name: "edge-1", Edge: true, What: check.ProcessStart, Boot: "b1"}}),
		seen(1, check.Observation{Job: job}),
		seen(2, check.Observation{Dial: &check.Dial{Edge: "edge-1"}}),
		seen(3, check.Observation{Applied: &check.Applied{
			Hub: "hub-1", Index: 9, Term: 2, Kind: "plan", Command: "c", Result: "r",
			Effects: &check.Effects{
				Opened: &check.Opened{Node: "n1", Epoch: 1, Status: fleet.NodeReady}, Allocs: []fleet.Alloc{alloc}, Nodes: []fleet.Node{node},
				Batches: []check.Batch{{Node: "n1", Rows: []fleet.Transition{row}}}, Evals: []fleet.Evaluation{eval},
			},
		}}),
		seen(4, check.Observation{Operation: &check.Operation{Client: "c1", Does: check.OpRegister, Job: "web", Call: 3, Outcome: check.OutcomeOK, Tag: "x"}}),
		seen(5, check.Observation{Hub: hub(10)}),
		seen(6, check.Observation{Task: &check.Task{Edge: "edge-1", Alloc: "a1", Task: "main", What: check.TaskStarted}}),
		seen(7, check.Observation{Edge: &check.Edge{
			Name: "edge-1", NodeID: "n1", Rows: []fleet.Transition{row}, Processes: map[check.TaskKey]int{{Alloc: "a1", Task: "main"}: 1},
			Link: &check.Link{Connected: true, Epoch: 1}, Journal: &check.Journal{First: 1, Last: 9, Acknowledged: 4},
		}}),
		seen(8, check.Observation{Usage: &check.Usage{Who: "edge-1", Goroutines: 40}}),
		seen(8, check.Observation{Snapshot: &check.Snapshot{Hub: "hub-1", Index: 3, State: "s", Restored: "s"}}),
		seen(9, check.Observation{Request: &check.Request{Edge: "edge-1", What: "drain"}}),
		seen(9, check.Observation{Variable: &check.VariableOperation{Client: "c1", Does: check.OpWrite, Path: "a/b", Call: 3, Outcome: check.OutcomeOK, Value: 7}}),
		seen(9, check.Observation{Held: &check.HeldVariables{Edge: "edge-1", Values: map[string]int{"a/b": 7}}}),
		seen(9, check.Observation{Identity: &check.HeldIdentities{Edge: "edge-1", Ends: map[check.TaskKey]time.Duration{{Alloc: "a1", Task: "main"}: time.Hour}}}),
		seen(9, check.Observation{Delivered: &check.DeliveredVariables{Edge: "edge-1", Paths: []string{"a/b"}}}),
		seen(9, check.Observation{Search: &check.SecretSearch{Who: "edge-1", Files: 3, Found: []string{"journal.db"}}}),
		seen(9, check.Observation{SiteCode: &check.SiteCodeUse{Code: "k7m2", What: check.SiteCodeTried, Edge: "edge-1", Capability: "read", Allowed: true}}),
		seen(9, check.Observation{Dispatch: &check.DispatchCall{Job: "errand", Token: "t", Input: "i", Flaw: "payload", Child: "errand/dispatch-1"}}),
		seen(9, check.Observation{Given: &check.GivenInput{Edge: "edge-1", Child: "errand/dispatch-1", Input: "i"}}),
		seen(9, check.Observation{Probe: &check.Probe{Hub: "hub-1", Token: "no token", Attempt: "read a job", Status: 403}}),
		seen(9, check.Observation{Answer: &check.Answer{Hub: "hub-1", Verb: "PUT", Object: "/v1/jobs", Status: 200, Index: 9, Took: time.Second}}),
		seen(9, check.Observation{Audit: &check.Audit{Hub: "hub-1", Entries: []check.AuditEntry{{Verb: "PUT", Object: "/v1/jobs", Status: 200, Index: 9}}}}),
		seen(time.Minute, check.Observation{Fault: &check.Fault{ID: 1, Kind: "cut", Detail: "both ways", Targets: []string{"edge-1"}, Effects: []check.Effect{check.Severs}}}),
		seen(80*time.Second, check.Observation{Refused: &check.Refused{By: "hub-1", From: "edge-1", Code: fleet.CodeStaleSession, Reason: "3 after 4"}}),
		seen(90*time.Second, check.Observation{Fault: &check.Fault{ID: 1, End: true, Hits: 41}}),
		at(91*time.Second, history.Record{Picture: &history.FleetSnapshot{Final: true, FleetSnapshot: check.FleetSnapshot{
			Hubs:   []check.Hub{*quiet},
			Edges:  []check.Edge{{Name: "edge-1", NodeID: "n1", Rows: []fleet.Transition{row}, Before: []fleet.Transition{row}}},
			Wanted: map[fleet.JobID]int{"web": 1}, Starts: map[fleet.AllocID]int{"a1": 1},
		}}}),
		at(91*time.Second, history.Record{Violation: &check.Violation{Invariant: check.Sequence, At: 80 * time.Second, Where: "hub-1", Message: "row 4 was applied twice", Evidence: []string{"x"}}}),
		at(91*time.Second, history.Record{Note: &history.Note{Where: "edge-1", Text: "fsync took 2 s"}}),
		at(92*time.Second, history.Record{Sometimes: &history.Sometimes{Name: "session refused", Count: 1, Least: 1}}),
		at(92*time.Second, history.Record{Verdict: &check.Verdict{Invariant: check.Sequence, Judged: 30, Broken: 2}}),
		at(92*time.Second, history.Record{End: &history.End{Outcome: history.Violated, Reasons: []string{"sequence"}, Wall: time.Second, Shortest: "fault cut edge-1 at 1m for 1s\n"}}),
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
		if err := w.Write(r); err != nil {
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

// TestEveryKindIsInTheExample keeps everything complete.
func TestEveryKindIsInTheExample(t *testing.T) {
	missing := map[string]bool{}
	pointers := func(v reflect.Value, seen func(name string, set bool)) {
		for i := range v.NumField() {
			if v.Field(i).Kind() == reflect.Pointer {
				seen(v.Type().Field(i).Name, !v.Field(i).IsNil())
			}
		}
	}
	for _, r := range everything() {
		for _, v := range []reflect.Value{reflect.ValueOf(r), reflect.ValueOf(r.Observation)} {
			pointers(v, func(name string, set bool) {
				if _, known := missing[name]; set || !known {
					missing[name] = !set
				}
			})
		}
	}
	for name, is := range missing {
		if is {
			t.Errorf("no record of %s is in the example", name)
		}
	}
}

func note(text string) history.Record { return history.Record{Note: &history.Note{Text: text}} }

var end = history.Record{End: &history.End{Outcome: history.Pass}}

func TestCrossingTimesAreRaised(t *testing.T) {
	text := mustWrite(t, header, []history.Record{
		at(20, note("later")),
		at(10, note("earlier")),
		at(30, end),
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
				if err := w.Write(at(time.Duration(n*8+i), note(strings.Repeat("x", n)))); err != nil {
					t.Errorf("write: %v", err)
				}
			}
		})
	}
	writers.Wait()
	if err := errors.Join(w.Write(end), w.Flush()); err != nil {
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
	w, err := history.NewWriter(&failing{after: 1 << 17}, header)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = w.Write(note(strings.Repeat("x", 1000)))
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
	if err := w.Write(note(strings.Repeat("x", history.MaxLine))); err == nil {
		t.Error("it was written")
	}
}

func TestWhatNobodyKeepsIsCounted(t *testing.T) {
	kept, err := history.NewWriter(io.Discard, header)
	if err != nil {
		t.Fatal(err)
	}
	counted, err := history.NewWriter(nil, header)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []*history.Writer{kept, counted} {
		for _, r := range everything() {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := counted.Run(), kept.Run(); !reflect.DeepEqual(got, want) {
		t.Errorf("counted %+v\nwant %+v", got, want)
	}
}

func TestWhatIsNoHistory(t *testing.T) {
	good := string(mustWrite(t, header, nil))
	note := `{"At":1,"Note":{"Text":"x"}}` + "\n"
	end := `{"At":2,"End":{"Outcome":"pass","Wall":1}}` + "\n"
	part := `{"At":1,"Picture":{"Hub":{"Name":"hub-1"}}}` + "\n"
	for name, c := range map[string]struct{ text, says string }{
		"empty":              {"", "empty"},
		"no header":          {note, "no version"},
		"no JSON":            {"hello\n", "no version"},
		"of another version": {strings.Replace(good, `"Format":1`, `"Format":2`, 1), "version 2"},
		"unknown clock":      {strings.Replace(good, `"virtual"`, `"sun"`, 1), `"sun"`},
		"unknown field":      {strings.Replace(good, `"Seed"`, `"Sed"`, 1), `"Sed"`},
		"unknown kind":       {good + `{"At":1,"Moon":{}}` + "\n", `"Moon"`},
		"no kind":            {good + `{"At":1}` + "\n", "0 kinds"},
		"two kinds":          {good + `{"At":1,"Note":{"Text":"x"},"Dial":{"Edge":"e"}}` + "\n", "2 kinds"},
		"unknown in a kind":  {good + `{"At":1,"Note":{"Txt":"x"}}` + "\n", `"Txt"`},
		"unknown in a node":  {good + `{"At":1,"Hub":{"Name":"h","Nodes":[{"Moon":"x"}]}}` + "\n", `"Moon"`},
		"of another type":    {good + `{"At":1,"Note":{"Text":4}}` + "\n", "string"},
		"unknown invariant":  {good + `{"At":1,"Verdict":{"Invariant":"x"}}` + "\n", `"x"`},
		"unknown outcome":    {good + strings.Replace(end, "pass", "fine", 1), `"fine"`},
		"two values":         {good + strings.TrimSuffix(note, "\n") + note, "behind the value"},
		"back in time":       {good + strings.Replace(note, "1", "9", 1) + note, "stands behind one at 9ns"},
		"beyond any run":     {good + strings.Replace(note, "1", "9000000000000000000", 1), "beyond"},
		"half a line":        {good + note[:20], "line 2"},
		"behind the end":     {good + end + note, "behind the end"},
		"cut short":          {good + note, "cut short"},
		"cut in a picture":   {good + part, "cut short"},
		"half a picture":     {good + part + note, "not complete"},
		"rows of no edge":    {good + part + `{"At":1,"Picture":{"Rows":{"Rows":[]}}}` + "\n", "of no hub or edge"},
		"empty part":         {good + `{"At":1,"Picture":{}}` + "\n", "says nothing"},
		"still, and unknown": {good + `{"At":1,"Still":{"Edge":"edge-1"}}` + "\n", "where it stood"},
		"body without a job": {good + `{"At":1,"Note":{"Text":"x"},"Bodies":[{"Version":{"ID":"web"}}]}` + "\n", "no body"},
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
