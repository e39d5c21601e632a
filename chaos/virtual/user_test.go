package virtual_test

import (
	"context"
	"testing"

	"skerry/chaos/history"
	"skerry/chaos/schedule"
	"skerry/chaos/virtual"
)

// The drain is over while no hub leads, and for longer than anybody waits for an answer.
const drainedInTrouble = `length: 9m
hubs: 3
edges:
  - {count: 2}
jobs:
  - {id: shop, type: service, count: 1, distinct: true}
  - {id: late, type: service, count: 2, distinct: true, start: 7m}
faults:
  - {at: 1m, kind: drain, targets: [edge-1], for: 1m, deadline: 10s}
  - {at: 1m45s, kind: majority-cut, for: 4m}
expect:
  - {about: job, job: late, state: running, count: 2}
  - {about: quiet, within: 4m}
  - {about: void, when: never}
`

// TestADrainIsUndoneByWhoeverLeads ends a drain while nobody can take it, and has the edge
// take work afterwards.
func TestADrainIsUndoneByWhoeverLeads(t *testing.T) {
	s, err := schedule.Parse("drained-in-trouble.yaml", []byte(drainedInTrouble))
	if err != nil {
		t.Fatal(err)
	}
	var o virtual.Outcome
	dir := t.TempDir()
	virtual.Bubble(t, func() {
		o, err = virtual.Play{
			Schedule: s, Dir: dir, Name: "drained in trouble", Tuning: virtual.Stretched, Strict: true,
		}.Run(context.Background())
	})
	if err != nil {
		t.Fatal(err)
	}
	if o.Run.Outcome != history.Pass || len(o.Found) > 0 {
		t.Errorf("%s: %v %v", o.Run.Outcome, o.Run.Reasons, o.Found)
	}
}
