package consensus_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

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

// A token or a policy that allowed a command may end while it waits. It is checked again before the command is repeated by way of the next leader.
func TestARepeatIsCheckedAgain(t *testing.T) {
	c := newCluster(t, nil)
	one, two, three := c.mustThree()
	one.mustApply(t, "before")
	leader := c.mustLeader(one, two, three)
	others := slices.DeleteFunc([]*hub{one, two, three}, func(h *hub) bool { return h == leader })
	leader.cut()
	answered := make(chan error, 1)
	go func() {
		ctx := state.WithRecheck(t.Context(), func(context.Context) error { return fleet.Errorf(fleet.CodeForbidden, "the token was revoked") })
		_, err := leader.Apply(ctx, pool("waits"))
		answered <- err
	}()
	c.mustLeader(others...).mustApply(t, "after")
	leader.mend()
	if err := <-answered; fleet.CodeOf(err) != fleet.CodeForbidden {
		t.Errorf("the command was not checked again: %v", err)
	}
	others[0].mustApply(t, "last")
	mustHave(t, "last", one, two, three)
	if one.hasPool("waits") {
		t.Error("the command was committed nevertheless")
	}
}

func describeApplied(list []consensus.Applied) (s string) {
	for _, a := range list {
		s += fmt.Sprintf(" entry %d of term %d", a.Index, a.Term)
	}
	return s
}

// An entry above the commit index proves nothing: with five hubs, a leader that reached this one alone may die, and a hub that
// has our entry may win the next election. An entry that a snapshot has replaced is not known.
func TestOutcomeIsThatOfCommittedEntries(t *testing.T) {
	ours, other := [8]byte{1}, [8]byte{2}
	log := raft.NewInmemStore()
	for index, tag := range map[uint64][8]byte{7: ours, 8: other} {
		if err := log.StoreLog(&raft.Log{Index: index, Extensions: tag[:]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.StoreLog(&raft.Log{Index: 9, Type: raft.LogNoop}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		commit                   consensus.CommitIndex
		index                    uint64
		ours, undecided, unknown bool
	}{
		{commit: 6, index: 7, undecided: true}, {commit: 7, index: 7, ours: true}, {commit: 9, index: 7, ours: true},
		{commit: 7, index: 8, undecided: true}, {commit: 8, index: 8}, {commit: 8, index: 9, undecided: true}, {commit: 9, index: 9},
		{commit: 9, index: 6, unknown: true}, {commit: 9, index: 10, undecided: true},
	} {
		is, undecided, err := consensus.IsCommittedAs(tc.commit, log, tc.index, ours)
		if is != tc.ours || undecided != tc.undecided || (err != nil) != (tc.undecided || tc.unknown) {
			t.Errorf("entry %d, committed up to %d: ours %t, undecided %t, %v", tc.index, tc.commit, is, undecided, err)
		}
	}
}

// A leader that stops in good order says of each command what became of it: the next leader decides about those that are under
// way.
func TestALeaderThatStopsKnowsOutcomes(t *testing.T) {
	c := newCluster(t, nil)
	one, two, three := c.mustThree()
	one.mustApply(t, "before")
	leader := c.mustLeader(one, two, three)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writers sync.WaitGroup
	begun := make(chan struct{}, 64)
	for w := range 8 {
		writers.Go(func() {
			for i := 0; ; i++ {
				_, err := leader.Apply(ctx, pool(fmt.Sprintf("w%d-%d", w, i)))
				if err != nil {
					if hint := fleet.AsError(err).Hint; strings.Contains(hint, "may be committed") {
						t.Errorf("a command while the leader stops: %v (%s)", err, hint)
					}
					return
				}
				select {
				case begun <- struct{}{}:
				default:
				}
			}
		})
	}
	for range cap(begun) {
		<-begun
	}
	leader.stop()
	cancel() // those that are not under way need not wait for a leader
	writers.Wait()
}
