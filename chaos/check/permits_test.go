package check_test

import (
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// observeAnswer tells of the answer of hub-1 to a change that took a second.
func (p *violationHarness) observeAnswer(object string, index fleet.Index) {
	p.advanceTime(time.Second)
	p.feedObservation(check.Observation{Answer: &check.Answer{Hub: "hub-1", Verb: "PUT", Object: object, Status: 200, Index: index, Took: time.Second}})
}

// observeAudit tells of the audit of hub-1.
func (p *violationHarness) observeAudit(entries ...check.AuditEntry) {
	p.feedObservation(check.Observation{Audit: &check.Audit{Hub: "hub-1", Entries: entries}})
}

// auditEntry is the entry of an answer that observeAnswer tells of.
func auditEntry(object string, index fleet.Index) check.AuditEntry {
	return check.AuditEntry{Verb: "PUT", Object: object, Status: 200, Index: index}
}

// revokeEdge has a hub acknowledge that edge-1 is revoked.
func (p *violationHarness) revokeEdge() {
	p.feedObservation(check.Observation{Request: &check.Request{What: check.EdgeRevoked, Edge: p.e.name}})
}

func inAccess() []violationCase {
	probe := func(p *violationHarness, status int) {
		p.feedObservation(check.Observation{Probe: &check.Probe{Hub: "hub-1", Token: "a revoked token", Attempt: "read a job", Status: status}})
	}
	return []violationCase{
		{"a probe is answered", check.Permitted, nil, func(p *violationHarness) { probe(p, 200) }},
		{"a probe is told that an object is missing", check.Permitted, nil, func(p *violationHarness) { probe(p, 404) }},
		{"a probe registers a job", check.Permitted, nil, func(p *violationHarness) {
			p.applyEntry("job_register", &check.Effects{Jobs: []check.JobChange{{Job: check.IntruderMark + "-1"}}})
		}},
		{"a revoked edge opens a session", check.Permitted, nil, func(p *violationHarness) {
			p.revokeEdge()
			p.advanceTime(30 * time.Second)
			p.openSession(p.e)
		}},
		{"a revoked edge gets a variable", check.Permitted, nil, func(p *violationHarness) {
			p.revokeEdge()
			p.advanceTime(30 * time.Second)
			p.feedObservation(check.Observation{Delivered: &check.DeliveredVariables{Edge: p.e.name, Paths: []string{jobSecret}}})
		}},
		{"a change is not in the audit", check.Audited, nil, func(p *violationHarness) {
			p.observeAnswer("/v1/jobs", 7)
			p.observeAnswer("/v1/jobs", 8)
			p.observeAudit(auditEntry("/v1/jobs", 7))
		}},
		{"a change is twice in the audit", check.Audited, nil, func(p *violationHarness) {
			p.observeAnswer("/v1/jobs", 7)
			p.observeAudit(auditEntry("/v1/jobs", 7), auditEntry("/v1/jobs", 7))
		}},
		{"changes are in another order in the audit", check.Audited, nil, func(p *violationHarness) {
			p.observeAnswer("/v1/jobs", 7)
			p.advanceTime(time.Second)
			p.observeAnswer("/v1/var/a", 8)
			p.observeAudit(auditEntry("/v1/var/a", 8), auditEntry("/v1/jobs", 7))
		}},
		{"a hub keeps an action on an edge twice", check.Audited, nil, func(p *violationHarness) {
			p.feedObservation(check.Observation{Hub: &check.Hub{Name: "hub-1", RepeatedActions: []string{"line 2"}}})
		}},
		{"an audit does not verify", check.Audited, nil, func(p *violationHarness) {
			p.feedObservation(check.Observation{Audit: &check.Audit{Hub: "hub-1", Broken: "entry 3 does not follow entry 1"}})
		}},
	}
}

// TestAccessAsItMayBe has probes refused, and audits with what may be in them.
func TestAccessAsItMayBe(t *testing.T) {
	for name, do := range map[string]func(p *violationHarness){
		"probes are refused, or get no answer": func(p *violationHarness) {
			for _, status := range []int{0, 403, 429, 500, 503} {
				p.feedObservation(check.Observation{Probe: &check.Probe{Hub: "hub-1", Status: status}})
			}
		},
		"a revoked edge is told a moment later, and its machine comes back as another node": func(p *violationHarness) {
			p.revokeEdge()
			p.advanceTime(5 * time.Second)
			p.feedObservation(check.Observation{Delivered: &check.DeliveredVariables{Edge: p.e.name, Paths: []string{jobSecret}}})
			p.advanceTime(30 * time.Second)
			p.feedObservation(check.Observation{Request: &check.Request{What: check.EdgeWiped, Edge: p.e.name}})
			p.openSession(p.e)
		},
		"an audit has requests of which nobody knows the answer": func(p *violationHarness) {
			p.observeAnswer("/v1/jobs", 7)
			p.feedObservation(check.Observation{Answer: &check.Answer{Hub: "hub-1", Verb: "PUT", Object: "/v1/jobs"}})
			p.observeAudit(auditEntry("/v1/other", 3), auditEntry("/v1/jobs", 7), auditEntry("/v1/jobs", 7))
		},
		"two changes at a time are in any order": func(p *violationHarness) {
			p.observeAnswer("/v1/jobs", 7)
			p.feedObservation(check.Observation{Answer: &check.Answer{Hub: "hub-1", Verb: "PUT", Object: "/v1/var/a", Status: 200, Index: 8, Took: time.Minute}})
			p.observeAudit(auditEntry("/v1/var/a", 8), auditEntry("/v1/jobs", 7))
		},
		"hubs are put back with their audits": func(p *violationHarness) {
			p.observeAnswer("/v1/jobs", 7)
			p.putBack(p.index)
			p.openSession(p.e)
			p.observeAudit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newViolationHarness(t, nil)
			do(p)
			p.mustFindNothing()
		})
	}
}
