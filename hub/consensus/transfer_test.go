package consensus_test

import (
	"testing"

	"skerry/fleet"
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
