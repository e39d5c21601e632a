package virtual_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/chaos/schedule"
	"skerry/chaos/virtual"
)

const aBadQuarter = `# A quarter of an hour in which much goes wrong, one thing after the other.

length 15m
hubs 3
edges 3
operations 12/m

job shop service count=3 distinct
job report batch count=1 run_for=20s

at 1m cut edge-1 for 50s
at 2m30s leader-kill
at 4m power-cut edge-2
at 5m nat-rebind edge-3
at 6m bit-flip edge-1 bits=20
at 7m hub-pause hub-2 for 10s
at 8m crash-loop edge-3 for 20s life=5s
at 9m edge-kill edge-2 for 10s
at 10m clock-jump edge-1 for 30s by=-400d

expect node edge-1 disconnected by 2m
expect job shop running 3
expect replaced 0
expect quiet within 4m
expect void never
`

// TestABadQuarter plays a scenario with the production code of hubs and edges.
func TestABadQuarter(t *testing.T) {
	s, err := schedule.Parse("a-bad-quarter.txt", []byte(aBadQuarter))
	if err != nil {
		t.Fatal(err)
	}
	var o virtual.Outcome
	var kept bytes.Buffer
	dir := t.TempDir()
	virtual.Bubble(t, func() {
		o, err = virtual.Play{
			Schedule: s, Dir: dir, Name: "a bad quarter", Tuning: virtual.Stretched, Strict: true, History: &kept,
		}.Run(context.Background(), func() time.Duration { return 0 })
	})
	if err != nil {
		t.Fatal(err)
	}
	if o.Run.Outcome != history.Pass || len(o.Found) > 0 {
		t.Errorf("%s: %v %v", o.Run.Outcome, o.Run.Reasons, o.Found)
	}
	if o.Reached[check.BranchJournalRebuilt] == 0 || o.Reached[check.BranchDisconnected] == 0 || o.Run.Operations < 100 {
		t.Errorf("too little happened: %d operations, reached %v", o.Run.Operations, o.Reached)
	}
}
