package consensus_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"skerry/fleet"
	"skerry/hub/consensus"
	"skerry/hub/state"
)

// A leader that loses its followers while a command waits for them answers with what became of the command: the next
// leader commits it, or does not have it, and then it is committed by way of that leader.
func TestLeadershipIsLostWhileACommandWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		lose func(*hub)
		same bool // the entry of the old leader is committed
	}{
		"the followers have it":     {func(h *hub) { h.deaf.Store(true) }, true},
		"the followers do not know": {func(h *hub) { h.cut() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex // guards applied
			applied := map[fleet.HubID][]consensus.Applied{}
			c := newCluster(t, func(cfg *consensus.Config) {
				id := cfg.ID
				cfg.Applied = func(a consensus.Applied) {
					mu.Lock()
					defer mu.Unlock()
					if p, ok := a.Command.(state.Pool); ok && p.Pool.Name == "waits" {
						applied[id] = append(applied[id], a)
					}
				}
			})
			one, two, three := c.mustThree()
			one.mustApply(t, "before")
			mustHave(t, "before", one, two, three)
			leader := c.mustLeader(one, two, three)
			others := slices.DeleteFunc([]*hub{one, two, three}, func(h *hub) bool { return h == leader })
			term, _ := leader.Leads()
			tc.lose(leader)
			type answer struct {
				index fleet.Index
				err   error
			}
			answered := make(chan answer, 1)
			go func() {
				res, err := leader.Apply(t.Context(), pool("waits"))
				answered <- answer{res.Index, err}
			}()
			c.mustLeader(others...).mustApply(t, "after")
			leader.mend()
			got := <-answered
			if got.err != nil {
				t.Fatalf("the leader that lost the lead answers: %v", got.err)
			}
			mustHave(t, "waits", one, two, three)
			mu.Lock()
			defer mu.Unlock()
			for _, h := range []*hub{one, two, three} {
				list := applied[h.id]
				if len(list) != 1 || list[0].Index != got.index || tc.same != (list[0].Term == term) {
					t.Errorf("hub %s applied it %d times (%s), the answer is entry %d", h.id, len(list), describeApplied(list), got.index)
				}
			}
		})
	}
}

func describeApplied(list []consensus.Applied) (s string) {
	for _, a := range list {
		s += fmt.Sprintf(" entry %d of term %d", a.Index, a.Term)
	}
	return s
}
