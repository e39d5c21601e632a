package state_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// mustHaveTime fails unless the newest time of a view is a time after start.
func mustHaveTime(t *testing.T, what string, v *state.View, after time.Duration) {
	t.Helper()
	if got := v.LatestTime(time.Unix(0, 0)); !got.Equal(start.Add(after)) {
		t.Errorf("%s: the newest time is %s, not %s", what, got, start.Add(after))
	}
}

// TestLatestTime: commands of each form move the newest time on, and none moves it back. A hub's clock that is ahead counts.
func TestLatestTime(t *testing.T) {
	w := clustered(newTestHarness(t))
	clock := start.Add(-time.Hour)
	if got := w.store.View().LatestTime(clock); !got.Equal(clock) {
		t.Errorf("before all commands: %s", got)
	}
	at := func(d time.Duration) time.Time { return start.Add(d) }
	token := func(accessor string, made time.Time) state.ACLTokenRecord {
		r := aclToken(accessor)
		r.CreateTime = made
		return r
	}
	code := siteCode("k7m2", at(time.Hour))
	code.CreateTime = at(4 * time.Second)
	changed := token("t0", time.Time{})
	changed.Hash = nil
	for _, step := range []struct {
		c    state.Command
		want time.Duration
	}{
		{state.Evals{Now: at(time.Second).UnixNano()}, time.Second},
		{state.ACLBootstrap{Token: token("t0", at(2*time.Second))}, 2 * time.Second},
		{state.ACLTokenStore{Token: token("t1", at(3*time.Second))}, 3 * time.Second},
		{state.SiteCodeStore{Code: code}, 4 * time.Second},
		{state.Token{Token: state.JoinToken{ID: "j", Hash: []byte{1}, CreatedAt: at(5 * time.Second).UnixNano()}}, 5 * time.Second},
		{state.ACLExpire{Now: at(6 * time.Second)}, 6 * time.Second},
		{state.ACLExpire{Now: at(time.Second)}, 6 * time.Second},
		{state.Evals{Now: at(time.Second).UnixNano()}, 6 * time.Second},
		{state.ACLTokenStore{Token: changed}, 6 * time.Second},
		{state.Evals{}, 6 * time.Second},
		{state.Hub{Hub: state.HubAddr{ID: "hub-2"}}, 6 * time.Second},
	} {
		w.mustApply(step.c)
		mustHaveTime(t, state.KindOf(step.c).String(), w.store.View(), step.want)
	}
	w.mustRefuse(fleet.CodeNotFound, state.SiteCodeRevoke{ID: "none", Now: at(time.Hour)})
	mustHaveTime(t, "a refused command", w.store.View(), 6*time.Second)
	if ahead := at(7 * time.Second); !w.store.View().LatestTime(ahead).Equal(ahead) {
		t.Error("a clock that is ahead of the state does not count")
	}
}

// mustRestoreView returns the state of a hub that starts from a snapshot.
func mustRestoreView(t *testing.T, file []byte) *state.View {
	t.Helper()
	s := state.New()
	if err := s.Restore(bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	return s.View()
}

// TestLatestTimeIsKept: a snapshot, the log and the restore of an older snapshot keep the newest time. Views do not watch it.
func TestLatestTimeIsKept(t *testing.T) {
	w := clustered(newTestHarness(t))
	w.now = start
	w.mustApply(state.Evals{Now: w.nowNanos()})
	older := mustPersist(t, w.store)
	ahead := start.Add(time.Hour)
	w.mustApply(state.Evals{Now: ahead.UnixNano()})
	if err := state.CheckStep(w.store.View(), mustRestoreView(t, older)); err == nil || !strings.Contains(err.Error(), "the newest time went from") {
		t.Errorf("a time that goes back: %v", err)
	}
	mustHaveTime(t, "a hub that starts from a snapshot", mustRestoreView(t, mustPersist(t, w.store)), time.Hour)
	mustHaveTime(t, "a hub that starts from its log", w.replayLog().View(), time.Hour)
	w.restoreSnapshot(older) // by a hub with a clock that went back
	mustHaveTime(t, "after the restore of an older snapshot", w.store.View(), time.Hour)
	v := w.store.Watch()
	v.LatestTime(start)
	changed := changes(v)
	w.mustApply(state.Evals{Now: ahead.Add(time.Hour).UnixNano()})
	select {
	case <-changed:
		t.Error("a view that has read the time wakes with each command")
	default:
	}
	w.restoreSnapshot(mustPersist(t, w.store)) // wakes it
	<-changed
}
