package collector_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/collector"
)

// TestYear drives a busy fleet's state through a year: batch jobs come and go by the
// hour, a service fails and is replaced, machines are replaced by others, and one is
// away all the time. What is kept at the end is what was kept after half of it.
func TestYear(t *testing.T) {
	const round = 12 * time.Hour
	w := newHarness(t)
	away := fleet.NodeID("0c000000-0000-4000-8000-00000000000a")
	w.openSession(away)
	ship := w.placeRunningOn("ship", fleet.JobTypeService, away)
	w.loseNode(away)
	var half, entries int
	machine, web := fleet.NodeID(""), w.placeRunning("web", fleet.JobTypeService)
	began := w.now
	for n := 0; w.now.Sub(began) < 365*24*time.Hour; n++ {
		for k := range 4 {
			id := fleet.JobID(fmt.Sprintf("batch-%d-%d", n, k))
			status := fleet.ClientComplete
			if k == 0 {
				status = fleet.ClientFailed
			}
			w.reportTaskStatus(w.placeRunning(id, fleet.JobTypeBatch), status)
			if k == 0 {
				w.deregisterJob(id)
			}
		}
		w.reportTaskStatus(web, fleet.ClientFailed)
		w.setDesiredStatus(web, fleet.DesiredStop)
		web = w.placeRunning("web", fleet.JobTypeService)
		if n%14 == 0 { // a machine a week
			if machine != "" {
				w.loseNode(machine)
			}
			machine = fleet.NodeID(w.nextUUID("machine"))
			w.openSession(machine)
		}
		w.now = w.now.Add(round)
		for range 2 { // what goes may let other things go
			c := collector.Choose(w.View(), w.now, collector.Defaults())
			for _, cmd := range c.Commands(100) {
				w.mustApplyEncoded(cmd)
			}
		}
		if err := w.View().Check(); n%100 == 0 && err != nil {
			t.Fatal(err)
		}
		if n == 365 { // half of it: the window of events is full
			half, entries = w.snapshotSize(), w.bytes/n
		}
	}
	if err := w.View().Check(); err != nil {
		t.Fatal(err)
	}
	end := w.snapshotSize()
	t.Logf("%d entries, %d KiB of log a day; %d KiB after half a year, %d KiB after a year", w.index, entries*2>>10, half>>10, end>>10)
	if end > half+half/4 {
		t.Errorf("the state has %d bytes after half a year and %d after a year", half, end)
	}
	evals, allocs, jobs, nodes := 0, 0, 0, 0
	for range w.View().Evals("*", "") {
		evals++
	}
	for range w.View().Allocs("*", "") {
		allocs++
	}
	for range w.View().Jobs("*", "") {
		jobs++
	}
	for range w.View().Nodes("") {
		nodes++
	}
	if evals > 60 || allocs > 20 || jobs > 12 || nodes > 4 {
		t.Errorf("%d evaluations, %d allocations, %d jobs, %d nodes are left\n%s", evals, allocs, jobs, nodes, w.describeState())
	}
	if a, ok := w.View().Alloc(ship); !ok || a.ClientStatus != fleet.ClientUnknown {
		t.Errorf("the allocation that was out of sight is %+v", a)
	}
	if mean := w.bytes / int(w.index); mean > 4<<10 {
		t.Errorf("an entry has %d bytes on average", mean)
	}
}

// snapshotSize is what a snapshot of the state takes, which is what is left of the log when it
// is compacted.
func (w *harness) snapshotSize() int {
	w.Helper()
	var b bytes.Buffer
	if err := w.Persist(&b); err != nil {
		w.Fatal(err)
	}
	return b.Len()
}
