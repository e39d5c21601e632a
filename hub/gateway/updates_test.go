package gateway

import (
	"log/slog"
	"testing"
	"time"

	"skerry/syncproto"
)

// TestReceivedIndexIsSubmittedOneAtATime has an edge receive more while its last received index is being committed:
// the newer one waits for the answer.
func TestReceivedIndexIsSubmittedOneAtATime(t *testing.T) {
	s := &session{
		gw:      &Gateway{updateBatcher: newUpdateBatcher(nil, slog.New(slog.DiscardHandler))},
		machine: syncproto.NewHubSession(0, "node"), answers: make(chan batchAnswer, 1), over: make(chan struct{}),
	}
	now := time.Unix(1e9, 0)
	want := func(when string, due bool) {
		t.Helper()
		if got := s.received.isReportDue(now); got != due {
			t.Errorf("%s: a report is due: %t, want %t", when, got, due)
		}
	}
	want("nothing was received", false)
	s.received.index, s.received.since = 5, now
	want("received just now: rows may take it along", false)
	now = now.Add(receivedAfter)
	want("received a while ago", true)
	s.submitReceivedIndex()
	s.received.index = 6
	want("submitted, and more was received", false)
	s.handleBatchAnswer(t.Context(), batchAnswer{alone: true, index: 5})
	want("the answer came", true)
}
