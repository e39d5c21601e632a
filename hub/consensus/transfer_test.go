package consensus_test

import (
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// The lead goes to whom it is handed, and to nobody without a vote.
func TestTransfer(t *testing.T) {
	c := newCluster(t, nil)
	one, two, three := c.mustThree()
	for _, to := range []*hub{two, three, one} {
		leader := c.mustLeader(one, two, three)
		if leader.id == to.id {
			if err := leader.Transfer(t.Context(), to.id); fleet.CodeOf(err) != fleet.CodeConflict {
				t.Errorf("to itself: %v", err)
			}
			continue
		}
		if err := to.Transfer(t.Context(), to.id); fleet.CodeOf(err) != fleet.CodeNotLeader && fleet.CodeOf(err) != fleet.CodeConflict {
			t.Errorf("by one that does not lead: %v", err)
		}
		if err := leader.Transfer(t.Context(), "nobody"); fleet.CodeOf(err) != fleet.CodeNotFound {
			t.Errorf("to nobody: %v", err)
		}
		if err := leader.Transfer(t.Context(), to.id); err != nil {
			t.Fatal(err)
		}
		mustSoon(t, func() error {
			if now := c.mustLeader(one, two, three); now.id != to.id {
				return fleet.Errorf(fleet.CodeUnavailable, "hub %s leads, the lead was handed to %s", now.id, to.id)
			}
			return nil
		})
	}
	old := c.mustLeader(one, two, three)
	if err := old.Transfer(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	mustSoon(t, func() error {
		if now := c.mustLeader(one, two, three); now.id == old.id {
			return fleet.Errorf(fleet.CodeUnavailable, "hub %s still leads", now.id)
		}
		return nil
	})
}

// Where nobody can take the lead, it is said why, and who could.
func TestTransferToNobody(t *testing.T) {
	c := newCluster(t, nil)
	one := c.mustStart("one", "", true)
	refused := func(to fleet.HubID, code fleet.Code, says, hint string) {
		t.Helper()
		err := one.Transfer(t.Context(), to)
		if e := fleet.AsError(err); err == nil || e.Code != code || !strings.Contains(e.Message, says) || !strings.Contains(e.Hint, hint) {
			t.Errorf("to %q: %+v, want %s %q, hint %q", to, e, code, says, hint)
		}
	}
	c.mustLeader(one)
	refused("", fleet.CodeConflict, "hub one is the only one of this region that has a vote", "--join")
	refused("one", fleet.CodeConflict, "it is already the leader", "--join")
	refused("two", fleet.CodeNotFound, "no such hub", "nobody else can take it")
	if _, err := one.Add(t.Context(), state.HubPeer{ID: "follows", Addr: "127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	refused("follows", fleet.CodeConflict, "hub follows: it has no vote", "nobody else can take it")
	refused("", fleet.CodeConflict, "has a vote", "gets its vote when its log has caught up")
	two := c.mustStart("two", "", false)
	two.mustJoin(t, one)
	c.mustLeader(one)
	refused("follows", fleet.CodeConflict, "hub follows: it has no vote", "hubs that can take it: two")
	refused("three", fleet.CodeNotFound, "no such hub", "hubs that can take it: two")
	if _, leads := one.Leads(); !leads {
		t.Error("the lead went somewhere")
	}
}
