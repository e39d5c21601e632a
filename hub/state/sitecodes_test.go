package state_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// TestSiteCodes: a code is stored once, is revoked once, and is gone once it has ended. A restore brings no revoked code
// back.
func TestSiteCodes(t *testing.T) {
	w := furnished(t)
	w.storeAccess()
	end := aclTime.Add(time.Hour)
	w.mustApply(state.SiteCodeStore{Code: siteCode("k7m2", end)})
	w.mustRefuse(fleet.CodeConflict, state.SiteCodeStore{Code: siteCode("k7m2", end)})
	w.mustRefuse(fleet.CodeInvalid, state.SiteCodeStore{Code: siteCode("", end)})
	w.mustRefuse(fleet.CodeNotFound, state.SiteCodeRevoke{ID: "zzzz", Now: aclTime})
	file := mustPersist(t, w.store)
	w.mustApply(state.SiteCodeRevoke{ID: "k7m2", Now: aclTime})
	revoked, ok := w.store.View().SiteCode("k7m2")
	if !ok || revoked.IsValid(aclTime) || !revoked.RevokeTime.Equal(aclTime) || revoked.ModifyIndex <= revoked.CreateIndex {
		t.Fatalf("revoked is %+v", revoked)
	}
	w.mustApply(state.SiteCodeRevoke{ID: "k7m2", Now: end})
	if again, _ := w.store.View().SiteCode("k7m2"); again != revoked {
		t.Errorf("revoked twice is %+v", again)
	}
	w.restoreSnapshot(file)
	if kept, ok := w.store.View().SiteCode("k7m2"); !ok || kept.RevokeTime == nil {
		t.Errorf("after a restore it is %+v", kept)
	}
	w.mustApply(state.SiteCodeExpire{IDs: []string{"k7m2", "zzzz"}, Now: end.Add(-1)})
	if ids := w.store.View().ExpiredSiteCodes(end.Add(-1)); len(ids) != 0 {
		t.Errorf("expired before their end: %q", ids)
	}
	if _, ok := w.store.View().SiteCode("k7m2"); !ok {
		t.Error("it is gone before its end")
	}
	w.mustApply(state.SiteCodeExpire{IDs: w.store.View().ExpiredSiteCodes(end), Now: end})
	if _, ok := w.store.View().SiteCode("k7m2"); ok {
		t.Error("it is there after its end")
	}
}

// TestWhoTakesASiteCode: a code is for the edges that both its globs match.
func TestWhoTakesASiteCode(t *testing.T) {
	c := siteCode("k7m2", aclTime).SiteCode
	c.NodePool = "tills"
	for _, at := range []struct {
		site, pool string
		want       bool
	}{{"shop-17", "tills", true}, {"shop-17", "default", false}, {"harbour", "tills", false}, {"my-shop-1", "tills", false}} {
		if got := c.IsFor(at.site, at.pool); got != at.want {
			t.Errorf("%s, %s: %t", at.site, at.pool, got)
		}
	}
}
