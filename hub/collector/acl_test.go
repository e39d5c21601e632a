package collector_test

import (
	"context"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/collector"
	"skerry/hub/state"
)

// Tokens and site codes are removed when they have ended, and not before, whatever the thresholds are.
func TestEndedTokensAreCollected(t *testing.T) {
	w := newHarness(t)
	end := w.now.Add(time.Hour)
	w.mustApplyEncoded(state.ACLBootstrap{Token: state.ACLTokenRecord{Hash: []byte{1}, ACLToken: fleet.ACLToken{AccessorID: "stays", Type: fleet.ACLTokenManagement}}})
	w.mustApplyEncoded(state.ACLTokenStore{Token: state.ACLTokenRecord{
		Hash: []byte{2}, ACLToken: fleet.ACLToken{AccessorID: "ends", Type: fleet.ACLTokenManagement, ExpirationTime: &end}}})
	w.mustApplyEncoded(state.SiteCodeStore{Code: state.SiteCodeRecord{SiteCode: fleet.SiteCode{ID: "k7m2", ExpirationTime: end}}})
	w.mustApplyEncoded(state.ACLOneTimeStore{Token: state.OneTimeToken{Hash: []byte{3}, AccessorID: "stays", ExpiresAt: end}})
	apply := state.ApplierFunc(func(_ context.Context, c state.Command) (state.Result, error) { return w.mustApplyEncoded(c), nil })
	c, err := collector.New(collector.Config{State: w.Store, Apply: apply, Now: func() time.Time { return w.now }})
	if err != nil {
		t.Fatal(err)
	}
	there := func() (stays, ends, oneTime, code bool) {
		_, stays = w.View().ACLToken("stays")
		_, ends = w.View().ACLToken("ends")
		_, oneTime = w.View().OneTimeToken([]byte{3})
		_, code = w.View().SiteCode("k7m2")
		return stays, ends, oneTime, code
	}
	for _, left := range []bool{true, false} {
		if err := c.Force(t.Context()); err != nil {
			t.Fatal(err)
		}
		if stays, ends, oneTime, code := there(); !stays || ends != left || oneTime != left || code != left {
			t.Errorf("left are %v, %v, %v, %v at %s\n%s", stays, ends, oneTime, code, w.now, w.describeState())
		}
		w.now = end
	}
}
