package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"skerry/api"
	"skerry/hub/audit"
)

// destination is one whose first tries fail.
type destination struct {
	failures int
	tries    []time.Time
	batches  []int
	taken    bytes.Buffer
}

func (*destination) Name() string { return "collector" }

func (d *destination) Send(_ context.Context, lines [][]byte) error {
	d.tries = append(d.tries, time.Now())
	if d.failures > 0 {
		d.failures--
		return errors.New("it is away")
	}
	d.batches = append(d.batches, len(lines))
	for _, line := range lines {
		d.taken.Write(line)
	}
	return nil
}

// appendEntries writes entries for these objects.
func appendEntries(l *audit.Log, objects ...string) {
	for _, object := range objects {
		l.Append(api.AuditEntry{Verb: "PUT", Object: object})
	}
}

// forward sends entries to a destination while do runs.
func forward(tb testing.TB, l *audit.Log, to audit.Destination, do func()) {
	tb.Helper()
	ctx, stop := context.WithCancel(tb.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Forward(ctx, to) }()
	do()
	stop()
	if err := <-ended; err != nil {
		tb.Error(err)
	}
}

func mustHaveTaken(tb testing.TB, l *audit.Log, d *destination) {
	tb.Helper()
	var kept bytes.Buffer
	if err := l.Copy(&kept, 0); err != nil {
		tb.Fatal(err)
	}
	if d.taken.String() != kept.String() {
		tb.Errorf("taken:\n%s\nwritten:\n%s", d.taken.Bytes(), kept.Bytes())
	}
	if unsent, err := l.Unsent(d); err != nil || unsent != 0 {
		tb.Errorf("%d entries wait (%v), want none", unsent, err)
	}
}

// A destination gets each entry once and in order, also what was written while it was away, and goes on after a restart of
// the hub where it was.
func TestEachEntryIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(filepath.Join(t.TempDir(), "audit"))
		cfg.FileBytes = 400
		l, to := mustOpen(t, cfg), &destination{}
		appendEntries(l, "/a", "/b", "/c", "/d", "/e")
		forward(t, l, to, func() {
			synctest.Wait()
			to.failures = 3
			for i := range 10 {
				appendEntries(l, fmt.Sprint("/away/", i))
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(time.Minute)
			mustHaveTaken(t, l, to)
		})
		var pauses []time.Duration
		for i := range to.tries[1:] {
			pauses = append(pauses, to.tries[i+1].Sub(to.tries[i]))
		}
		if want := []time.Duration{time.Second, time.Second, 2 * time.Second, 4 * time.Second}; !slices.Equal(pauses, want) {
			t.Errorf("pauses between tries: %v, want %v", pauses, want)
		}
		appendEntries(l, "/not/sent")
		if unsent, err := l.Unsent(to); err != nil || unsent != 1 {
			t.Errorf("%d entries wait (%v), want 1", unsent, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = mustOpen(t, cfg)
		forward(t, l, to, synctest.Wait)
		mustHaveTaken(t, l, to)
	})
}

// Many entries go in parts, each small enough for a request.
func TestManyEntriesAreSentInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, to := mustOpen(t, config(filepath.Join(t.TempDir(), "audit"))), &destination{}
		for i := range 1500 {
			appendEntries(l, fmt.Sprint("/", i))
		}
		long := "/" + string(bytes.Repeat([]byte{'x'}, 600<<10))
		appendEntries(l, long, long, long)
		forward(t, l, to, synctest.Wait)
		mustHaveTaken(t, l, to)
		if want := []int{1000, 502, 1}; !slices.Equal(to.batches, want) {
			t.Errorf("entries in each part: %v, want %v", to.batches, want)
		}
	})
}

// A destination that is away for too long gets what is still there.
func TestEntriesThatWereRemovedAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(filepath.Join(t.TempDir(), "audit"))
		cfg.FileBytes, cfg.Files = 400, 2
		l, to := mustOpen(t, cfg), &destination{}
		appendEntries(l, "/first")
		forward(t, l, to, synctest.Wait)
		to.taken.Reset()
		for i := range 20 {
			appendEntries(l, fmt.Sprint("/", i))
		}
		forward(t, l, to, synctest.Wait)
		mustHaveTaken(t, l, to)
		if bytes.Contains(to.taken.Bytes(), []byte(`"/0"`)) {
			t.Errorf("nothing was removed:\n%s", to.taken.Bytes())
		}
	})
}
