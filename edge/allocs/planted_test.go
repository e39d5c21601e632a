//go:build planted

package allocs_test

import (
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/planted"
	"skerry/syncproto"
)

// Each planted bug does what it is there for: an allocation that should run does
// not.
func TestPlantedBugsMisbehave(t *testing.T) {
	for _, c := range []struct {
		bug planted.Bug
		do  func(t *testing.T, n *fakeJournal, f *factory) (runs bool)
	}{
		{planted.StopByAbsence, deliverAnother},
		{planted.StopAtLostAfter, loseTheLink},
		{planted.RebootForgets, reboot},
		{planted.WindowForgotten, replaceAtNight},
	} {
		t.Run(string(c.bug), func(t *testing.T) {
			run := func(want bool) {
				synctest.Test(t, func(t *testing.T) {
					if runs := c.do(t, newFakeJournal(), &factory{}); runs != want {
						t.Fatalf("it runs: %t, want %t", runs, want)
					}
				})
			}
			run(true)
			defer planted.Plant(c.bug)()
			run(false)
		})
	}
}

func deliverAnother(t *testing.T, n *fakeJournal, f *factory) bool {
	n.wants["a"] = want("a", 0)
	l := mustStartAgent(t, n, f, nil)
	<-l.Recovered()
	synctest.Wait()
	d := syncproto.Desired{Index: 5, Run: []syncproto.DesiredAlloc{{ID: "b", ModifyIndex: 4, JobHash: "h"}}}
	if _, _, err := l.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return !n.States()["a"].Terminal()
}

func replaceAtNight(t *testing.T, n *fakeJournal, f *factory) bool {
	n.wants["old"] = named("old")
	s := &windowTest{T: t, n: n, f: f}
	s.runAgent()
	s.deliverReplacement(night, "new")
	return !n.States()["old"].Terminal()
}

func loseTheLink(t *testing.T, n *fakeJournal, f *factory) bool {
	w, after := want("a", 0), time.Minute
	w.Alloc.Job.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: &after}
	n.wants["a"], n.lastHeartbeat = w, time.Now()
	l := mustStartAgent(t, n, f, nil)
	<-l.Recovered()
	time.Sleep(time.Hour)
	return !n.States()["a"].Terminal()
}

func reboot(t *testing.T, n *fakeJournal, f *factory) bool {
	n.wants["a"] = want("a", 0)
	l := mustStartAgent(t, n, f, nil)
	<-l.Recovered()
	synctest.Wait()
	l.stopAgent()
	n.boot = boot2
	mustStartAgent(t, n, f, nil)
	synctest.Wait()
	return len(f.runnersOf("a")) == 2
}
