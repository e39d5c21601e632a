package schedule_test

import (
	"testing"
	"time"

	"skerry/chaos/schedule"
	"skerry/fleet"
)

// addSampleRun is a run that the judge is told of: shop's allocation a0 on edge-1 goes out of
// sight at 5 min, is replaced by b0 at 6 min, and stays when it is back at 10 min; a1
// fails and is followed by b1; a2 gets a new version of the job, as c2.
func addSampleRun(j *schedule.ExpectationChecker) {
	alloc := func(id, name, client, desired, after string, version uint64) fleet.Alloc {
		return fleet.Alloc{
			ID: fleet.AllocID(id), Name: name, JobID: "shop", JobVersion: version, ClientStatus: client,
			DesiredStatus: desired, PreviousAllocation: fleet.AllocID(after),
		}
	}
	for _, start := range []string{"a0", "a1", "a2", "b0", "b1", "c2", "a0", "a0"} {
		j.AddTaskStart(fleet.AllocID(start), "main")
	}
	for at := time.Duration(0); at <= 12*time.Minute; at += 30 * time.Second {
		l := schedule.Snapshot{
			At: at, Hubs: at != time.Minute, Nodes: map[string]fleet.NodeStatus{"edge-1": "ready", "edge-2": "ready"},
			Tasks: map[string][]fleet.AllocID{"edge-1": {"a0", "z9"}, "edge-2": {}},
		}
		a0, b0 := alloc("a0", "shop.main[0]", "running", "run", "", 0), alloc("b0", "shop.main[0]", "running", "run", "a0", 0)
		a1, b1 := alloc("a1", "shop.main[1]", "failed", "stop", "", 0), alloc("b1", "shop.main[1]", "running", "run", "a1", 0)
		a2, c2 := alloc("a2", "shop.main[2]", "complete", "stop", "", 0), alloc("c2", "shop.main[2]", "running", "run", "a2", 1)
		switch {
		case at < 5*time.Minute:
			a1.ClientStatus, a1.DesiredStatus = "running", "run"
			a2.ClientStatus, a2.DesiredStatus = "running", "run"
			l.Allocs = []fleet.Alloc{a0, a1, a2}
		case at < 6*time.Minute:
			l.Nodes["edge-1"], a0.ClientStatus = "disconnected", "unknown"
			l.Allocs = []fleet.Alloc{a0, a1, b1, a2, c2}
		case at < 10*time.Minute:
			l.Nodes["edge-1"], a0.ClientStatus = "disconnected", "unknown"
			l.Allocs = []fleet.Alloc{a0, b0, a1, b1, a2, c2}
			delete(l.Tasks, "edge-2")
		default:
			b0.ClientStatus, b0.DesiredStatus = "complete", "stop"
			l.Allocs = []fleet.Alloc{a0, b0, a1, b1, a2, c2}
		}
		if !l.Hubs {
			l.Nodes, l.Allocs = nil, nil
		}
		j.AddSnapshot(l)
	}
	j.AddRefusal(7*time.Minute, fleet.CodeCloned)
	j.AddRefusal(9*time.Minute, fleet.CodeCloned)
}

func TestExpectationChecker(t *testing.T) {
	const world = "length: 10m\nsettle: 2m\nhubs: 3\nedges: [{count: 3}]\njobs: [{id: shop, type: service, count: 3}]\n"
	for _, c := range []struct{ expect, why string }{
		{`{about: job, job: shop, state: running, count: 3}`, ""},
		{`{about: job, job: shop, state: running, count: 3, when: at, time: 1m}`, ""},
		{`{about: job, job: shop, state: running, count: 3, when: from, time: 0s, until: 4m30s}`, ""},
		{`{about: job, job: shop, state: running, count: 3, when: from, time: 0s, until: 5m}`, "at 5m 2 of shop are running"},
		{`{about: job, job: shop, state: running, compare: at least, count: 2, when: from, time: 0s, until: 12m}`, ""},
		{`{about: job, job: shop, state: running, compare: at most, count: 2}`, "at 12m 3 of shop are running"},
		{`{about: job, job: shop, state: unknown, count: 1, when: from, time: 5m, until: 9m30s}`, ""},
		{`{about: job, job: shop, state: unknown, count: 1, when: by, time: 4m59s}`, "at 4m30s 0 of shop are unknown"},
		{`{about: job, job: shop, state: unknown, count: 1, when: by, time: 5m}`, ""},
		{`{about: job, job: shop, state: unknown, count: 1, when: never}`, "at 5m 1 of shop are unknown"},
		{`{about: job, job: shop, state: lost, count: 1, when: never}`, ""},
		{`{about: job, job: shop, state: failed, count: 1}`, ""},
		{`{about: job, job: shop, state: complete, count: 2}`, ""},
		{`{about: alloc, name: "shop.main[0]", state: kept}`, ""},
		{`{about: alloc, name: "shop.main[0]", state: kept, when: at, time: 7m}`, "at 7m under shop.main[0] there is a0 run/unknown, b0 run/running; first was a0"},
		{`{about: alloc, name: "shop.main[0]", state: replaced, when: at, time: 7m}`, ""},
		{`{about: alloc, name: "shop.main[0]", state: replaced}`, "at 12m under shop.main[0] there is a0 run/running, b0 stop/complete; first was a0"},
		{`{about: alloc, name: "shop.main[0]", state: unknown, when: at, time: 7m}`, ""},
		{`{about: alloc, name: "shop.main[1]", state: replaced}`, ""},
		{`{about: alloc, name: "shop.main[1]", state: failed}`, ""},
		{`{about: alloc, name: "shop.main[2]", state: stopped}`, "at 12m under shop.main[2] there is a2 stop/complete, c2 run/running; first was a2"},
		{`{about: alloc, name: "shop.main[7]", state: stopped}`, ""},
		{`{about: alloc, name: "shop.main[7]", state: kept}`, "at 12m under shop.main[7] there is ; first was "},
		{`{about: node, name: edge-1, state: disconnected, when: by, time: 5m}`, ""},
		{`{about: node, name: edge-1, state: disconnected, when: at, time: 5m1s}`, ""},
		{`{about: node, name: edge-1, state: ready, when: at, time: 5m}`, "at 5m edge-1 is disconnected"},
		{`{about: node, name: edge-1, state: ready, when: from, time: 1m, until: 1m10s}`, "nothing was seen of it in that time"},
		{`{about: node, name: edge-2, state: disconnected, when: never}`, ""},
		{`{about: node, name: edge-3, state: ready}`, "nothing was seen of it in that time"},
		{`{about: edge, name: edge-1, count: 2, when: from, time: 0s, until: 12m}`, ""},
		{`{about: edge, name: edge-1, count: 1, job: shop}`, ""},
		{`{about: edge, name: edge-1, count: 0, job: shop, when: never}`, ""},
		{`{about: edge, name: edge-2, count: 0}`, ""},
		{`{about: edge, name: edge-2, count: 0, when: from, time: 6m, until: 9m}`, "nothing was seen of it in that time"},
		{`{about: edge, name: edge-2, compare: at least, count: 1, when: by, time: 3m}`, "at 3m edge-2 runs 0"},
		{`{about: replaced, count: 2}`, ""},
		{`{about: replaced, count: 1, job: shop, when: at, time: 5m}`, ""},
		{`{about: replaced, count: 0}`, "at 12m 2 were replaced"},
		{`{about: restarted, count: 2, job: shop}`, ""},
		{`{about: restarted, compare: at most, count: 1}`, "at 12m 2 tasks were started again"},
		{`{about: refused, state: cloned}`, ""},
		{`{about: refused, state: cloned, when: by, time: 7m}`, ""},
		{`{about: refused, state: cloned, when: by, time: 6m59s}`, "refused as cloned at 7m"},
		{`{about: refused, state: cloned, when: never}`, "refused as cloned at 7m"},
		{`{about: refused, state: fork}`, "nothing was refused as fork"},
		{`{about: refused, state: fork, when: never}`, ""},
		{`{about: quiet, within: 1m30s}`, ""},
		{`{about: quiet, within: 1m29s}`, "quiet after 1m30s"},
		{`{about: void, when: never}`, "never hit: clone, restore"},
	} {
		s := mustParse(t, world+"expect: ["+c.expect+"]\n")
		j := schedule.NewExpectationChecker(s)
		addSampleRun(j)
		v := j.Verdicts(schedule.RunOutcome{Quiet: 90 * time.Second, Void: []string{"clone", "restore"}})[0]
		if v.Why != c.why || v.Met != (c.why == "") {
			t.Errorf("%s: %t %q, want %q", v.Expectation, v.Met, v.Why, c.why)
		}
	}
}

// TestCheckerWithoutSnapshots checks that nothing is met where nothing was seen.
func TestCheckerWithoutSnapshots(t *testing.T) {
	s := mustParse(t, `length: 10m
hubs: 3
edges:
  - {count: 3}
jobs:
  - {id: shop, type: service, count: 3}
expect:
  - {about: job, job: shop, state: running, count: 0}
  - {about: node, name: edge-1, state: down, when: never}
  - {about: edge, name: edge-1, count: 0, when: from, time: 0s, until: 1m}
  - {about: replaced, count: 0}
  - {about: restarted, count: 0}
  - {about: quiet, within: 1m}
`)
	for _, v := range schedule.NewExpectationChecker(s).Verdicts(schedule.RunOutcome{Quiet: -1}) {
		if v.Met || v.Why == "" {
			t.Errorf("%s is met: %+v", v.Expectation, v)
		}
	}
}
