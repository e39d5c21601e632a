package pki_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/pki"
	"skerry/hub/state"
	"skerry/hub/state/statetest"
)

// keyCluster are hubs with one replicated state, each with its own file of state keys. Steps of a rotation that leave a hub
// are effects: the test ends the hub before or after one of them, as a crash does.
type keyCluster struct {
	*testing.T
	log     *statetest.Log
	now     time.Time
	hubs    []*keyHub
	leads   int // which hub leads
	first   pki.StateKey
	lost    string            // the name of a state key that nobody has
	gossip  map[string][]byte // what is encrypted with while a state key is the active one
	effects []string
	crashAt int    // number of the effect, from 1; 0: none
	crashed string // which effect it was
	after   bool   // the crash comes after the effect
}

// keyHub is one hub, and Wrapper of its keys on the disk.
type keyHub struct {
	c    *keyCluster
	id   fleet.HubID
	dir  string
	off  bool
	old  bool // of a release that knows no rotation
	keys *pki.StateKeys
	ring *pki.Keyring
}

// crash ends a hub in the middle of a step.
type crash struct{ hub *keyHub }

// doEffect runs an effect of a hub, unless the hub crashes before it.
func (c *keyCluster) doEffect(h *keyHub, label string, run func() error) error {
	c.effects = append(c.effects, string(h.id)+" "+label)
	hit := len(c.effects) == c.crashAt
	if hit {
		c.crashed = c.effects[len(c.effects)-1]
	}
	if hit && !c.after {
		panic(crash{h})
	}
	err := run()
	if hit {
		panic(crash{h})
	}
	return err
}

// Kind, Wrap and Unwrap make the hub the KeyWrapper of its own file, so that each write of a new key is an effect.
func (h *keyHub) Kind() string { return "transit" }

func (h *keyHub) Wrap(_ context.Context, plain []byte) (wrapped string, err error) {
	err = h.c.doEffect(h, "stores a key", func() error {
		wrapped = fmt.Sprintf("%x", flipBytes(plain))
		return nil
	})
	return wrapped, err
}

func (h *keyHub) Unwrap(_ context.Context, wrapped string) ([]byte, error) {
	var b []byte
	_, err := fmt.Sscanf(wrapped, "%x", &b)
	return flipBytes(b), err
}

// Apply commits a command of the hub.
func (h *keyHub) Apply(ctx context.Context, cmd state.Command) (res state.Result, err error) {
	label := state.KindOf(cmd).String()
	if r, ok := cmd.(state.StateKeyRewrap); ok && len(r.Sealed) > 0 {
		label = "makes the key active"
	}
	if r, ok := cmd.(state.StateKeyHubStep); ok && r.Erased {
		label = "says it is erased"
	}
	err = h.c.doEffect(h, label, func() error {
		res, err = h.c.log.Apply(ctx, cmd)
		return err
	})
	return res, err
}

// asLeader is Apply of a hub while it leads.
type asLeader struct{ *keyHub }

func (l asLeader) Apply(ctx context.Context, cmd state.Command) (state.Result, error) {
	if l.c.hubs[l.c.leads] != l.keyHub {
		return state.Result{}, errors.New("another hub leads")
	}
	return l.keyHub.Apply(ctx, cmd)
}

// askHub has the hub with an address do something. It fails if the hub does not run, or crashes then.
func (c *keyCluster) askHub(addr string, do func(*keyHub) error) error {
	i := slices.IndexFunc(c.hubs, func(h *keyHub) bool { return string(h.id) == addr })
	silent := fleet.Errorf(fleet.CodeUnavailable, "hub %s does not answer", addr)
	if c.hubs[i].off {
		return silent
	}
	if crashed, err := c.restartIfCrashed(func() error { return do(c.hubs[i]) }); !crashed {
		return err
	}
	return silent
}

// restartIfCrashed does something. A hub that crashes meanwhile starts again, and another one leads.
func (c *keyCluster) restartIfCrashed(do func() error) (crashed bool, err error) {
	defer func() {
		switch gone := recover().(type) {
		case nil:
		case crash:
			gone.hub.start()
			c.leads = (c.leads + 1) % len(c.hubs)
			crashed, err = true, errors.New("it crashed")
		default:
			panic(gone)
		}
	}()
	return false, do()
}

// FetchKey, KeepKey and KeepNextKey are the hub's calls to others.
func (h *keyHub) FetchKey(ctx context.Context, addr, id string) (key []byte, err error) {
	err = h.c.doEffect(h, "asks for a key", func() error {
		return h.c.askHub(addr, func(other *keyHub) (err error) {
			key, err = other.ring.ServeStateKey(ctx, string(h.id), id)
			return err
		})
	})
	return key, err
}

func (h *keyHub) KeepKey(context.Context, string, []byte) error {
	return errors.New("not in this test")
}

func (h *keyHub) KeepNextKey(ctx context.Context, addr string, key []byte) error {
	return h.c.doEffect(h, "gives a key", func() error {
		return h.c.askHub(addr, func(other *keyHub) error {
			if other.old {
				return fleet.Errorf(fleet.CodeUnsupported, "this hub has no such method")
			}
			_, err := other.ring.StoreStateKey(ctx, string(h.id), key)
			return err
		})
	})
}

// mustFetch has a keyring of the hub fetch what it lacks.
func (h *keyHub) mustFetch(ring *pki.Keyring, caughtUp bool) {
	h.c.Helper()
	if err := ring.FetchMissing(h.c.Context(), caughtUp); err != nil {
		h.c.Fatal(err)
	}
}

func boundOf(_ *state.View, r state.RewrappedSecret) []byte { return []byte(r.Kind + r.Name) }

// start opens the hub's keys and its keyring, as at a start.
func (h *keyHub) start() {
	keys, err := pki.OpenStateKeys(pki.StateKeysConfig{Dir: h.dir, Wrapper: h, Wrap: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		h.c.Fatal(err)
	}
	h.keys, h.off = keys, false
	h.ring = h.newKeyring(h.c.log.Store)
}

// newKeyring makes a keyring of the hub's keys, with a state that may be older than that of the cluster.
func (h *keyHub) newKeyring(store *state.Store) *pki.Keyring {
	return pki.NewKeyring(pki.KeyringConfig{
		Keys: h.keys, Hub: h.id, State: store, Apply: h, Lead: asLeader{h}, Calls: h, Log: slog.New(slog.DiscardHandler),
		Others: func() (addrs []string) {
			for _, other := range h.c.hubs {
				if other != h {
					addrs = append(addrs, string(other.id))
				}
			}
			return addrs
		},
		Voters: func() (ids []fleet.HubID, err error) {
			for _, other := range h.c.hubs {
				ids = append(ids, other.id)
			}
			return ids, nil
		},
		Bound: boundOf, Now: func() time.Time { return h.c.now },
	})
}

// newKeyCluster makes three hubs, whose state has secrets of each kind.
func newKeyCluster(t *testing.T) *keyCluster {
	t.Helper()
	c := &keyCluster{T: t, log: statetest.NewLog(), now: start, first: pki.NewStateKey(), gossip: map[string][]byte{}}
	cluster := state.Cluster{ID: "c1", CACert: []byte("the CA"), CAKey: []byte("key of the CA"), GossipKey: []byte("gossip"), CreatedAt: start.UnixNano()}
	seal, err := c.first.Seal(cluster)
	if err != nil {
		t.Fatal(err)
	}
	c.log.MustApply(t, state.ClusterInit{Cluster: cluster.WithSeal(seal)})
	for _, id := range []fleet.HubID{"hub-1", "hub-2", "hub-3"} {
		h := &keyHub{c: c, id: id, dir: t.TempDir()}
		c.hubs = append(c.hubs, h)
		h.start()
		c.log.MustApply(t, state.Hub{Hub: state.HubAddr{ID: id, QUIC: string(id)}})
		if err := h.keys.Add(t.Context(), c.first); err != nil {
			t.Fatal(err)
		}
	}
	ca := state.CA{Number: 2, Cert: []byte{1}, Forward: []byte{2}, Reverse: []byte{3}}
	ca.Wrapped, ca.WrappedBy = c.wrap(state.WrappedCA, "2")
	root := c.rootKey("r1")
	root.Signing = &state.SigningKey{Public: []byte{4}}
	root.Signing.Wrapped, root.Signing.WrappedBy = c.wrap(state.WrappedSigningKey, "r1")
	method := state.ACLAuthMethodRecord{ACLAuthMethod: fleet.ACLAuthMethod{Name: "sso", Type: fleet.ACLAuthMethodOIDC, Config: &fleet.ACLAuthMethodConfig{}}}
	method.Secret.Data, method.Secret.By = c.wrap(state.WrappedAuthMethod, "sso")
	for _, cmd := range []state.Command{state.CAStore{CA: ca}, state.RootKeyStore{Key: root}, state.ACLAuthMethodStore{Method: method}} {
		c.log.MustApply(t, cmd)
	}
	c.effects = nil
	return c
}

// checkGossip checks that all hubs that know the active state key encrypt their gossip with the same key, which is the
// cluster's own one while the first state key is active, and that none accepts that of a forgotten state key.
func (c *keyCluster) checkGossip(v *state.View, active string) {
	c.Helper()
	is := func(a []byte) func([]byte) bool { return func(b []byte) bool { return bytes.Equal(a, b) } }
	rows := v.StateKeys()
	for _, h := range c.hubs {
		stored := bytes.Repeat([]byte{1}, pki.GossipKeyBytes)
		keys, err := h.ring.GossipKeys(v, stored)
		if err != nil || len(keys) == 0 {
			c.Errorf("%s %v: %s has %d gossip keys: %v", c.crashed, c.after, h.id, len(keys), err)
			continue
		}
		if len(rows) == 0 {
			rows = []*state.StateKey{{ID: active, Number: 1}}
		}
		i := slices.IndexFunc(rows, func(row *state.StateKey) bool { return row.ID == active })
		if i < 0 || !slices.ContainsFunc(h.keys.Known(), func(key pki.StateKey) bool { return key.ID() == active }) {
			continue // it was off, or its keys are still wrapped
		}
		if c.gossip[active] == nil {
			c.gossip[active] = keys[0]
		}
		if !bytes.Equal(keys[0], c.gossip[active]) || (string(keys[0]) == "gossip") != (rows[i].Number == 1) || slices.ContainsFunc(keys, is(stored)) {
			c.Errorf("%s %v: with state key %d, %s encrypts its gossip with another key than the others", c.crashed, c.after, rows[i].Number, h.id)
		}
		for _, row := range rows {
			if key := c.gossip[row.ID]; key != nil && row.ForgottenAt != 0 && slices.ContainsFunc(keys, is(key)) {
				c.Errorf("%s %v: %s accepts the gossip key of the forgotten state key %d", c.crashed, c.after, h.id, row.Number)
			}
		}
	}
}

// wrap encrypts a secret with the state key that the first hub uses.
func (c *keyCluster) wrap(kind, name string) ([]byte, string) {
	c.Helper()
	wrapped, by, err := c.hubs[0].ring.Wrap([]byte("secret "+kind), boundOf(nil, state.RewrappedSecret{Kind: kind, Name: name}))
	if err != nil {
		c.Fatal(err)
	}
	return wrapped, by
}

func (c *keyCluster) rootKey(id string) state.RootKey {
	c.Helper()
	row := state.RootKey{RootKey: fleet.RootKey{KeyID: id, Algorithm: fleet.AlgorithmAES256GCM}}
	row.Wrapped, row.WrappedBy = c.wrap(state.WrappedRootKey, id)
	return row
}

// save returns a snapshot of the state.
func (c *keyCluster) save() []byte {
	c.Helper()
	var file bytes.Buffer
	if err := c.log.View().Persist(&file); err != nil {
		c.Fatal(err)
	}
	return file.Bytes()
}

// run has a hub do a step, and checks what has to hold afterwards.
func (c *keyCluster) run(step func() error) error {
	_, err := c.restartIfCrashed(step)
	c.check()
	return err
}

// settle has all hubs do their parts until none has anything left to do.
func (c *keyCluster) settle() {
	c.Helper()
	for range 50 {
		before, index := len(c.effects), c.log.View().Index()
		for i, h := range c.hubs {
			if h.off {
				continue
			}
			_ = c.run(func() error {
				return errors.Join(h.ring.FetchMissing(c.Context(), true), h.ring.ReportKeys(c.Context()))
			})
			if i == c.leads {
				_ = c.run(func() error { return h.ring.AdvanceRotation(c.Context(), c.log.View()) })
			}
		}
		asked := slices.ContainsFunc(c.effects[before:], func(e string) bool { return !strings.HasSuffix(e, "asks for a key") })
		if !asked && c.log.View().Index() == index {
			return
		}
	}
	c.Fatalf("it never ends: %v", c.effects[max(0, len(c.effects)-20):])
}

// check checks what has to hold at any time: the hubs that have the active key, as they say, have it in their files, and the
// secrets can be decrypted with what is in the file of a hub that has all keys that are kept.
func (c *keyCluster) check() {
	c.Helper()
	v := c.log.View()
	inFile := map[fleet.HubID][]pki.StateKey{}
	for _, h := range c.hubs {
		inFile[h.id] = c.fileOf(h)
	}
	for _, row := range v.StateKeys() {
		for _, id := range row.Held {
			if row.ForgottenAt == 0 && !slices.ContainsFunc(inFile[id], func(k pki.StateKey) bool { return k.ID() == row.ID }) {
				c.Errorf("%s %v: %s says that it has key %d, and its file does not", c.crashed, c.after, id, row.Number)
			}
		}
	}
	cluster, _ := v.Cluster()
	var all []pki.StateKey
	for _, keys := range inFile {
		all = append(all, keys...)
	}
	if opened, err := pki.OpenCluster(*cluster, all); err != nil || string(opened.CAKey) != "key of the CA" || string(opened.GossipKey) != "gossip" {
		c.Errorf("%s %v: nobody can open the cluster's secrets: %v", c.crashed, c.after, err)
	}
	c.checkGossip(v, cluster.SealKey)
	for _, by := range v.WrappedSecrets() {
		if by != c.lost && !slices.ContainsFunc(all, func(k pki.StateKey) bool { return k.ID() == by }) {
			c.Errorf("%s %v: nobody has the key %s of a secret", c.crashed, c.after, by)
		}
	}
}

// fileOf returns the keys in the file of a hub.
func (c *keyCluster) fileOf(h *keyHub) []pki.StateKey {
	quiet := &keyHub{c: &keyCluster{T: c.T}, id: h.id}
	keys, err := pki.OpenStateKeys(pki.StateKeysConfig{Dir: h.dir, Wrapper: quiet, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = keys.UnwrapAll(c.Context())
	}
	if err != nil {
		c.Fatal(err)
	}
	return keys.Known()
}

// mustBeOver checks that a rotation is over: every secret is encrypted with the newest key, each hub can decrypt it, and no
// file has a key that was forgotten.
func (c *keyCluster) mustBeOver(kept int) {
	c.Helper()
	v := c.log.View()
	cluster, _ := v.Cluster()
	keys := v.StateKeys()
	newest := keys[len(keys)-1]
	if cluster.SealKey != newest.ID || newest.ID == c.first.ID() || len(newest.Held) != len(c.hubs) {
		c.Errorf("%s %v: active is %s, held by %v", c.crashed, c.after, cluster.SealKey, newest.Held)
	}
	for secret, by := range v.WrappedSecrets() {
		if by != newest.ID {
			c.Errorf("%s %v: the %s is encrypted with %s", c.crashed, c.after, secret.Kind, by)
		}
		for _, h := range c.hubs {
			if plain, err := h.ring.Unwrap(by, secret.Before, boundOf(v, secret)); err != nil || string(plain) != "secret "+secret.Kind {
				c.Errorf("%s %v: %s decrypts the %s as %q, %v", c.crashed, c.after, h.id, secret.Kind, plain, err)
			}
		}
	}
	for _, h := range c.hubs {
		named := 0
		for _, key := range c.fileOf(h) {
			i := slices.IndexFunc(keys, func(row *state.StateKey) bool { return row.ID == key.ID() })
			if i >= 0 {
				named++
			}
			if i >= 0 && keys[i].ForgottenAt != 0 {
				c.Errorf("%s %v: %s still has the forgotten key %d", c.crashed, c.after, h.id, keys[i].Number)
			}
		}
		if named != kept {
			c.Errorf("%s %v: %s has %d of the keys, want %d", c.crashed, c.after, h.id, named, kept)
		}
	}
}

// rotateAndForget makes a rotation, as a person does it: who gets no answer looks, and repeats it if nothing began.
func (c *keyCluster) rotateAndForget() {
	c.Helper()
	for range 5 {
		h := c.hubs[1]
		err := c.run(func() error {
			_, _, err := h.ring.Rotate(c.Context(), time.Hour)
			return err
		})
		if keys := c.log.View().StateKeys(); err == nil || len(keys) > 0 {
			break
		}
	}
	c.settle()
	c.now = c.now.Add(2 * time.Hour)
	c.settle()
}

// TestRotationGoesOnAfterACrash: a hub crashes before and after each step of a rotation. The state can be decrypted at any
// time, and the rotation ends on all hubs.
func TestRotationGoesOnAfterACrash(t *testing.T) {
	whole := newKeyCluster(t)
	whole.rotateAndForget()
	whole.mustBeOver(1)
	steps := map[string]bool{}
	for _, label := range whole.effects {
		_, step, _ := strings.Cut(label, " ")
		steps[step] = true
	}
	want := []string{"gives a key", "makes the key active", "says it is erased", "state_key_forget", "state_key_hub_step", "state_key_rewrap", "state_key_store", "stores a key"}
	if got := slices.Sorted(maps.Keys(steps)); !slices.Equal(got, want) {
		t.Errorf("the steps are %q, want %q", got, want)
	}
	for at := range whole.effects {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d %s, after=%v", at+1, whole.effects[at], after), func(t *testing.T) {
				c := newKeyCluster(t)
				c.crashAt, c.after = at+1, after
				c.rotateAndForget()
				if c.crashed == "" {
					t.Fatal("it did not crash")
				}
				c.mustBeOver(1)
			})
		}
	}
}

// TestHubThatWasOff: a hub that is off during a rotation has the new key once it is back. The key before is forgotten only
// then, and a hub that lost its file gets it again.
func TestHubThatWasOff(t *testing.T) {
	c := newKeyCluster(t)
	c.hubs[2].off = true
	c.rotateAndForget()
	c.now = c.now.Add(1000 * time.Hour)
	c.settle()
	keys := c.log.View().StateKeys()
	if cluster, _ := c.log.View().Cluster(); cluster.SealKey != keys[1].ID || keys[0].ForgottenAt != 0 || len(keys[1].Held) != 2 {
		t.Fatalf("while it is off: %+v, %+v", keys[0], keys[1])
	}
	c.hubs[2].start()
	c.settle()
	c.mustBeOver(1)
}

// TestRotationNeedsMostHubs: without most hubs, or with one of an older release, no rotation begins, and no key stays on the
// hub that was asked.
func TestRotationNeedsMostHubs(t *testing.T) {
	c := newKeyCluster(t)
	c.hubs[0].off, c.hubs[2].off = true, true
	_, _, err := c.hubs[1].ring.Rotate(t.Context(), 0)
	if fleet.CodeOf(err) != fleet.CodeUnavailable || !strings.Contains(err.Error(), "most hubs did not take it") {
		t.Errorf("alone: %v", err)
	}
	if left := c.fileOf(c.hubs[1]); len(left) != 1 || left[0] != c.first || len(c.log.View().StateKeys()) != 0 {
		t.Errorf("alone: it has %v", left)
	}
	c.hubs[0].off, c.hubs[2].off, c.hubs[2].old = false, false, true
	if _, _, err := c.hubs[1].ring.Rotate(t.Context(), 0); fleet.CodeOf(err) != fleet.CodeUnavailable || !strings.Contains(err.Error(), "hub hub-3 is of an older release") {
		t.Errorf("with an older release: %v", err)
	}
	c.hubs[2].old = false
	if _, _, err := c.hubs[1].ring.Rotate(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.hubs[0].ring.Rotate(t.Context(), 0); fleet.CodeOf(err) != fleet.CodeConflict {
		t.Errorf("a second one: %v", err)
	}
	c.settle()
	c.mustBeOver(1)
}

// TestForgottenKeyIsNamed: what needs a key that was forgotten says when that was, and where it may be had. A person may put
// it back: it is not erased again, and what is encrypted with it gets the active key.
func TestForgottenKeyIsNamed(t *testing.T) {
	c := newKeyCluster(t)
	h := c.hubs[0]
	wrapped, by, err := h.ring.Wrap([]byte("secret root key"), []byte("root keyr2"))
	if err != nil {
		t.Fatal(err)
	}
	c.rotateAndForget()
	_, err = h.ring.Unwrap(by, wrapped, []byte("root keyr2"))
	if e := fleet.AsError(err); e == nil || e.Code != fleet.CodeUnavailable || !strings.Contains(e.Message, "has forgotten that key at") || !strings.Contains(e.Hint, "from a backup of a hub") {
		t.Errorf("a secret of before: %v", err)
	}
	if err := h.keys.Add(t.Context(), c.first); err != nil {
		t.Fatal(err)
	}
	c.settle()
	if plain, err := h.ring.Unwrap(by, wrapped, []byte("root keyr2")); err != nil || !bytes.Equal(plain, []byte("secret root key")) {
		t.Errorf("with the key from a backup: %q, %v", plain, err)
	}
}

// TestRestoredSecretNeedsAForgottenKey: a snapshot from before a rotation brings a root key back that was removed since. The
// hub where a person has put the forgotten key gives it to the others. These have it in memory alone, until everything is
// encrypted with the active key. The person's file stays as it is.
func TestRestoredSecretNeedsAForgottenKey(t *testing.T) {
	c := newKeyCluster(t)
	c.leads = 2
	c.log.MustApply(t, state.RootKeyStore{Key: c.rootKey("gone")})
	c.log.MustApply(t, state.RootKeyStore{Key: c.rootKey("r2")})
	file := c.save()
	c.log.MustApply(t, state.RootKeyDelete{KeyID: "gone", Now: 1})
	c.rotateAndForget()
	c.mustBeOver(1)
	if err := c.hubs[0].keys.Add(t.Context(), c.first); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(file)
	c.log.MustApply(t, state.SnapshotPart{Restore: "r", Data: file})
	c.log.MustApply(t, state.SnapshotRestore{Restore: "r", Size: int64(len(file)), Sum: sum[:], EvalSeed: "s", Now: 1})
	for _, h := range c.hubs[1:] {
		if err := h.ring.FetchMissing(t.Context(), true); err != nil || !slices.Contains(h.keys.Known(), c.first) || slices.Contains(c.fileOf(h), c.first) {
			t.Errorf("%s has %v, its file %v: %v", h.id, h.keys.Known(), c.fileOf(h), err)
		}
	}
	c.settle()
	cluster, _ := c.log.View().Cluster()
	for secret, by := range c.log.View().WrappedSecrets() {
		if by != cluster.SealKey {
			t.Errorf("the %s %s is encrypted with %s", secret.Kind, secret.Name, by)
		}
	}
	for i, h := range c.hubs {
		stored := slices.Contains(c.fileOf(h), c.first)
		if known := slices.Contains(h.keys.Known(), c.first); known != (i == 0) || stored != (i == 0) {
			t.Errorf("afterwards %s has the forgotten key in memory: %v, in its file: %v", h.id, known, stored)
		}
	}
}

// TestOldStateBringsNoKeyBack: a hub starts with the state of an old snapshot, before or in a rotation, while another hub has
// not erased the former key yet. The hub takes the key for as long as it seals the secrets in that state, and stores none.
func TestOldStateBringsNoKeyBack(t *testing.T) {
	c := newKeyCluster(t)
	before := c.save()
	if _, _, err := c.hubs[0].ring.Rotate(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	c.settle()
	during := c.save()
	c.now = c.now.Add(2 * time.Hour)
	c.settle()
	c.mustBeOver(1)
	if err := c.hubs[0].keys.Add(t.Context(), c.first); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string][]byte{"before": before, "during": during} {
		old := state.New()
		if err := old.Restore(bytes.NewReader(file)); err != nil {
			t.Fatal(err)
		}
		h := c.hubs[2]
		h.start()
		h.mustFetch(h.newKeyring(old), false)
		if known := slices.Contains(h.keys.Known(), c.first); known != (name == "before") || slices.Contains(c.fileOf(h), c.first) {
			t.Errorf("%s: it has the former key in memory: %v, and in its file %v", name, known, c.fileOf(h))
		}
		h.mustFetch(h.ring, true)
		if slices.Contains(h.keys.Known(), c.first) || len(c.fileOf(h)) != 1 {
			t.Errorf("%s: once its state is not old any more, it has %v, its file %v", name, h.keys.Known(), c.fileOf(h))
		}
	}
}

// TestLostKeyIsStoredAgain: a hub that lost its file works with the key of another hub at once, and stores it and the other
// keys that are kept once its state is not old any more.
func TestLostKeyIsStoredAgain(t *testing.T) {
	c := newKeyCluster(t)
	if _, _, err := c.hubs[0].ring.Rotate(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	c.settle()
	h := c.hubs[2]
	for _, row := range c.log.View().StateKeys() {
		if err := h.keys.Forget(row.ID); err != nil {
			t.Fatal(err)
		}
	}
	h.mustFetch(h.ring, false)
	if known := h.keys.Known(); len(known) != 1 || known[0] == c.first || len(c.fileOf(h)) != 0 {
		t.Errorf("at first it has %v, its file %v", known, c.fileOf(h))
	}
	h.mustFetch(h.ring, true)
	if known, stored := h.keys.Known(), c.fileOf(h); len(known) != 2 || len(stored) != 2 || !slices.Contains(stored, c.first) {
		t.Errorf("then it has %v, its file %v", known, stored)
	}
}

// TestLostSecretKeepsNoOtherKey: a secret that nobody can decrypt, as a restore may bring it back, is named in each step of
// the leader. The former key, which does not encrypt it, is forgotten and erased nevertheless.
func TestLostSecretKeepsNoOtherKey(t *testing.T) {
	c := newKeyCluster(t)
	c.lost = "lost"
	c.log.MustApply(t, state.RootKeyStore{Key: state.RootKey{
		RootKey: fleet.RootKey{KeyID: "restored", Algorithm: fleet.AlgorithmAES256GCM}, Wrapped: []byte{1}, WrappedBy: c.lost,
	}})
	c.rotateAndForget()
	if keys := c.log.View().StateKeys(); len(keys) != 2 || keys[0].ForgottenAt == 0 || len(keys[0].Erased) != len(c.hubs) {
		t.Errorf("the former key: %+v", keys[0])
	}
	for _, h := range c.hubs {
		if slices.Contains(c.fileOf(h), c.first) {
			t.Errorf("%s still has the former key", h.id)
		}
	}
	err := c.hubs[c.leads].ring.AdvanceRotation(t.Context(), c.log.View())
	if fleet.CodeOf(err) != fleet.CodeUnavailable || !strings.Contains(err.Error(), "encrypt the root key restored with the state key") {
		t.Errorf("the leader's step: %v", err)
	}
}

// TestStrayKeysMakeRoom: keys of rotations that never began do not push out one that is in use.
func TestStrayKeysMakeRoom(t *testing.T) {
	c := newKeyCluster(t)
	h := c.hubs[0]
	for range 40 {
		stray := pki.NewStateKey()
		if _, err := h.ring.StoreStateKey(t.Context(), "hub-2", stray[:]); err != nil {
			t.Fatal(err)
		}
	}
	if known := h.keys.Known(); len(known) != 16 || known[0] != c.first {
		t.Errorf("%d keys, the first one of them %v", len(known), known[0])
	}
	if _, err := h.ring.StoreStateKey(t.Context(), "hub-2", []byte("short")); fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Errorf("a key that is too short: %v", err)
	}
}
