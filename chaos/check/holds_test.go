package check_test

import (
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// askOnSite tells of a request of somebody on the site of edge-1 about its allocation.
func (p *violationHarness) askOnSite(what string) {
	p.feedObservation(check.Observation{Request: &check.Request{
		Edge: p.e.name, Alloc: p.id, What: what, Job: p.job.ID, Name: p.allocs[p.id].Name,
	}})
}

// journalHold journals that somebody on site stopped the allocation. The hubs hear of it.
func (p *violationHarness) journalHold() {
	hold := &fleet.Hold{By: "ann", Reason: "smoke"}
	p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionOperator, Alloc: p.id, Hold: hold, Message: hold.String()})
	p.sendRows(p.e)
}

// stopOnSite has somebody on site stop the allocation of edge-1, whose task ends. The hubs show that if they shall.
func (p *violationHarness) stopOnSite(shown bool) {
	p.askOnSite(check.AskStop)
	p.journalHold()
	p.askOnSite(check.StopRecorded)
	p.observeTask(p.e, p.id, check.TaskStopped)
	p.journalStatus(p.e, p.id, fleet.ClientPending, fleet.TaskKilled)
	p.sendRows(p.e)
	if shown {
		p.allocs[p.id].Held = &fleet.Hold{Reason: "smoke"}
	}
	p.advanceTime(5 * time.Second)
}

// startOnSite has somebody on site start the allocation again.
func (p *violationHarness) startOnSite() {
	p.askOnSite(check.AskStart)
	p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionOperator, Alloc: p.id, Released: true})
	p.askOnSite(check.StartRecorded)
	p.allocs[p.id].Held = nil
	p.sendRows(p.e)
}

func inHolds() []violationCase {
	return []violationCase{
		{"what was stopped on site starts again", check.HeldOnSite, nil, func(p *violationHarness) {
			p.stopOnSite(true)
			p.observeTask(p.e, p.id, check.TaskStarted)
			p.journalStatus(p.e, p.id, fleet.ClientRunning, fleet.TaskStarted)
			p.sendRows(p.e)
		}},
		{"what was stopped on site goes on", check.HeldOnSite, nil, func(p *violationHarness) {
			p.askOnSite(check.AskStop)
			p.journalHold()
			p.askOnSite(check.StopRecorded)
			p.allocs[p.id].Held = &fleet.Hold{Reason: "smoke"}
			p.advanceTime(30 * time.Second)
		}},
		{"a stop on site is reported twice", check.HeldOnSite, nil, func(p *violationHarness) {
			p.stopOnSite(true)
			p.journalHold()
		}},
		{"hubs do not show a stop on site", check.HeldOnSite, nil, func(p *violationHarness) {
			p.stopOnSite(false)
			p.advanceTime(25 * time.Second)
		}},
		{"what was stopped on site is replaced", check.HeldOnSite, nil, func(p *violationHarness) {
			p.stopOnSite(true)
			p.allocs[p.id].DesiredStatus, p.allocs[p.id].ModifyIndex = fleet.DesiredStop, p.index+1
			p.mutate = func(o *check.Observation) { // one plan stops it and places another one
				if o.Applied != nil && o.Applied.Effects != nil {
					e := *o.Applied.Effects
					e.Allocs = append([]fleet.Alloc{*p.allocs[p.id]}, e.Allocs...)
					o.Applied.Effects = &e
				}
			}
			p.commitPlacement(p.job, 0, p.other, p.id)
			p.mutate = nil
		}},
		{"what was started on site does not run", check.HeldOnSite, nil, func(p *violationHarness) {
			p.stopOnSite(true)
			p.startOnSite()
			p.advanceTime(70 * time.Second)
		}},
	}
}

// TestHoldsThatHold has people on site stop and start allocations, as they may.
func TestHoldsThatHold(t *testing.T) {
	for _, c := range []struct {
		name   string
		branch check.Branch // that is reached; "": none
		do     func(p *violationHarness)
	}{
		{"it is stopped, started, and stopped again", "", func(p *violationHarness) {
			p.stopOnSite(true)
			p.startOnSite()
			p.runAllocation(p.e, p.id)
			p.advanceTime(2 * time.Minute)
			p.stopOnSite(true)
			p.advanceTime(2 * time.Minute)
		}},
		{"it stays stopped over a reboot without a link", check.BranchHeldAcrossStart, func(p *violationHarness) {
			p.stopOnSite(true)
			heal := p.cutEdgeLink(p.e)
			p.observeProcess(p.e, check.ProcessReboot)
			p.advanceTime(5 * time.Second)
			p.e.boots++
			p.e.booted = p.at
			p.observeProcess(p.e, check.ProcessStart)
			p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionAgent})
			p.advanceTime(30 * time.Second)
			heal()
		}},
		{"a newer version overrules it", check.BranchHoldOverruled, func(p *violationHarness) {
			p.stopOnSite(true)
			next := *p.job
			next.TaskGroups = []fleet.TaskGroup{next.TaskGroups[0]}
			next.TaskGroups[0].LocalControl = &fleet.LocalControl{Until: fleet.HoldUntilNextVersion}
			next.Version = 1
			a := p.allocs[p.id]
			a.Job, a.JobVersion, a.Held = &next, 1, nil
			p.commitAllocs(p.id)
			p.runAllocation(p.e, p.id)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newViolationHarness(t, nil)
			c.do(p)
			p.advanceTime(10 * time.Second)
			for _, v := range p.found {
				t.Error(v)
			}
			if c.branch != "" && p.m.Reached()[c.branch] == 0 {
				t.Errorf("the branch %q was not reached", c.branch)
			}
		})
	}
}
