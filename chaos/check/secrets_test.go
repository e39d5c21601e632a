package check_test

import (
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

const (
	jobSecret  = "nomad/jobs/job"
	lockedPath = "work/leader"
)

// observeOperation tells of an operation on a variable that took a second.
func (p *violationHarness) observeOperation(o check.VariableOperation) {
	o.Call = p.at
	p.advanceTime(time.Second)
	p.feedObservation(check.Observation{Variable: &o})
}

// changeSecret has a user write the variable of the job, as change number n.
func (p *violationHarness) changeSecret(n int) {
	p.observeOperation(check.VariableOperation{Client: "ann", Does: check.OpWrite, Path: jobSecret, Value: n, Outcome: check.OutcomeOK})
}

// observeHeld tells of the variable of the job as edge-1 has it; 0: it has none.
func (p *violationHarness) observeHeld(n int) {
	h := check.HeldVariables{Edge: p.e.name, Values: map[string]int{}}
	if n > 0 {
		h.Values[jobSecret] = n
	}
	p.feedObservation(check.Observation{Held: &h})
}

// lockAs has a client acquire, renew or release a lock of 30 s.
func (p *violationHarness) lockAs(client, does string) {
	p.observeOperation(check.VariableOperation{Client: client, Does: does, Path: lockedPath, Outcome: check.OutcomeOK, TTL: 30 * time.Second})
}

func inSecrets() []violationCase {
	read := func(p *violationHarness, outcome string, n int) {
		p.observeOperation(check.VariableOperation{Client: "bob", Does: check.OpRead, Path: jobSecret, Outcome: outcome, Value: n})
	}
	deliver := func(p *violationHarness, edge, path string) {
		p.feedObservation(check.Observation{Delivered: &check.DeliveredVariables{Edge: edge, Paths: []string{path}}})
	}
	return []violationCase{
		{"a secret is in clear in a file", check.SecretsSealed, nil, func(p *violationHarness) {
			p.feedObservation(check.Observation{Search: &check.SecretSearch{Files: 3, Found: []string{"hub-1/raft/log"}}})
		}},
		{"an edge gets the variable of a job that it does not run", check.SecretsSealed, nil, func(p *violationHarness) {
			deliver(p, p.other.name, jobSecret)
		}},
		{"an edge gets a variable that no job may read", check.SecretsSealed, nil, func(p *violationHarness) {
			deliver(p, p.e.name, "work/notes")
		}},
		{"a variable is read as it was before", check.NewestVariables, nil, func(p *violationHarness) {
			p.changeSecret(1)
			p.changeSecret(2)
			read(p, check.OutcomeOK, 1)
		}},
		{"a conflict shows a variable as it was before", check.NewestVariables, nil, func(p *violationHarness) {
			p.changeSecret(1)
			p.changeSecret(2)
			p.observeOperation(check.VariableOperation{Does: check.OpWrite, Path: jobSecret, Outcome: check.OutcomeConflict, Value: 3, Found: 1})
		}},
		{"a variable is not found", check.NewestVariables, nil, func(p *violationHarness) {
			p.changeSecret(1)
			read(p, check.OutcomeNotFound, 0)
		}},
		{"a deleted variable is read", check.NewestVariables, nil, func(p *violationHarness) {
			p.changeSecret(1)
			p.observeOperation(check.VariableOperation{Does: check.OpDelete, Path: jobSecret, Outcome: check.OutcomeOK, Value: 2})
			read(p, check.OutcomeOK, 1)
		}},
		{"a variable cannot be decrypted", check.NewestVariables, nil, func(p *violationHarness) {
			p.observeOperation(check.VariableOperation{Does: check.OpRead, Path: jobSecret, Outcome: check.OutcomeUnknown, Failed: "there is no root key 7"})
		}},
		{"an edge does not get a change", check.NewestVariables, nil, func(p *violationHarness) {
			p.changeSecret(1)
			p.observeHeld(1)
			p.changeSecret(2)
			p.advanceTime(30 * time.Second)
		}},
		{"an edge does not hear of a deletion", check.NewestVariables, nil, func(p *violationHarness) {
			p.changeSecret(1)
			p.observeHeld(1)
			p.observeOperation(check.VariableOperation{Does: check.OpDelete, Path: jobSecret, Outcome: check.OutcomeOK, Value: 2})
			p.advanceTime(30 * time.Second)
		}},
		{"an edge forgets a variable without a link", check.NewestVariables, nil, func(p *violationHarness) {
			p.changeSecret(1)
			p.observeHeld(1)
			p.advanceTime(10 * time.Second)
			p.disconnectEdge()
			p.observeHeld(0)
			p.advanceTime(10 * time.Second)
		}},
		{"an edge forgets a variable over a start without a link", check.NewestVariables, nil, func(p *violationHarness) {
			p.changeSecret(2)
			p.observeHeld(2)
			p.advanceTime(10 * time.Second)
			p.disconnectEdge()
			p.observeProcess(p.e, check.ProcessKill)
			p.advanceTime(time.Second)
			p.observeProcess(p.e, check.ProcessStart)
			p.observeHeld(1)
			p.advanceTime(10 * time.Second)
		}},
		{"two clients have a lock", check.OneHolder, nil, func(p *violationHarness) {
			p.lockAs("ann", check.OpLock)
			p.advanceTime(20 * time.Second)
			p.lockAs("ann", check.OpRenew)
			p.advanceTime(20 * time.Second)
			p.lockAs("bob", check.OpLock)
		}},
	}
}

// TestVariablesAsTheyMayBe has users and edges see of variables what they may.
func TestVariablesAsTheyMayBe(t *testing.T) {
	for _, c := range []struct {
		name   string
		branch check.Branch // that is reached; "": none
		do     func(p *violationHarness)
	}{
		{"an edge keeps a variable over a start without a link", check.BranchVariableKept, func(p *violationHarness) {
			p.changeSecret(1)
			p.observeHeld(1)
			p.advanceTime(10 * time.Second)
			heal := p.disconnectEdge()
			p.changeSecret(2)
			p.observeProcess(p.e, check.ProcessKill)
			p.advanceTime(time.Second)
			p.observeProcess(p.e, check.ProcessStart)
			p.observeHeld(1)
			p.advanceTime(2 * time.Minute)
			p.changeSecret(3)
			heal()
			p.observeHeld(3)
		}},
		{"an edge gets what changed while it was away", check.BranchVariableCaughtUp, func(p *violationHarness) {
			p.changeSecret(1)
			p.observeHeld(1)
			heal := p.disconnectEdge()
			p.changeSecret(2)
			p.advanceTime(5 * time.Minute)
			heal()
			p.advanceTime(5 * time.Second)
			p.observeHeld(2)
		}},
		{"a hub that comes back lacks a new state key for a moment", "", func(p *violationHarness) {
			p.feedObservation(check.Observation{Hub: &check.Hub{Name: "hub-2"}})
			p.beginFault("minority-cut", []check.Effect{check.Severs}, "hub-2")()
			p.advanceTime(time.Second)
			p.observeOperation(check.VariableOperation{Does: check.OpRead, Path: jobSecret, Outcome: check.OutcomeUnknown, Failed: "it is sealed with another key"})
		}},
		{"an edge heard of a deletion, and not of what was written after it", "", func(p *violationHarness) {
			p.changeSecret(1)
			p.observeHeld(1)
			p.advanceTime(10 * time.Second)
			heal := p.disconnectEdge()
			p.observeOperation(check.VariableOperation{Does: check.OpDelete, Path: jobSecret, Outcome: check.OutcomeOK, Value: 2})
			p.changeSecret(3)
			p.observeHeld(0)
			p.advanceTime(10 * time.Second)
			heal()
			p.observeHeld(3)
		}},
		{"another allocation needs what its edge has forgotten with the one before", "", func(p *violationHarness) {
			p.changeSecret(1)
			p.feedObservation(check.Observation{Held: &check.HeldVariables{Edge: p.other.name, Values: map[string]int{jobSecret: 1}}})
			p.advanceTime(10 * time.Second)
			heal := p.cutEdgeLink(p.other)
			p.advanceTime(10 * time.Second)
			p.feedObservation(check.Observation{Held: &check.HeldVariables{Edge: p.other.name}})
			p.advanceTime(10 * time.Second)
			second := p.commitPlacement(p.job, 1, p.other, "")
			p.at += time.Second
			p.observeTask(p.other, second, check.TaskStarted)
			p.at += 6 * time.Second
			p.feedObservation(check.Observation{Dial: &check.Dial{Edge: p.e.name}})
			p.feedObservation(check.Observation{Held: &check.HeldVariables{Edge: p.other.name, Values: map[string]int{jobSecret: 1}}})
			heal()
			p.stopAllocation(p.other, second)
		}},
		{"a revoked edge forgets its variables", "", func(p *violationHarness) {
			p.changeSecret(1)
			p.observeHeld(1)
			p.advanceTime(10 * time.Second)
			p.beginFault("node-revoke", []check.Effect{check.Revokes, check.Severs}, p.e.name)
			p.advanceTime(time.Second)
			p.e.linked = false
			p.advanceTime(2 * time.Second)
			p.observeHeld(0)
			p.advanceTime(10 * time.Second)
		}},
		{"a lock is lost, and released", "", func(p *violationHarness) {
			p.lockAs("ann", check.OpLock)
			p.advanceTime(30 * time.Second)
			p.lockAs("bob", check.OpLock)
			p.lockAs("bob", check.OpUnlock)
			p.lockAs("ann", check.OpLock)
		}},
		{"the answer to the release of a lock is lost", "", func(p *violationHarness) {
			p.lockAs("ann", check.OpLock)
			p.observeOperation(check.VariableOperation{Client: "ann", Does: check.OpUnlock, Path: lockedPath, Outcome: check.OutcomeBegun})
			p.lockAs("bob", check.OpLock)
			p.observeOperation(check.VariableOperation{Client: "ann", Does: check.OpUnlock, Path: lockedPath, Outcome: check.OutcomeUnknown})
		}},
		{"hubs are put back, and an allocation that was stopped runs again", "", func(p *violationHarness) {
			p.changeSecret(1)
			before := p.index
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.commitAllocs(p.id)
			p.endEdgeTask(p.e, p.id)
			p.sendRows(p.e)
			p.advanceTime(6 * time.Minute)
			p.putBack(before)
			p.feedObservation(check.Observation{Delivered: &check.DeliveredVariables{Edge: p.e.name, Paths: []string{jobSecret}}})
		}},
		{"hubs are put back to an older copy", "", func(p *violationHarness) {
			p.changeSecret(2)
			p.observeHeld(2)
			p.putBack(p.index)
			p.openSession(p.e)
			p.observeOperation(check.VariableOperation{Does: check.OpRead, Path: jobSecret, Outcome: check.OutcomeOK, Value: 1})
			p.observeHeld(1)
			p.advanceTime(30 * time.Second)
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
