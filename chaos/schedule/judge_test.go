package schedule_test

import (
	"strings"
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
	const world = "length 10m\nsettle 2m\nhubs 3\nedges 3\njob shop service count=3\n"
	for _, c := range []struct{ expect, why string }{
		{"job shop running 3", ""},
		{"job shop running 3 at 1m", ""},
		{"job shop running 3 from 0s to 4m30s", ""},
		{"job shop running 3 from 0s to 5m", "at 5m 2 of shop are running"},
		{"job shop running at least 2 from 0s to 12m", ""},
		{"job shop running at most 2", "at 12m 3 of shop are running"},
		{"job shop unknown 1 from 5m to 9m30s", ""},
		{"job shop unknown 1 by 4m59s", "at 4m30s 0 of shop are unknown"},
		{"job shop unknown 1 by 5m", ""},
		{"job shop unknown 1 never", "at 5m 1 of shop are unknown"},
		{"job shop lost 1 never", ""},
		{"job shop failed 1", ""},
		{"job shop complete 2", ""},
		{"alloc shop.main[0] kept", ""},
		{"alloc shop.main[0] kept at 7m", "at 7m under shop.main[0] there is a0 run/unknown, b0 run/running; first was a0"},
		{"alloc shop.main[0] replaced at 7m", ""},
		{"alloc shop.main[0] replaced", "at 12m under shop.main[0] there is a0 run/running, b0 stop/complete; first was a0"},
		{"alloc shop.main[0] unknown at 7m", ""},
		{"alloc shop.main[1] replaced", ""},
		{"alloc shop.main[1] failed", ""},
		{"alloc shop.main[2] stopped", "at 12m under shop.main[2] there is a2 stop/complete, c2 run/running; first was a2"},
		{"alloc shop.main[7] stopped", ""},
		{"alloc shop.main[7] kept", "at 12m under shop.main[7] there is ; first was "},
		{"node edge-1 disconnected by 5m", ""},
		{"node edge-1 disconnected at 5m1s", ""},
		{"node edge-1 ready at 5m", "at 5m edge-1 is disconnected"},
		{"node edge-1 ready from 1m to 1m10s", "nothing was seen of it in that time"},
		{"node edge-2 disconnected never", ""},
		{"node edge-3 ready", "nothing was seen of it in that time"},
		{"edge edge-1 runs 2 from 0s to 12m", ""},
		{"edge edge-1 runs 1 of shop", ""},
		{"edge edge-1 runs 0 of shop never", ""},
		{"edge edge-2 runs 0", ""},
		{"edge edge-2 runs 0 from 6m to 9m", "nothing was seen of it in that time"},
		{"edge edge-2 runs at least 1 by 3m", "at 3m edge-2 runs 0"},
		{"replaced 2", ""},
		{"replaced 1 of shop at 5m", ""},
		{"replaced 0", "at 12m 2 were replaced"},
		{"restarted 2 of shop", ""},
		{"restarted at most 1", "at 12m 2 tasks were started again"},
		{"refused cloned", ""},
		{"refused cloned by 7m", ""},
		{"refused cloned by 6m59s", "refused as cloned at 7m"},
		{"refused cloned never", "refused as cloned at 7m"},
		{"refused fork", "nothing was refused as fork"},
		{"refused fork never", ""},
		{"quiet within 1m30s", ""},
		{"quiet within 1m29s", "quiet after 1m30s"},
		{"void never", "never hit: clone, restore"},
	} {
		s := mustParse(t, world+"expect "+c.expect+"\n")
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
	s := mustParse(t, strings.Join([]string{
		"length 10m\nhubs 3\nedges 3\njob shop service count=3", "expect job shop running 0", "expect node edge-1 down never",
		"expect edge edge-1 runs 0 from 0s to 1m", "expect replaced 0", "expect restarted 0", "expect quiet within 1m", "",
	}, "\n"))
	for _, v := range schedule.NewExpectationChecker(s).Verdicts(schedule.RunOutcome{Quiet: -1}) {
		if v.Met || v.Why == "" {
			t.Errorf("%s is met: %+v", v.Expectation, v)
		}
	}
}
