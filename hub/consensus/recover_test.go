package consensus_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/hub/consensus"
)

// TestRecoverFromALostQuorum loses two hubs of three for good: the third is recovered, leads
// alone with all that was committed, and takes new hubs in.
func TestRecoverFromALostQuorum(t *testing.T) {
	c := newCluster(t, nil)
	one, two, three := c.mustThree()
	one.mustApply(t, "before")
	mustHave(t, "before", two, three)
	for _, h := range []*hub{one, two, three} {
		h.stop()
	}
	dir := filepath.Join(c.dir, "three")
	r, err := consensus.Recover("three", dir, slog.New(slog.DiscardHandler))
	if err != nil || len(r.Hubs) != 3 || r.Last == 0 {
		t.Fatalf("recover: %+v, %v", r, err)
	}
	alone := c.mustStart("three", three.addr, false)
	alone.mustApply(t, "after")
	mustHave(t, "before", alone)
	four := c.mustStart("four", "", false)
	four.mustJoin(t, alone)
	mustHave(t, "before", four)
	mustHave(t, "after", four)
	if peers, err := alone.Peers(); err != nil || len(peers) != 2 {
		t.Errorf("peers %+v, %v", peers, err)
	}
}

func TestRecoverRefuses(t *testing.T) {
	c := newCluster(t, nil)
	one := c.mustStart("one", "", true)
	one.mustApply(t, "a")
	one.stop()
	for id, want := range map[string]string{"one": "only hub of its cluster", "nobody": "there is no log"} {
		_, err := consensus.Recover(fleet.HubID(id), filepath.Join(c.dir, id), slog.New(slog.DiscardHandler))
		if fleet.CodeOf(err) != fleet.CodeConflict || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := consensus.Recover("two", filepath.Join(c.dir, "one"), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "not in the configuration") {
		t.Errorf("%v", err)
	}
}
