package virtual_test

import (
	"context"
	"testing"
	"time"

	"skerry/chaos/history"
	"skerry/chaos/schedule"
	"skerry/chaos/virtual"
)

// The drain is over while no hub leads, and for longer than anybody waits for an answer.
const drainedInTrouble = `length 9m
hubs 3
edges 2

job shop service count=1 distinct
job late service count=2 distinct start=7m

at 1m drain edge-1 for 1m deadline=10s
at 1m45s majority-cut for 4m

expect job late running 2
expect quiet within 4m
expect void never
`

// TestADrainIsUndoneByWhoeverLeads ends a drain while nobody can take it, and has the edge
// take work afterwards.
func TestADrainIsUndoneByWhoeverLeads(t *testing.T) {
	s, err := schedule.Parse("drained-in-trouble.txt", []byte(drainedInTrouble))
	if err != nil {
		t.Fatal(err)
	}
	var o virtual.Outcome
	dir := t.TempDir()
	virtual.Bubble(t, func() {
		o, err = virtual.Play{
			Schedule: s, Dir: dir, Name: "drained in trouble", Tuning: virtual.Stretched, Strict: true,
		}.Run(context.Background(), func() time.Duration { return 0 })
	})
	if err != nil {
		t.Fatal(err)
	}
	if o.Run.Outcome != history.Pass || len(o.Found) > 0 {
		t.Errorf("%s: %v %v", o.Run.Outcome, o.Run.Reasons, o.Found)
	}
}
