package check_test

import (
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// Two inputs of a dispatch, and its child.
var (
	givenInput = check.DescribeInput([]byte("payload"), map[string]string{"order": "1"})
	otherInput = check.DescribeInput([]byte("payload"), map[string]string{"order": "2"})
)

const errandChild fleet.JobID = "errand/dispatch-1"

// askDispatch tells of a user who dispatches a job.
func (p *violationHarness) askDispatch(flaw string) {
	p.feedObservation(check.Observation{Dispatch: &check.DispatchCall{Job: "errand", Token: "once", Input: givenInput, Flaw: flaw}})
}

// acknowledgeDispatch tells of the acknowledgement of the dispatch.
func (p *violationHarness) acknowledgeDispatch(flaw string, child fleet.JobID) {
	p.feedObservation(check.Observation{Dispatch: &check.DispatchCall{Job: "errand", Token: "once", Input: givenInput, Flaw: flaw, Child: child}})
}

// applyDispatch tells of an entry that dispatches the job.
func (p *violationHarness) applyDispatch(input string, children int) {
	p.applyEntry("job_dispatch", &check.Effects{Dispatched: &check.Dispatch{Job: "errand", Child: errandChild, Token: "once", Input: input, Children: children}})
}

// startDispatched tells of a task of the child that starts.
func (p *violationHarness) startDispatched(input string) {
	p.feedObservation(check.Observation{Given: &check.GivenInput{Edge: p.e.name, Child: errandChild, Input: input}})
}

func inDispatches() []violationCase {
	return []violationCase{
		{"a dispatch makes two children at once", check.LaunchedOnce, nil, func(p *violationHarness) {
			p.askDispatch("")
			p.applyDispatch(givenInput, 2)
		}},
		{"a child has other meta than were given", check.LaunchedOnce, nil, func(p *violationHarness) {
			p.askDispatch("")
			p.applyDispatch(otherInput, 1)
		}},
		{"a dispatch with a flaw makes a child", check.LaunchedOnce, nil, func(p *violationHarness) {
			p.askDispatch("missing-meta")
			p.applyDispatch(givenInput, 1)
		}},
		{"a dispatch with a flaw is acknowledged", check.LaunchedOnce, nil, func(p *violationHarness) {
			p.askDispatch("missing-meta")
			p.acknowledgeDispatch("missing-meta", "")
			p.acknowledgeDispatch("missing-meta", errandChild)
		}},
		{"a dispatch is acknowledged that no hub applies", check.LaunchedOnce, nil, func(p *violationHarness) {
			p.askDispatch("")
			p.acknowledgeDispatch("", errandChild)
			p.advanceTime(70 * time.Second)
		}},
		{"a repeated dispatch is acknowledged with another child", check.LaunchedOnce, nil, func(p *violationHarness) {
			p.askDispatch("")
			p.applyDispatch(givenInput, 1)
			p.acknowledgeDispatch("", errandChild)
			p.acknowledgeDispatch("", "errand/dispatch-2")
			p.advanceTime(70 * time.Second)
		}},
		{"a task finds other meta than were given", check.LaunchedOnce, nil, func(p *violationHarness) {
			p.askDispatch("")
			p.applyDispatch(givenInput, 1)
			p.startDispatched(otherInput)
		}},
	}
}

// TestDispatchesAsTheyMayBe has users dispatch a job as they may.
func TestDispatchesAsTheyMayBe(t *testing.T) {
	for name, do := range map[string]func(p *violationHarness){
		"repeated, and acknowledged twice": func(p *violationHarness) {
			p.askDispatch("")
			for range 2 {
				p.applyDispatch(givenInput, 1)
				p.acknowledgeDispatch("", errandChild)
			}
			p.startDispatched(givenInput)
		},
		"refused for its flaw": func(p *violationHarness) { p.askDispatch("payload") },
		"by somebody who is not observed": func(p *violationHarness) {
			p.applyDispatch(givenInput, 1)
			p.startDispatched(otherInput)
		},
		"forgotten by hubs that were put back": func(p *violationHarness) {
			p.askDispatch("")
			p.applyDispatch(givenInput, 1)
			p.acknowledgeDispatch("", errandChild)
			p.putBack(p.index - 1)
			p.startDispatched(otherInput)
		},
		"acknowledged before its entry is observed": func(p *violationHarness) {
			p.askDispatch("")
			p.acknowledgeDispatch("", errandChild)
			p.advanceTime(5 * time.Second)
			p.applyDispatch(givenInput, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newViolationHarness(t, nil)
			do(p)
			p.advanceTime(70 * time.Second)
			if len(p.found) > 0 {
				t.Errorf("found %v", p.found)
			}
		})
	}
}
