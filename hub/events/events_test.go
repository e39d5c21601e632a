package events_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/events"
	"skerry/hub/state"
)

// lineRecorder takes the lines of a stream, each in one or several writes. It is full after limit of them, and then
// fails as a connection that is not read does.
type lineRecorder struct {
	lines   []string
	piece   strings.Builder // of the line that has not ended
	longest int             // bytes of one write
	limit   int
	then    func()
}

func (r *lineRecorder) Write(b []byte) (int, error) {
	if r.limit > 0 && len(r.lines) == r.limit {
		return 0, errors.New("i/o timeout")
	}
	r.longest = max(r.longest, len(b))
	r.piece.Write(b)
	if !bytes.HasSuffix(b, []byte("\n")) {
		return len(b), nil
	}
	r.lines = append(r.lines, strings.TrimSpace(r.piece.String()))
	r.piece.Reset()
	if r.then != nil {
		r.then()
	}
	return len(b), nil
}

// eventHarness is a state that a test changes, entry by entry.
type eventHarness struct {
	tb      testing.TB
	store   *state.Store
	index   fleet.Index
	padding string // of jobs
}

func (w *eventHarness) registerTestJob(id string) {
	w.tb.Helper()
	w.index++
	job := &fleet.Job{ID: fleet.JobID(id), Name: id, Namespace: "default", Type: fleet.JobTypeService, TaskGroups: []fleet.TaskGroup{{Name: "g"}}}
	job.Meta = map[string]string{"at": fmt.Sprint(w.index), "padding": w.padding}
	res := w.store.Apply(w.index, state.JobRegister{Job: job, Now: 1})
	if res.Err != nil {
		w.tb.Fatal(res.Err)
	}
}

func mustRequest(tb testing.TB, from fleet.Index, topics ...string) events.Request {
	tb.Helper()
	req, err := events.NewRequest(topics, "default", from)
	if err != nil {
		tb.Fatal(err)
	}
	return req
}

// mustCollect streams until the reader has n lines.
func mustCollect(tb testing.TB, s *events.Streams, req events.Request, n int) []api.EventBatch {
	tb.Helper()
	after, err := s.Position(req)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	defer cancel()
	r := &lineRecorder{}
	r.then = func() {
		if len(r.lines) == n {
			cancel()
		}
	}
	if err := s.Stream(ctx, req, after, r); err != nil {
		tb.Fatal(err)
	}
	var out []api.EventBatch
	for _, l := range r.lines {
		var b api.EventBatch
		if err := json.Unmarshal([]byte(l), &b); err != nil {
			tb.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

func keys(batches []api.EventBatch) (out []string) {
	for _, b := range batches {
		for _, e := range b.Events {
			out = append(out, fmt.Sprintf("%d %s %s", b.Index, e.Type, e.Key))
		}
	}
	return out
}

func TestStreamsByTopicAndFromAnIndex(t *testing.T) {
	w := &eventHarness{tb: t, store: state.New()}
	for _, id := range []string{"a", "b", "a", "c"} {
		w.registerTestJob(id)
	}
	s := events.New(w.store)
	for _, tc := range []struct {
		from   fleet.Index
		topics []string
		want   []string
	}{
		{0, nil, []string{"1 JobRegistered a", "2 JobRegistered b", "3 JobRegistered a", "4 JobRegistered c"}},
		{0, []string{"Job:a"}, []string{"1 JobRegistered a", "3 JobRegistered a"}},
		{2, []string{"*:a", "Job:c"}, []string{"3 JobRegistered a", "4 JobRegistered c"}},
		{4, []string{"Job"}, []string{"4 JobRegistered c"}},
		{3, []string{"Job", "Job:a"}, []string{"3 JobRegistered a", "4 JobRegistered c"}},
	} {
		if got := keys(mustCollect(t, s, mustRequest(t, tc.from, tc.topics...), len(tc.want))); !slices.Equal(got, tc.want) {
			t.Errorf("from %d, topics %v: %v, want %v", tc.from, tc.topics, got, tc.want)
		}
	}
}

// TestHeartbeatsAndNews has a stream that waits: empty lines come every ten
// seconds, and news at once.
func TestHeartbeatsAndNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &eventHarness{tb: t, store: state.New()}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, done := &lineRecorder{}, make(chan error)
		go func() { done <- events.New(w.store).Stream(ctx, mustRequest(t, 0, "Job"), 0, r) }()
		time.Sleep(2*events.Heartbeat + time.Second)
		synctest.Wait()
		if !slices.Equal(r.lines, []string{"{}", "{}"}) {
			t.Errorf("with nothing to say: %v", r.lines)
		}
		w.registerTestJob("a")
		synctest.Wait()
		if len(r.lines) != 3 || !strings.HasPrefix(r.lines[2], `{"Index":1,"Events":[{"Topic":"Job","Type":"JobRegistered","Key":"a"`) {
			t.Errorf("news: %v", r.lines)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestTheWindowMovesOn lets more happen than is kept: who asks for what is gone is
// told so, also in the middle of a stream, and what is kept has no gap.
func TestTheWindowMovesOn(t *testing.T) {
	w := &eventHarness{tb: t, store: state.New()}
	w.registerTestJob("first")
	s := events.New(w.store)
	stalled := &lineRecorder{}
	many := state.MaxEvents + 10
	if testing.Short() { // the race detector makes it ten times as slow: fewer and larger events fill the window too
		many, w.padding = 200, strings.Repeat("x", 64<<10)
	}
	stalled.then = func() {
		if len(stalled.lines) == 1 {
			for range many {
				w.registerTestJob("a")
			}
		}
	}
	err := s.Stream(t.Context(), mustRequest(t, 0, "Job"), 0, stalled)
	if fleet.CodeOf(err) != fleet.CodeConflict || len(stalled.lines) != 2 || !strings.Contains(stalled.lines[1], "older than the window") {
		t.Fatalf("a reader that the window moved past: %v, %v", stalled.lines[1:], err)
	}
	if _, err := s.Position(mustRequest(t, 2, "Job")); fleet.CodeOf(err) != fleet.CodeConflict || !strings.Contains(err.Error(), "older than the window") {
		t.Fatalf("a position before the window: %v", err)
	}
	floor := w.store.View().EventsFloor()
	kept := mustCollect(t, s, mustRequest(t, floor+1), int(w.index-floor))
	for i, b := range kept {
		if b.Index != floor+1+fleet.Index(i) {
			t.Fatalf("entry %d follows %d", b.Index, floor+fleet.Index(i))
		}
	}
	var file bytes.Buffer
	if err := w.store.Persist(&file); err != nil {
		t.Fatal(err)
	}
	restored := state.New()
	if err := restored.Restore(&file); err != nil {
		t.Fatal(err)
	}
	again := mustCollect(t, events.New(restored), mustRequest(t, floor+1), int(w.index-floor))
	if restored.View().EventsFloor() != floor || !slices.Equal(keys(again), keys(kept)) {
		t.Fatal("a state from a snapshot has another window")
	}
}

// The events of one large entry are one line, which is written in pieces: a stream needs no memory for all of them.
func TestALargeEntryIsWrittenInPieces(t *testing.T) {
	const many = 3000
	w := &eventHarness{tb: t, store: state.New()}
	evals := make([]fleet.Evaluation, many)
	for i := range evals {
		evals[i] = fleet.Evaluation{ID: fleet.EvalID(fleet.DeriveUUID("eval", fmt.Sprint(i))), Namespace: "default", JobID: "a", Status: fleet.EvalComplete}
	}
	w.index++
	if res := w.store.Apply(w.index, state.Evals{Evals: evals, Now: 1}); res.Err != nil {
		t.Fatal(res.Err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := &lineRecorder{then: cancel}
	if err := events.New(w.store).Stream(ctx, mustRequest(t, 0, "Evaluation"), 0, r); err != nil {
		t.Fatal(err)
	}
	var batch api.EventBatch
	if err := json.Unmarshal([]byte(r.lines[0]), &batch); err != nil {
		t.Fatal(err)
	}
	if len(batch.Events) != many || batch.Index != 1 || batch.Events[many-1].Payload.Evaluation == nil {
		t.Errorf("%d events of entry %d arrive, want %d of entry 1", len(batch.Events), batch.Index, many)
	}
	if most := 64 << 10; r.longest > most {
		t.Errorf("one write has %d bytes, want at most %d", r.longest, most)
	}
}

func TestASlowReaderIsEnded(t *testing.T) {
	w := &eventHarness{tb: t, store: state.New()}
	for range 5 {
		w.registerTestJob("a")
	}
	err := events.New(w.store).Stream(t.Context(), mustRequest(t, 0), 0, &lineRecorder{limit: 2})
	if err == nil || !strings.Contains(err.Error(), "i/o timeout") {
		t.Fatalf("a reader that takes nothing: %v", err)
	}
}

func TestBadRequests(t *testing.T) {
	for _, bad := range [][]string{{"Jobs"}, {"Job:"}, {""}, {":x"}, slices.Repeat([]string{"Job"}, 300)} {
		if _, err := events.NewRequest(bad, "default", 0); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("topics %.40q: %v", bad, err)
		}
	}
	w := &eventHarness{tb: t, store: state.New()}
	w.registerTestJob("a")
	if _, err := events.New(w.store).Position(mustRequest(t, 9)); fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Errorf("an index that is far ahead: %v", err)
	}
	if after, err := events.New(w.store).Position(mustRequest(t, 2)); err != nil || after != 1 {
		t.Errorf("the index behind the newest: %d, %v", after, err)
	}
}

// FuzzNewRequest feeds topics.
func FuzzNewRequest(f *testing.F) {
	f.Add("Job:a:b", "default", uint64(3))
	f.Add("*", "*", uint64(0))
	f.Fuzz(func(t *testing.T, topic, namespace string, from uint64) {
		req, err := events.NewRequest([]string{topic}, namespace, fleet.Index(from))
		if err == nil {
			_, _ = events.New(state.New()).Position(req) // must not panic
		}
	})
}
