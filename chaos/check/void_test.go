package check_test

import (
	"strings"
	"testing"
	"time"

	"skerry/chaos/check"
)

func TestVoid(t *testing.T) {
	busy := func(t *fleetModel) {
		t.runFaultRound()
		for i := range 30 {
			t.feedObservation(check.Observation{Operation: &check.Operation{
				Client: "c", Does: check.OpRead, Job: "key", Outcome: check.OutcomeNotFound, Call: t.at - time.Duration(i),
			}})
		}
	}
	for _, c := range []struct {
		name string
		do   func(t *fleetModel)
		thin check.Thin
		want string // "": it is a pass
	}{
		{"a busy run", busy, check.Thin{}, ""},
		{"nobody asks anything", func(t *fleetModel) { t.runFaultRound() }, check.Thin{}, "0 clients' operations"},
		{"but nobody has to", func(t *fleetModel) { t.runFaultRound() }, check.Thin{Operations: -1}, ""},
		{"nothing happens", func(t *fleetModel) { t.advanceTime(time.Hour) }, check.Thin{Operations: -1}, "3 journal rows in 1h0m5s"},
		{"a fault never hits", func(t *fleetModel) {
			busy(t)
			f := check.Fault{ID: 99, Kind: "bit-flip"}
			t.feedObservation(check.Observation{Fault: &f})
			f.End = true
			t.feedObservation(check.Observation{Fault: &f})
		}, check.Thin{}, "fault bit-flip never hit"},
		{"clients learn nothing", func(t *fleetModel) {
			busy(t)
			for range 40 {
				t.feedObservation(check.Observation{Operation: &check.Operation{Client: "c", Does: check.OpRead, Job: "key", Outcome: check.OutcomeUnknown, Call: t.at}})
			}
		}, check.Thin{}, "40 of 70 clients' operations"},
		{"an invariant is never judged", busy, check.Thin{Judged: []check.Invariant{check.Settled, check.Jitter}}, "jitter was never judged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tale := newFleetModel(t, 3)
			c.do(tale)
			why := strings.Join(tale.m.Void(c.thin), "; ")
			if c.want == "" && why != "" || !strings.Contains(why, c.want) {
				t.Errorf("void for %q, want %q", why, c.want)
			}
		})
	}
}

func TestBranches(t *testing.T) {
	seen := map[check.Branch]bool{}
	for _, b := range check.Branches() {
		if seen[b] {
			t.Errorf("branch %q is listed twice", b)
		}
		seen[b] = true
	}
}
