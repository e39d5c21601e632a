package check_test

import (
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// giveIdentity has the task of the job ask for an identity of a minute from now on.
func (p *violationHarness) giveIdentity() {
	p.job.TaskGroups[0].Tasks[0].Identity = &fleet.WorkloadIdentity{Name: fleet.DefaultIdentity, File: true, TTL: time.Minute}
	p.commitAllocs(p.id)
}

// giveOfflineIdentity is giveIdentity, and lets the edge renew the identity itself.
func (p *violationHarness) giveOfflineIdentity() {
	p.giveIdentity()
	p.job.TaskGroups[0].Tasks[0].Identity.Offline = true
	p.commitAllocs(p.id)
}

// observeIdentity tells of an identity of the task on edge-1 that lasts for so long; 0: there is none.
func (p *violationHarness) observeIdentity(lasts time.Duration) {
	h := check.HeldIdentities{Edge: p.e.name, Ends: map[check.TaskKey]time.Duration{}}
	if lasts > 0 {
		h.Ends[check.TaskKey{Alloc: p.id, Task: "main"}] = p.at + lasts
	}
	p.feedObservation(check.Observation{Identity: &h})
}

func inIdentities() []violationCase {
	return []violationCase{
		{"an identity is not renewed", check.IdentitiesRenewed, nil, func(p *violationHarness) {
			p.giveIdentity()
			p.observeIdentity(time.Minute)
			p.advanceTime(90 * time.Second)
		}},
		{"an identity is not renewed after the edge is back", check.IdentitiesRenewed, nil, func(p *violationHarness) {
			p.giveIdentity()
			p.observeIdentity(time.Minute)
			heal := p.disconnectEdge()
			p.advanceTime(2 * time.Minute)
			heal()
			p.commitClientStatus(p.id, fleet.ClientRunning)
			p.advanceTime(40 * time.Second)
		}},
		{"a running task has no identity", check.IdentitiesRenewed, nil, func(p *violationHarness) {
			p.giveIdentity()
			p.observeIdentity(0)
			p.advanceTime(30 * time.Second)
		}},
		{"an offline identity expires while its edge is away", check.IdentitiesRenewed, nil, func(p *violationHarness) {
			p.giveOfflineIdentity()
			p.observeIdentity(time.Minute)
			p.advanceTime(40 * time.Second)
			p.disconnectEdge()
			p.advanceTime(2 * time.Minute)
		}},
		{"a hub accepts an identity that has expired", check.Permitted, nil, func(p *violationHarness) {
			p.feedObservation(check.Observation{Probe: &check.Probe{Hub: "hub-1", Token: "an expired identity", Attempt: "read a variable", Status: 200}})
		}},
	}
}

// TestIdentitiesAsTheyMayBe has edges get identities when they have to.
func TestIdentitiesAsTheyMayBe(t *testing.T) {
	for _, c := range []struct {
		name   string
		branch check.Branch // that is reached; "": none
		do     func(p *violationHarness)
	}{
		{"an identity is renewed", "", func(p *violationHarness) {
			p.giveIdentity()
			for range 5 {
				p.observeIdentity(time.Minute)
				p.advanceTime(30 * time.Second)
			}
		}},
		{"an identity expires without a link, and is renewed after it is back", check.BranchIdentityExpired, func(p *violationHarness) {
			p.giveIdentity()
			p.observeIdentity(time.Minute)
			heal := p.disconnectEdge()
			p.advanceTime(5 * time.Minute)
			heal()
			p.commitClientStatus(p.id, fleet.ClientRunning)
			p.advanceTime(5 * time.Second)
			p.observeIdentity(2 * time.Minute)
			p.advanceTime(time.Minute)
		}},
		{"an offline identity is renewed by its edge", check.BranchIdentityOffline, func(p *violationHarness) {
			p.giveOfflineIdentity()
			p.observeIdentity(time.Minute)
			p.advanceTime(40 * time.Second)
			p.disconnectEdge()
			for range 5 {
				p.observeIdentity(time.Minute)
				p.advanceTime(45 * time.Second)
			}
		}},
		{"a task without an identity has none", "", func(p *violationHarness) {
			p.observeIdentity(0)
			p.advanceTime(2 * time.Minute)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newViolationHarness(t, nil)
			c.do(p)
			p.mustFindNothing()
			if c.branch != "" && p.m.Reached()[c.branch] == 0 {
				t.Errorf("the branch %q was not reached", c.branch)
			}
		})
	}
}
