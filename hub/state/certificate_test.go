package state_test

import (
	"testing"

	"skerry/hub/state"
)

// A renewed certificate takes the place of the one before it, as often as its
// record is committed; others stay.
func TestRenewedCertificateReplacesItsRecord(t *testing.T) {
	w := newStoreHarness(t)
	w.mustApply(state.Certificate{Serial: "1", Subject: "edge:x", NotAfter: 1})
	w.mustApply(state.Certificate{Serial: "2", Subject: "edge:y", NotAfter: 1})
	for range 2 { // the answer to the first was lost
		w.mustApply(state.Certificate{Serial: "3", Subject: "edge:x", NotAfter: 2, Replaces: "1"})
	}
	for serial, want := range map[string]bool{"1": false, "2": true, "3": true} {
		if _, ok := w.store.View().Certificate(serial); ok != want {
			t.Errorf("certificate %s is known: %t", serial, ok)
		}
	}
}
