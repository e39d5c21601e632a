package journal_test

import (
	"testing"

	"skerry/fleet"
	"skerry/syncproto"
)

// KeptStopped survives later deliveries and a start.
func TestKeepStopped(t *testing.T) {
	cfg := newMachine().journalConfig(dbPath(t))
	j := mustOpen(t, cfg)
	if _, err := j.PutDesired(t.Context(), delivery(4)); err != nil {
		t.Fatal(err)
	}
	row := fleet.Transition{Kind: fleet.TransitionOperator, Alloc: allocID(0), Message: "stopped on site"}
	if err := j.KeepStopped(t.Context(), []fleet.AllocID{allocID(0), "nobody"}, true, row); err != nil {
		t.Fatal(err)
	}
	if _, err := j.PutDesired(t.Context(), delivery(5)); err != nil {
		t.Fatal(err)
	}
	if err := j.Stop(t.Context(), syncproto.DesiredStop{ID: allocID(0), Reason: "smoke"}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, j)
	j = mustOpen(t, cfg)
	defer mustClose(t, j)
	mustKeep := func(kept bool) {
		t.Helper()
		want, err := j.Desired(t.Context())
		if err != nil || want.Allocs[allocID(0)].KeptStopped != kept || want.Allocs[allocID(1)].KeptStopped {
			t.Errorf("kept stopped: %t and %t (%v), want %t and false", want.Allocs[allocID(0)].KeptStopped, want.Allocs[allocID(1)].KeptStopped, err, kept)
		}
		if _, ok := want.Allocs["nobody"]; ok {
			t.Error("an allocation that nobody knew is held now")
		}
	}
	mustKeep(true)
	if err := j.KeepStopped(t.Context(), []fleet.AllocID{allocID(0)}, false); err != nil {
		t.Fatal(err)
	}
	mustKeep(false)
}
