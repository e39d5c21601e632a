package link_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"skerry/edge/journal"
	"skerry/edge/link"
	"skerry/fleet"
	"skerry/syncproto"
)

// fakeJournal is a Journal in memory.
type fakeJournal struct {
	boot fleet.BootID

	mu              sync.Mutex
	first           fleet.Seq // number of rows[0]
	rows            [][]byte
	prev            [][]byte // chain hash before each row
	hash            []byte
	acked           fleet.Seq
	urgent          fleet.Seq
	appended        chan struct{}
	mem             journal.Link
	lastAck         time.Time
	hubTime         int64 // of the last answered heartbeat
	unsaved         bool  // no SaveHeartbeat came after it
	writes          int
	broken          error // error of PutLink
	keepsBeforeFail int   // calls of PutLink that still succeed
	lost            string
	rejoins         int // how often the rows of a rejoined edge were asked for
}

func newFakeJournal() *fakeJournal {
	return &fakeJournal{boot: "boot-1", first: 1, appended: make(chan struct{})}
}

func (j *fakeJournal) appendRows(ts ...fleet.Transition) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.recordLocked(ts...)
}

func (j *fakeJournal) recordLocked(ts ...fleet.Transition) {
	for _, t := range ts {
		t.Seq = j.first + fleet.Seq(len(j.rows))
		t.BootID, t.Wall = j.boot, time.Now().UnixNano()
		row, err := syncproto.EncodeRow(t)
		if err != nil {
			panic(err)
		}
		j.prev = append(j.prev, j.hash)
		j.rows = append(j.rows, row)
		j.hash = syncproto.ChainHash(j.hash, row)
		if t.Urgent() {
			j.urgent = t.Seq
		}
	}
	if len(ts) > 0 {
		close(j.appended)
		j.appended = make(chan struct{})
	}
}

// dropRowsBefore deletes the rows before first.
func (j *fakeJournal) dropRowsBefore(first fleet.Seq) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := int(first - j.first)
	j.rows, j.prev, j.first = j.rows[n:], j.prev[n:], first
}

func (j *fakeJournal) Head() journal.Head {
	j.mu.Lock()
	defer j.mu.Unlock()
	return journal.Head{
		First: j.first, Last: j.first + fleet.Seq(len(j.rows)) - 1,
		Acknowledged: j.acked, Urgent: j.urgent, ChainHash: j.hash, Lost: j.lost,
	}
}

// loseAllRows deletes all rows.
func (j *fakeJournal) loseAllRows(why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.first, j.rows, j.prev, j.hash, j.acked, j.urgent, j.lost = 1, nil, nil, nil, 0, 0, why
	j.mem = journal.Link{}
}

func (j *fakeJournal) RecordOlderCopy(_ context.Context, newest fleet.Seq) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lost = fmt.Sprintf("an older copy, the cluster has row %d", newest)
	return nil
}

func (j *fakeJournal) Rebase(_ context.Context, applied fleet.Seq, chain []byte, _ journal.RowsOfStates) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	since := j.rows
	j.first, j.rows, j.prev, j.hash, j.acked, j.lost = applied+1, nil, nil, chain, applied, ""
	j.recordLocked(fleet.Transition{Kind: fleet.TransitionGap, Message: "damaged"})
	for _, b := range since {
		t, err := syncproto.DecodeRow(b)
		if err != nil {
			return err
		}
		j.recordLocked(t)
	}
	return nil
}

func (j *fakeJournal) Rows(_ context.Context, from fleet.Seq, maxRows, maxBytes int) (fleet.Seq, []byte, [][]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	from = max(from, j.first)
	i := int(from - j.first)
	if i >= len(j.rows) {
		return from, nil, nil, nil
	}
	end, size := i, 0
	for end < len(j.rows) && end-i < maxRows && (end == i || size+len(j.rows[end]) <= maxBytes) {
		size += len(j.rows[end])
		end++
	}
	return from, j.prev[i], slices.Clone(j.rows[i:end]), nil
}

func (j *fakeJournal) Acknowledge(seq fleet.Seq) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.acked = seq
}

func (j *fakeJournal) Appended() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.appended
}

func (j *fakeJournal) Link() journal.Link {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mem
}

func (j *fakeJournal) PutLink(_ context.Context, r journal.Link, reconnected journal.RowsOfStates, ts ...fleet.Transition) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil && j.keepsBeforeFail == 0 {
		return j.broken
	}
	j.keepsBeforeFail = max(0, j.keepsBeforeFail-1)
	if reconnected != nil {
		j.rejoins++
	}
	j.mem = r
	j.writes++
	j.recordLocked(ts...)
	return nil
}

func (j *fakeJournal) NoteHeartbeat(roundTrip time.Duration, hubTime int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lastAck, j.hubTime, j.unsaved = time.Now().Add(-roundTrip), hubTime, true
}

func (j *fakeJournal) SaveHeartbeat(context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unsaved = false
	return nil
}

// hasUnsavedHeartbeat reports whether no SaveHeartbeat came after the newest heartbeat.
func (j *fakeJournal) hasUnsavedHeartbeat() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.unsaved
}

func (j *fakeJournal) lastHubTime() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.hubTime
}

func (j *fakeJournal) Away() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lastAck.IsZero() {
		return 0
	}
	return time.Since(j.lastAck)
}

// failKeep makes PutLink fail with err; nil: it works again.
func (j *fakeJournal) failKeep(err error) { j.failAfter(0, err) }

// failAfter makes PutLink fail with err after some more calls.
func (j *fakeJournal) failAfter(room int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.broken, j.keepsBeforeFail = err, room
}

// keepCount returns how often PutLink has written.
func (j *fakeJournal) keepCount() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.writes
}

// rowKinds returns the kinds of the journal's rows.
func (j *fakeJournal) rowKinds(tb testing.TB) []fleet.TransitionKind {
	tb.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	var ks []fleet.TransitionKind
	for _, b := range j.rows {
		ks = append(ks, mustRow(tb, b).Kind)
	}
	return ks
}

func mustRow(tb testing.TB, b []byte) fleet.Transition {
	tb.Helper()
	t, err := syncproto.DecodeRow(b)
	if err != nil {
		tb.Fatalf("decode a row: %v", err)
	}
	return t
}

// fakeEdge is an Edge for tests.
type fakeEdge struct {
	j *fakeJournal

	mu        sync.Mutex
	hash      []byte
	desired   fleet.Index
	delivered []syncproto.Desired
	holdings  []fleet.AllocID
	restated  int
	hungUp    int // streams of Exec that ended early

	hang chan struct{} // Exec of the command "hang" ends when it is closed, and not before
}

func (s *fakeEdge) Describe() ([]byte, fleet.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hash, fleet.Node{ID: nodeID, Name: "n1", Attributes: map[string]string{"hash": string(s.hash)}}
}

func (s *fakeEdge) setDescription(hash string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hash = []byte(hash)
}

func (s *fakeEdge) Desired() fleet.Index {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.desired
}

func (s *fakeEdge) Deliver(_ context.Context, d syncproto.Desired) (syncproto.Received, []fleet.AllocID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delivered = append(s.delivered, d)
	s.desired = d.Index
	return syncproto.Received{Index: d.Index}, s.holdings, nil
}

func (s *fakeEdge) Restate(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restated++
	s.j.appendRows(fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: "a1", ClientStatus: fleet.ClientRunning, Message: "restated"})
	return nil
}

func (s *fakeEdge) restateCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restated
}

func (s *fakeEdge) Answer(ctx context.Context, req syncproto.Request) (io.ReadCloser, error) {
	switch {
	case req.Kind != syncproto.RequestLogs && req.Kind != syncproto.RequestMonitor:
		return nil, fleet.Errorf(fleet.CodeUnsupported, "no %s here", req.Kind)
	case req.Kind == syncproto.RequestLogs && req.Alloc != "a1":
		return nil, fleet.Errorf(fleet.CodeNotFound, "no allocation %s", req.Alloc)
	case req.Lasts():
		r, w := io.Pipe()
		context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
		return r, nil
	}
	return io.NopCloser(bytes.NewReader(bytes.Repeat([]byte("log "), 50_000))), nil
}

func (s *fakeEdge) hangUps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hungUp
}

// Exec echoes its input until that is "end".
func (s *fakeEdge) Exec(_ context.Context, req syncproto.Request, talk link.ExecStream) {
	if req.Command[0] == "hang" {
		<-s.hang
		return
	}
	in, out := syncproto.NewReader(talk), syncproto.NewWriter(talk)
	for {
		m, err := in.Read()
		if err != nil {
			s.mu.Lock()
			s.hungUp++
			s.mu.Unlock()
			return
		}
		said := m.(syncproto.ExecInput).Stdin
		if string(said) == "end" {
			_ = out.Write(syncproto.ExecOutput{Exited: true, Code: 7})
			return
		}
		_ = out.Write(syncproto.ExecOutput{Stdout: append([]byte(req.Command[0]+": "), said...)})
	}
}
