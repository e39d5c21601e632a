package secrets_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/pki"
	"skerry/hub/rpc"
	"skerry/hub/secrets"
	"skerry/hub/state"
	"skerry/hub/state/statetest"
)

// fixture is a log of a cluster whose secrets are sealed, and what encrypts variables there.
type fixture struct {
	*statetest.Log
	tb       testing.TB
	stateKey pki.StateKey
	secrets  *secrets.Secrets
}

func newFixture(tb testing.TB) *fixture {
	tb.Helper()
	f := &fixture{Log: statetest.NewLog(), tb: tb, stateKey: pki.NewStateKey()}
	cluster := state.Cluster{ID: "cluster", CAKey: []byte{1}, GossipKey: []byte{2}}
	seal, err := f.stateKey.Seal(cluster)
	if err != nil {
		tb.Fatal(err)
	}
	f.MustApply(tb, state.ClusterInit{Cluster: cluster.WithSeal(seal)})
	f.secrets = f.newSecrets(f.stateKey)
	return f
}

// newSecrets is a hub's Secrets: one that has restarted, or another hub's.
func (f *fixture) newSecrets(keys ...pki.StateKey) *secrets.Secrets {
	f.tb.Helper()
	return secrets.New(secrets.Config{
		State: f.Store, Apply: f, Lead: f, Wrap: pki.NewKeyring(pki.KeyringConfig{State: f.Store, Keys: mustKeep(f.tb, keys...)}),
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
}

// mustKeep makes the state keys of a hub.
func mustKeep(tb testing.TB, keys ...pki.StateKey) *pki.StateKeys {
	tb.Helper()
	kept, err := pki.OpenStateKeys(pki.StateKeysConfig{Dir: tb.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	for _, key := range keys {
		if err := kept.Add(tb.Context(), key); err != nil {
			tb.Fatal(err)
		}
	}
	return kept
}

func (f *fixture) mustStore(path string, items fleet.VariableItems) {
	f.tb.Helper()
	_, err := f.secrets.Commit(f.tb.Context(), "default", path, items, func(s state.SealedItems) state.Command {
		return state.VariableStore{Namespace: "default", Path: path, Sealed: s}
	})
	if err != nil {
		f.tb.Fatal(err)
	}
}

func (f *fixture) row(path string) *state.Variable {
	f.tb.Helper()
	v, ok := f.Store.View().Variable("default", path)
	if !ok {
		f.tb.Fatalf("there is no variable %s", path)
	}
	return v
}

func TestItemsAreEncrypted(t *testing.T) {
	f := newFixture(t)
	items := fleet.VariableItems{"password": "correct horse", "empty": ""}
	f.mustStore("app/db", items)
	f.mustStore("app/other", items)
	var snapshot bytes.Buffer
	if err := f.Store.View().Describe(&snapshot); err != nil || strings.Contains(snapshot.String(), "horse") {
		t.Fatalf("the state has the items in clear, or is not described: %v", err)
	}
	for name, s := range map[string]*secrets.Secrets{"the same hub": f.secrets, "another hub": f.newSecrets(f.stateKey)} {
		if got, err := s.Decrypt(f.row("app/db")); err != nil || !maps.Equal(got, items) {
			t.Errorf("%s decrypts %v, %v", name, got, err)
		}
	}
	for name, damage := range map[string]func(v *state.Variable){
		"another path":      func(v *state.Variable) { v.Path = "app/other" },
		"another namespace": func(v *state.Variable) { v.Namespace = "ships" },
		"items of another":  func(v *state.Variable) { v.Sealed = f.row("app/other").Sealed },
		"a changed byte":    func(v *state.Variable) { v.Sealed.Data = append([]byte{^v.Sealed.Data[0]}, v.Sealed.Data[1:]...) },
		"cut short":         func(v *state.Variable) { v.Sealed.Data = v.Sealed.Data[:3] },
		"a short nonce":     func(v *state.Variable) { v.Sealed.Nonce = v.Sealed.Nonce[:3] },
		"an unknown key":    func(v *state.Variable) { v.Sealed.KeyID = "none" },
	} {
		v := *f.row("app/db")
		damage(&v)
		if got, err := f.secrets.Decrypt(&v); fleet.CodeOf(err) != fleet.CodeInvalid || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestMissingStateKey: every path says which key is missing and what to do, also before a snapshot is restored.
func TestMissingStateKey(t *testing.T) {
	f := newFixture(t)
	f.mustStore("app/db", fleet.VariableItems{"k": "v"})
	if err := f.secrets.CheckKeys(f.Store.View()); err != nil {
		t.Fatal(err)
	}
	other := f.newSecrets(pki.NewStateKey())
	_, decrypt := other.Decrypt(f.row("app/db"))
	_, rotate := other.Rotate(t.Context(), false)
	_, commit := other.Commit(t.Context(), "default", "x", nil, nil)
	for name, err := range map[string]error{"decrypt": decrypt, "rotate": rotate, "commit": commit, "check": other.CheckKeys(f.Store.View())} {
		e := fleet.AsError(err)
		if e == nil || e.Code != fleet.CodeUnavailable || !strings.Contains(e.Message, "state key "+f.stateKey.ID()) || !strings.Contains(e.Hint, "identity/state-key") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNoStateKeyYet(t *testing.T) {
	log := statetest.NewLog()
	s := secrets.New(secrets.Config{State: log.Store, Apply: log, Lead: log, Wrap: pki.NewKeyring(pki.KeyringConfig{State: log.Store, Keys: mustKeep(t)}), Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if _, err := s.Rotate(t.Context(), false); fleet.CodeOf(err) != fleet.CodeUnavailable || !strings.Contains(err.Error(), "no state key yet") {
		t.Fatal(err)
	}
}

// TestCommitAfterRotation: a key that is replaced while items are encrypted costs another try.
func TestCommitAfterRotation(t *testing.T) {
	f := newFixture(t)
	tries := 0
	_, err := f.secrets.Commit(t.Context(), "default", "a", fleet.VariableItems{"k": "v"}, func(s state.SealedItems) state.Command {
		if tries++; tries < 3 {
			if _, err := f.secrets.Rotate(t.Context(), false); err != nil {
				t.Fatal(err)
			}
		}
		return state.VariableStore{Namespace: "default", Path: "a", Sealed: s}
	})
	if err != nil || tries != 3 {
		t.Fatalf("%d tries, %v", tries, err)
	}
}

// TestFullRotation re-encrypts 150 variables in several entries, over a change of leader in between, and leaves out one
// that nobody can decrypt, which keeps its key in use.
func TestFullRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		big := strings.Repeat("x", 32<<10)
		for i := range 150 {
			f.mustStore(fmt.Sprintf("v/%03d", i), fleet.VariableItems{"k": big})
		}
		old := f.row("v/000").Sealed.KeyID
		damaged := f.row("v/007").Sealed
		damaged.Data = bytes.Repeat([]byte{1}, 40)
		f.MustApply(t, state.VariableStore{Namespace: "default", Path: "v/007", Sealed: damaged})
		made, err := f.secrets.Rotate(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		first, stop := context.WithCancel(t.Context())
		f.Log.Applied = func(_ fleet.Index, c state.Command) {
			if _, ok := c.(state.VariablesRekey); ok {
				stop()
				f.SetRefusalSoon()
			}
		}
		if err := f.secrets.Lead(first); err != nil {
			t.Fatal(err)
		}
		f.Log.Applied = nil
		f.SetRefusal(nil)
		next := f.newSecrets(f.stateKey)
		second, stop := context.WithCancel(t.Context())
		defer stop()
		go next.Lead(second)
		synctest.Wait()
		for i := range 150 {
			want := made.KeyID
			if i == 7 {
				want = old
			}
			if got := f.row(fmt.Sprintf("v/%03d", i)).Sealed.KeyID; got != want {
				t.Fatalf("variable %d is encrypted with %s, want %s", i, got, want)
			}
		}
		if n := f.EntryCount(state.KindOf(state.VariablesRekey{})); n < 4 || n > 12 {
			t.Errorf("%d entries re-encrypt 5 MiB", n)
		}
		if k, _ := f.Store.View().RootKey(old); k.State != fleet.RootKeyRekeying {
			t.Fatalf("a key in use is %s", k.State)
		}
		f.MustApply(t, state.VariableDelete{Namespace: "default", Path: "v/007"})
		time.Sleep(time.Minute)
		synctest.Wait()
		if k, _ := f.Store.View().RootKey(old); k.State != fleet.RootKeyDeprecated {
			t.Fatalf("a key that is not used is %s", k.State)
		}
		if got, err := next.Decrypt(f.row("v/149")); err != nil || got["k"] != big {
			t.Fatal(err)
		}
	})
}

// SetRefusalSoon makes the next Apply fail, as of a hub that no longer leads. Apply holds the log's mutex while it calls.
func (f *fixture) SetRefusalSoon() {
	go f.SetRefusal(rpc.NoLeader())
}

// election says who leads.
type election struct{ leads bool }

func (e *election) IsLeader() bool { return e.leads }

func (e *election) Leader() (fleet.HubID, string, bool) { return "", "", false }

func newLocks(tb testing.TB, f *fixture) *secrets.Locks {
	tb.Helper()
	peers, err := rpc.New(rpc.Config{Pool: new(rpc.Pool), Self: "hub-1", Leadership: &election{true}})
	if err != nil {
		tb.Fatal(err)
	}
	return secrets.NewLocks(secrets.LocksConfig{Hub: "hub-1", State: f.Store, Lead: f, Peers: peers, Log: slog.New(slog.DiscardHandler)})
}

func (f *fixture) mustAcquire(id string) {
	f.tb.Helper()
	if err := f.acquire(id); err != nil {
		f.tb.Fatal(err)
	}
}

func (f *fixture) acquire(id string) error {
	_, err := f.secrets.Commit(f.tb.Context(), "default", "lock", nil, func(s state.SealedItems) state.Command {
		return state.VariableLock{Namespace: "default", Path: "lock", Sealed: s, KeepItems: true, Lock: fleet.VariableLock{ID: id, TTL: time.Minute, LockDelay: 15 * time.Second}}
	})
	return err
}

// TestLockEndsWithoutRenewals: renewals keep a lock and make no entry; without them it ends after its TTL, and can be
// acquired after its delay. Another leader gives every lock its TTL again, with a grace.
func TestLockEndsWithoutRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		l := newLocks(t, f)
		ctx, stop := context.WithCancel(t.Context())
		go l.Lead(ctx)
		synctest.Wait()
		f.mustAcquire("one")
		entries := len(f.Entries())
		for range 10 {
			time.Sleep(50 * time.Second)
			if err := l.RenewLock(t.Context(), "default", "lock", "one"); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.RenewLock(t.Context(), "default", "lock", "two"); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Fatalf("a renewal by another: %v", err)
		}
		if n := len(f.Entries()); n != entries {
			t.Fatalf("renewals made %d entries", n-entries)
		}
		stop()
		synctest.Wait()
		if err := l.RenewLock(t.Context(), "default", "lock", "one"); !rpc.IsNoLeader(err) {
			t.Fatalf("a renewal without a leader: %v", err)
		}
		l = newLocks(t, f)
		go l.Lead(t.Context())
		f.wantLockAfter(69*time.Second, "one") // 60 s of the TTL and 10 s of grace
		f.wantLockAfter(2*time.Second, "")
		if err := l.RenewLock(t.Context(), "default", "lock", "one"); fleet.CodeOf(err) != fleet.CodeConflict || !strings.Contains(err.Error(), "it does not have the lock one any more") {
			t.Fatalf("a renewal too late: %v", err)
		}
		if err := f.acquire("two"); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Fatalf("acquired within the delay: %v", err)
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		f.mustAcquire("two")
		f.wantLockAfter(59*time.Second, "two") // no grace: this hub has led all the time
		f.wantLockAfter(2*time.Second, "")
	})
}

// wantLockAfter waits, and fails if the lock has another id then.
func (f *fixture) wantLockAfter(d time.Duration, id string) {
	f.tb.Helper()
	time.Sleep(d)
	synctest.Wait()
	if lock := f.row("lock").Lock; lock == nil || lock.ID != id {
		f.tb.Fatalf("the lock is %+v, want %q", lock, id)
	}
}

// TestLockEndIsRetried: an entry that cannot be committed is tried again.
func TestLockEndIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		go newLocks(t, f).Lead(t.Context())
		f.mustAcquire("one")
		f.SetRefusal(rpc.NoLeader())
		time.Sleep(2 * time.Minute)
		f.SetRefusal(nil)
		f.wantLockAfter(2*time.Second, "")
	})
}

// mustSave returns a snapshot of the state as a file, and as a state.
func (f *fixture) mustSave() (file []byte, saved *state.Store) {
	f.tb.Helper()
	var b bytes.Buffer
	if err := f.Store.View().Persist(&b); err != nil {
		f.tb.Fatal(err)
	}
	saved = state.New()
	if err := saved.Restore(bytes.NewReader(b.Bytes())); err != nil {
		f.tb.Fatal(err)
	}
	return b.Bytes(), saved
}

// mustReplaceStateKey rotates the state key, and has the cluster forget the one before. It returns the new one.
func (f *fixture) mustReplaceStateKey() pki.StateKey {
	f.tb.Helper()
	next := pki.NewStateKey()
	ring := pki.NewKeyring(pki.KeyringConfig{State: f.Store, Keys: mustKeep(f.tb, f.stateKey, next)})
	cluster, _ := f.Store.View().Cluster()
	opened, err := ring.Open(*cluster)
	if err != nil {
		f.tb.Fatal(err)
	}
	seal, err := next.Seal(opened)
	if err != nil {
		f.tb.Fatal(err)
	}
	f.MustApply(f.tb, state.Hub{Hub: state.HubAddr{ID: "hub-1"}})
	f.MustApply(f.tb, state.StateKeyStore{Key: state.StateKey{ID: next.ID(), Held: []fleet.HubID{"hub-1"}}})
	f.MustApply(f.tb, state.StateKeyRewrap{ID: next.ID(), Sealed: seal.Sealed, Now: 1})
	rewrap := state.StateKeyRewrap{ID: next.ID()}
	for secret, by := range f.Store.View().WrappedSecrets() {
		bound := []byte(secret.Name)
		if secret.Kind == state.WrappedSigningKey {
			bound = secrets.SigningBound(secret.Name)
		}
		plain, err := ring.Unwrap(by, secret.Before, bound)
		if err == nil {
			secret.After, _, err = ring.Wrap(plain, bound)
		}
		if err != nil {
			f.tb.Fatal(err)
		}
		rewrap.Rows = append(rewrap.Rows, secret)
	}
	f.MustApply(f.tb, rewrap)
	f.MustApply(f.tb, state.StateKeyForget{ID: f.stateKey.ID(), Now: 1})
	return next
}

// TestSnapshotOfARemovedRootKey: the active root key of a snapshot was removed since, and the state key that wraps it is
// forgotten. A restore leaves the cluster's active key as it is: variables are written, and identities are signed. Over a
// state without an active root key the snapshot is refused, as its key would be the active one.
func TestSnapshotOfARemovedRootKey(t *testing.T) {
	f := newFixture(t)
	signing, err := f.secrets.SigningKey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file, snapshot := f.mustSave()
	made, err := f.secrets.Rotate(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	f.MustApply(t, state.RootKeyDelete{KeyID: signing.KeyID, Now: 1})
	late := f.newSecrets(f.mustReplaceStateKey())

	e := fleet.AsError(late.CheckKeys(snapshot.View()))
	if e == nil || e.Code != fleet.CodeUnavailable || !strings.Contains(e.Message, "encrypt variables with the root key "+signing.KeyID) || !strings.Contains(e.Message, "state key "+f.stateKey.ID()) {
		t.Errorf("over a state without an active root key: %v", e)
	}
	if tried, err := f.Store.View().TryRestore(bytes.NewReader(file), 1); err != nil || late.CheckKeys(tried) != nil {
		t.Errorf("the restore is refused: %v", err)
	}
	sum := sha256.Sum256(file)
	f.MustApply(t, state.SnapshotPart{Restore: "r", Data: file})
	f.MustApply(t, state.SnapshotRestore{Restore: "r", Size: int64(len(file)), Sum: sum[:], EvalSeed: "s", Now: 1})
	if row, ok := f.Store.View().RootKey(signing.KeyID); !ok || row.State != fleet.RootKeyInactive {
		t.Errorf("the removed key is %+v", row)
	}
	if again, err := late.SigningKey(t.Context()); err != nil || again.KeyID != made.KeyID {
		t.Errorf("identities are signed with the root key %q: %v", again.KeyID, err)
	}
	f.secrets = late
	f.mustStore("app/db", fleet.VariableItems{"k": "v"})
}

// TestSnapshotOfAnOlderStateKey: a snapshot from before a rotation of the state key needs the key of that time only for root
// keys that were removed since, and says which key and for which variable.
func TestSnapshotOfAnOlderStateKey(t *testing.T) {
	f := newFixture(t)
	f.mustStore("app/old", fleet.VariableItems{"k": "v"})
	first := f.row("app/old").Sealed.KeyID
	if _, err := f.secrets.Rotate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	f.mustStore("app/new", fleet.VariableItems{"k": "v"})
	_, snapshot := f.mustSave()
	next := f.mustReplaceStateKey()
	late := f.newSecrets(next)
	if items, err := late.Decrypt(f.row("app/old")); err != nil || items["k"] != "v" {
		t.Errorf("with the new key: %v, %v", items, err)
	}
	if err := late.CheckKeys(snapshot.View()); err != nil {
		t.Errorf("a snapshot whose root keys are still there: %v", err)
	}
	f.MustApply(t, state.VariableDelete{Namespace: "default", Path: "app/old"})
	f.MustApply(t, state.RootKeyDelete{KeyID: first, Now: 1})
	e := fleet.AsError(late.CheckKeys(snapshot.View()))
	if e == nil || e.Code != fleet.CodeUnavailable || !strings.Contains(e.Message, "such as app/old") || !strings.Contains(e.Message, "state key "+f.stateKey.ID()) ||
		!strings.Contains(e.Message, "the cluster has forgotten that key at 1970-01-01") {
		t.Errorf("without one of them: %v", e)
	}
}
