package report

import (
	"testing"
	"time"
)

func TestStamp(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                                      "0s",
		1234567:                                "1ms",
		1500 * time.Millisecond:                "1.5s",
		12*time.Minute + 3456*time.Millisecond: "12m3.5s",
		time.Hour:                              "1h",
		90 * time.Minute:                       "1h30m",
		25*time.Hour + 61*time.Second:          "25h1m1s",
		400 * 24 * time.Hour:                   "400d",
		50*time.Hour + time.Minute:             "2d2h1m",
		-time.Second:                           "-1s",
	} {
		if got := stamp(d); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
	}
}

func TestStateSpans(t *testing.T) {
	var l stateSpans
	l.setState(1, "running")
	l.setState(2, "running") // no change
	l.setState(3, "unknown")
	l.setState(3, "lost") // unknown never was
	l.setState(5, "")
	l.setState(6, "") // nothing twice
	l.setState(7, "running")
	l.close(9)
	want := []span{{from: 1, to: 3, state: "running", merged: 0}, {from: 3, to: 5, state: "lost", merged: 0}, {from: 7, to: 9, state: "running", merged: 0}}
	if len(l.spans) != len(want) {
		t.Fatalf("got %+v, want %+v", l.spans, want)
	}
	for i := range want {
		if l.spans[i] != want[i] {
			t.Errorf("span %d: got %+v, want %+v", i, l.spans[i], want[i])
		}
	}
}

func TestStateSpansAreBounded(t *testing.T) {
	var l stateSpans
	for i := range 100_000 {
		l.setState(time.Duration(i)*time.Second, []string{"up", "away"}[i%2])
	}
	if len(l.spans) > maxSpans {
		t.Errorf("it has %d spans", len(l.spans))
	}
	total := 0
	for i, s := range l.spans {
		total += s.changeCount()
		if i > 0 && s.from < l.spans[i-1].to {
			t.Fatalf("span %d begins before the one before it ends", i)
		}
	}
	if total != 100_000 {
		t.Errorf("%d changes are left of 100000", total)
	}
}

func TestMergeShortSpans(t *testing.T) {
	spans := []span{{from: 0, to: 100, state: "running", merged: 0}, {from: 100, to: 101, state: "unknown", merged: 0}, {from: 101, to: 103, state: "running", merged: 0}, {from: 103, to: 104, state: "unknown", merged: 0}, {from: 104, to: 200, state: "running", merged: 0}, {from: 200, to: 201, state: "lost", merged: 0}}
	got := mergeShortSpans(spans, 10)
	want := []span{{from: 0, to: 100, state: "running", merged: 0}, {from: 100, to: 104, state: mixed, merged: 3}, {from: 104, to: 200, state: "running", merged: 0}, {from: 200, to: 201, state: "lost", merged: 0}}
	if len(got) != len(want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("span %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
}
