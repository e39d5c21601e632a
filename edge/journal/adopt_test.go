package journal_test

import (
	"testing"

	"skerry/fleet"
	"skerry/syncproto"
)

func TestAdopt(t *testing.T) {
	j := mustOpen(t, newMachine().journalConfig(dbPath(t)))
	body, err := syncproto.EncodeJob(&fleet.Job{ID: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.PutDesired(t.Context(), syncproto.Desired{Index: 7, Term: 2, Cluster: "c"}); err != nil {
		t.Fatal(err)
	}
	err = j.Adopt(t.Context(), syncproto.Desired{
		Run: []syncproto.DesiredAlloc{{ID: "lost", JobHash: "h", JobVersion: 3}}, Bodies: []syncproto.Body{{Hash: "h", Job: body}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want, err := j.Desired(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a := want.Allocs["lost"]
	if a.Alloc.Job == nil || a.Alloc.Job.ID != "shop" || a.Alloc.JobVersion != 3 || a.Stop {
		t.Errorf("adopted: %+v", a)
	}
	if want.Index != 7 || want.Term != 2 || want.Cluster != "c" {
		t.Errorf("the journal was told up to %d of term %d of %q: that has not changed", want.Index, want.Term, want.Cluster)
	}
}
