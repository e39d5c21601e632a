package consensus_test

import (
	"context"
	"testing"
	"time"

	"skerry/fleet"
)

func TestReadIndex(t *testing.T) {
	c := newCluster(t, nil)
	one, two, three := c.mustThree()
	written := two.mustApply(t, "written") // acknowledged by another hub
	index, err := one.ReadIndex(t.Context())
	if err != nil || index < written {
		t.Fatalf("read at %d, %v; %d was acknowledged", index, err, written)
	}
	before := one.Stats().LastIndex
	for range 20 {
		if _, err := one.ReadIndex(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if after := one.Stats().LastIndex; after != before {
		t.Errorf("20 reads wrote %d entries", after-before)
	}
	if _, err := two.ReadIndex(t.Context()); fleet.CodeOf(err) != fleet.CodeNotLeader {
		t.Errorf("read index of a follower: %v, want %s", err, fleet.CodeNotLeader)
	}

	one.cut()
	leader := c.mustLeader(two, three)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if index, err := one.ReadIndex(ctx); err == nil {
		t.Errorf("a leader that is no longer one reads at %d", index)
	}
	mustSoon(t, func() error {
		index, err = leader.ReadIndex(t.Context())
		return err
	})
	if index < written || !leader.hasPool("written") {
		t.Errorf("the new leader reads at %d; %d was acknowledged", index, written)
	}
}
