package state_test

import (
	"bufio"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// fullStore is furnished with a row in every table that a snapshot holds.
func fullStore(t tb) *storeHarness {
	w := furnished(t)
	w.mustApply(state.SchedulerConfig{Config: fleet.DefaultScheduling()})
	w.mustApply(state.JobRegister{Job: job("filed", fleet.JobTypeBatch, 1), Submission: &fleet.Submission{Format: "hcl2", Source: "job \"filed\" {}"}, Now: w.nowNanos()})
	file := mustPersist(t, w.store)
	sum := sha256.Sum256(file)
	w.mustApply(state.SnapshotPart{Restore: "whole", Data: file})
	w.mustApply(state.SnapshotRestore{Restore: "whole", Size: int64(len(file)), Sum: sum[:], EvalSeed: "s", Now: w.nowNanos()})
	lost := w.addReadyNode("n3")
	w.mustApply(state.Token{Token: state.JoinToken{ID: "edges", Hash: []byte{4}, Roles: []string{"edge"}, NodePool: "shore", MaxUses: 3}})
	w.mustApply(state.Certificate{Serial: "2b", Subject: "edge:n9", NotAfter: 15, Token: "edges", Key: []byte{6}})
	for _, c := range samples() {
		switch c.(type) {
		case state.NamespaceStore:
			w.mustApply(c)
		}
	}
	w.storeVolume(volumeOn(lost, "v1", "data"))
	w.mustApply(prefetchOn(w, "filed", 0, lost))
	w.mustApply(state.RootKeyStore{Key: rootKey("k1")})
	w.storeVariable("app/db", "k1")
	w.storeVariable("nomad/jobs/old", "k1")
	w.mustApply(state.VariableDelete{Namespace: "default", Path: "nomad/jobs/old", TellEdges: true})
	w.mustApply(state.VariableLock{Namespace: "default", Path: "app/lock", Lock: lockOf("l"), Sealed: sealedWith("k1"), Now: 4})
	w.storeAccess()
	w.reportSite(lost, "x", 1)
	w.mustApply(state.SnapshotPart{Restore: "r", Data: []byte{1, 2}})
	w.mustApply(state.NodeRevoke{NodeID: lost, Reason: "stolen", EvalSeed: "s", Now: w.nowNanos()})
	exposed := w.addReadyNode("n4")
	w.registerJob(job("exposed", fleet.JobTypeService, 1))
	w.placeAllocs("exposed", exposed, 1)
	w.storeVariable("nomad/jobs/exposed", "k1")
	w.mustApply(state.NodeRevoke{NodeID: exposed, KeepExposure: true, EvalSeed: "s", Now: w.nowNanos()})
	w.mustApply(state.SiteCodeStore{Code: siteCode("k7m2", aclTime)})
	return w
}

// A snapshot that was written once is read for ever: its records and their order never
// change.
func TestSnapshotGolden(t *testing.T) {
	w := fullStore(t)
	snapshot := mustPersist(t, w.store)
	var got strings.Builder
	fmt.Fprintf(&got, "header %x\n", snapshot[:9])
	for r := bufio.NewReader(flate.NewReader(bytes.NewReader(snapshot[9:]))); ; {
		n, err := binary.ReadUvarint(r)
		if err == io.EOF {
			break
		}
		record := make([]byte, n+1)
		if _, err := io.ReadFull(r, record); err != nil {
			t.Fatalf("read a record of %d bytes: %v", n, err)
		}
		fmt.Fprintf(&got, "%d %x\n", record[0], record[1:])
	}
	path := filepath.Join("testdata", "snapshot.txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Fatalf("the snapshot changed (see -rewrite):\n%s", diff(string(want), got.String()))
	}
	restored := state.New()
	if err := restored.Restore(bytes.NewReader(snapshot)); err != nil {
		t.Fatal(err)
	}
	if got, want := restored.View().Digest(), w.store.View().Digest(); got != want || restored.View().Index() != fleet.Index(w.index) {
		t.Fatalf("restored with digest %s, not %s", got, want)
	}
}
