package virtual_test

import (
	"bytes"
	"context"
	"testing"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/chaos/schedule"
	"skerry/chaos/virtual"
)

const aBadQuarter = `# A quarter of an hour in which much goes wrong, one thing after the other.

length: 15m
hubs: 3
operations: 12
edges:
  - {count: 3}
jobs:
  - {id: shop, type: service, count: 3, distinct: true}
  - {id: report, type: batch, count: 1, run_for: 20s}
faults:
  - {at: 1m, kind: cut, targets: [edge-1], for: 50s}
  - {at: 2m30s, kind: leader-kill}
  - {at: 4m, kind: power-cut, targets: [edge-2]}
  - {at: 5m, kind: nat-rebind, targets: [edge-3]}
  - {at: 6m, kind: bit-flip, targets: [edge-1], bits: 200}
  - {at: 7m, kind: hub-pause, targets: [hub-2], for: 10s}
  - {at: 8m, kind: crash-loop, targets: [edge-3], for: 20s, life: 5s}
  - {at: 9m, kind: edge-kill, targets: [edge-2], for: 10s}
  - {at: 10m, kind: clock-jump, targets: [edge-1], for: 30s, by: -9600h}
expect:
  - {about: node, name: edge-1, state: disconnected, when: by, time: 2m}
  - {about: job, job: shop, state: running, count: 3}
  - {about: replaced, count: 0}
  - {about: quiet, within: 4m}
  - {about: void, when: never}
`

// TestABadQuarter plays a scenario with the production code of hubs and edges.
func TestABadQuarter(t *testing.T) {
	s, err := schedule.Parse("a-bad-quarter.yaml", []byte(aBadQuarter))
	if err != nil {
		t.Fatal(err)
	}
	var o virtual.Outcome
	var kept bytes.Buffer
	dir := t.TempDir()
	virtual.Bubble(t, func() {
		o, err = virtual.Play{
			Schedule: s, Dir: dir, Name: "a bad quarter", Tuning: virtual.Stretched, Strict: true, History: &kept,
		}.Run(context.Background())
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
