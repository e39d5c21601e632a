package pki

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/rpc"
	"skerry/hub/state"
)

// Bounds of how long a state key is kept that was replaced, for snapshots from before.
const (
	DefaultStateKeyKeep = 30 * 24 * time.Hour
	MaxStateKeyKeep     = CAValidity
)

const (
	// rewrapBytes is how many bytes of wrapped secrets a command of a rotation has, apart from the last one's.
	rewrapBytes = 1 << 20
	// keptCheckInterval is how often the leader looks whether the time of a key is over.
	keptCheckInterval = time.Minute
)

// A rotation of the state key has these steps. Each may be cut off and repeated, by any hub:
//
//  1. Rotate draws the key, and stores it on this hub. It gives it to the others, and commits the names of those that have
//     stored it: most voters have to. A hub that was off fetches it (FetchMissing), and says so (ReportKeys).
//  2. The leader encrypts the cluster's secrets with the new key, which makes it the active one (AdvanceRotation).
//  3. It does so with all other secrets that are encrypted with a former one.
//  4. Once the former key's time is over, nothing is encrypted with it, and every hub and voter has the active one, the
//     leader commits that it is forgotten.
//  5. Each hub erases it, and says so (ReportKeys).

// Rotate begins the rotation to a new state key. keep is how long the one before is kept. CodeConflict: another rotation is
// under way, or too many keys are kept. CodeUnavailable: most hubs do not answer, or one is of an older release.
func (k *Keyring) Rotate(ctx context.Context, keep time.Duration) (state.StateKey, fleet.Index, error) {
	view := k.cfg.State.View()
	if cluster, ok := view.Cluster(); !ok || len(cluster.Sealed) == 0 {
		return state.StateKey{}, 0, fleet.Errorf(fleet.CodeUnavailable, "rotate the state key: there is none yet").
			WithHint("the cluster gets one as soon as every hub runs this release")
	}
	if err := view.StateKeyUnderWay(); err != nil {
		return state.StateKey{}, 0, err
	}
	now := k.cfg.Now()
	if err := CheckClock(now, nil); err != nil {
		return state.StateKey{}, 0, err
	}
	key := NewStateKey()
	if err := k.keepKey(ctx, key); err != nil {
		return state.StateKey{}, 0, fmt.Errorf("rotate the state key: %w", err)
	}
	next := state.StateKey{ID: key.ID(), Keep: keep, CreatedAt: now.UnixNano()}
	var err error
	if next.Held, err = k.giveToHubs(ctx, view, key); err != nil {
		return state.StateKey{}, 0, errors.Join(err, k.cfg.Keys.Forget(key.ID()))
	}
	res, err := k.cfg.Apply.Apply(ctx, state.StateKeyStore{Key: next})
	if err == nil && res.Err != nil {
		return state.StateKey{}, res.Index, errors.Join(res.Err, k.cfg.Keys.Forget(key.ID()))
	}
	if err == nil {
		k.cfg.Log.Info("rotation of the state key begun", "state_key", key.ID(), "hubs", len(next.Held))
	}
	return next, res.Index, err
}

// giveToHubs has the other hubs store a key, and returns who has it. It fails unless most voters do.
func (k *Keyring) giveToHubs(ctx context.Context, view *state.View, key StateKey) ([]fleet.HubID, error) {
	held := []fleet.HubID{k.cfg.Hub}
	var failed error
	for _, hub := range view.Hubs() {
		if hub.ID == k.cfg.Hub {
			continue
		}
		callCtx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
		err := k.cfg.Calls.KeepNextKey(callCtx, hub.QUIC, key[:])
		cancel()
		switch {
		case err == nil:
			held = append(held, hub.ID)
		case fleet.CodeOf(err) == fleet.CodeUnsupported:
			return nil, fleet.Errorf(fleet.CodeUnavailable, "rotate the state key: hub %s is of an older release: %w", hub.ID, err).WithHint("upgrade it first")
		default:
			failed = errors.Join(failed, fmt.Errorf("give hub %s the state key: %w", hub.ID, err))
		}
	}
	slices.Sort(held)
	most, err := k.isHeldByMost(held)
	if err == nil && !most {
		err = fleet.Errorf(fleet.CodeUnavailable, "rotate the state key: most hubs did not take it: %w", failed).WithHint("repeat it once more than half of the hubs run")
	}
	return held, err
}

// isHeldByMost reports whether a list has more than half of the voters.
func (k *Keyring) isHeldByMost(held []fleet.HubID) (bool, error) {
	voters, err := k.cfg.Voters()
	n := 0
	for _, voter := range voters {
		if slices.Contains(held, voter) {
			n++
		}
	}
	return 2*n > len(voters), err
}

// isHeldByAll reports whether a list has every voter and every hub.
func (k *Keyring) isHeldByAll(held []fleet.HubID, hubs []state.HubAddr) (bool, error) {
	voters, err := k.cfg.Voters()
	missing := slices.ContainsFunc(voters, func(id fleet.HubID) bool { return !slices.Contains(held, id) })
	return err == nil && !missing && hasAll(held, hubs), err
}

// ReportKeys commits which state keys this hub has stored, and erases those that are forgotten. It erases each once.
func (k *Keyring) ReportKeys(ctx context.Context) error {
	view := k.cfg.State.View()
	cluster, ok := view.Cluster()
	if _, known := view.Hub(k.cfg.Hub); !ok || !known {
		return nil
	}
	for _, row := range view.StateKeys() {
		stored := k.cfg.Keys.IsStored(row.ID)
		step := state.StateKeyHubStep{ID: row.ID, Hub: k.cfg.Hub, Erased: row.ForgottenAt != 0}
		switch {
		case !step.Erased && (!stored || slices.Contains(row.Held, k.cfg.Hub)):
			continue
		case step.Erased && slices.Contains(row.Erased, k.cfg.Hub):
			continue // a person may have put it back since, for an old snapshot; FetchMissing does not
		case step.Erased && !k.cfg.Keys.IsStored(cluster.SealKey):
			continue
		}
		if step.Erased {
			if err := k.cfg.Keys.Forget(row.ID); err != nil {
				return fmt.Errorf("erase the state key %s: %w", row.ID, err)
			}
			k.cfg.Log.Info("state key erased", "state_key", row.ID)
		}
		res, err := k.cfg.Apply.Apply(ctx, step)
		if err = res.Failure(err); err != nil {
			return fmt.Errorf("record whether this hub has the state key %s: %w", row.ID, err)
		}
	}
	return nil
}

// LeadRotation is a leader task: it goes on with a rotation of the state key until ctx ends, also with one that another
// leader has begun. It logs each new failure once, and tries again.
func (k *Keyring) LeadRotation(ctx context.Context) error {
	for said := ""; ; {
		watch := k.cfg.State.Watch()
		wait := keptCheckInterval
		switch err := k.AdvanceRotation(ctx, watch); {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			k.cfg.Log.Warn("rotation of the state key does not go on, trying again", "error", err)
			wait = sealRetryInterval
		default:
			wait = sealRetryInterval
		}
		timed, cancel := context.WithTimeout(ctx, wait)
		_ = watch.Changed(timed) // also the end of the time is a reason to look again
		cancel()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// AdvanceRotation does the leader's next step of a rotation. A secret that nobody can decrypt keeps the key that it is
// encrypted with, and no other key.
func (k *Keyring) AdvanceRotation(ctx context.Context, v *state.View) error {
	cluster, ok := v.Cluster()
	keys := v.StateKeys()
	if !ok || len(keys) == 0 {
		return nil
	}
	if newest := keys[len(keys)-1]; newest.ActiveSince == 0 {
		most, err := k.isHeldByMost(newest.Held)
		if err != nil || !most {
			return err
		}
		return k.activateKey(ctx, *cluster, newest.ID)
	}
	return errors.Join(k.rewrapSecrets(ctx, v, cluster.SealKey), k.forgetKeys(ctx, v, cluster.SealKey, keys))
}

// activateKey encrypts the cluster's secrets with a key.
func (k *Keyring) activateKey(ctx context.Context, cluster state.Cluster, id string) error {
	key, ok := k.cfg.Keys.findKey(id)
	if !ok {
		return k.missingKey("make a state key the active one: the next secrets will be", id)
	}
	opened, err := k.Open(cluster)
	if err != nil {
		return err
	}
	seal, err := key.Seal(opened)
	if err != nil {
		return err
	}
	if err := k.commitAsLeader(ctx, state.StateKeyRewrap{ID: id, Sealed: seal.Sealed, Now: k.cfg.Now().UnixNano()}); err != nil {
		return fmt.Errorf("make the state key %s the active one: %w", id, err)
	}
	k.cfg.Log.Info("state key is the active one; older logs and snapshots are encrypted with the one before", "state_key", id, "before", cluster.SealKey)
	return nil
}

func (k *Keyring) commitAsLeader(ctx context.Context, c state.Command) error {
	res, err := k.cfg.Lead.Apply(ctx, c)
	return res.Failure(err)
}

// rewrapSecrets encrypts with the active key what is encrypted with others, in commands of bounded size. It leaves out what
// it cannot decrypt, and returns the first error.
func (k *Keyring) rewrapSecrets(ctx context.Context, v *state.View, active string) (first error) {
	key, ok := k.cfg.Keys.findKey(active)
	if !ok {
		return k.missingKey("encrypt the state's keys again: the cluster's secrets are", active)
	}
	batch, size := state.StateKeyRewrap{ID: active}, 0
	commit := func() error {
		if len(batch.Rows) == 0 {
			return nil
		}
		err := k.commitAsLeader(ctx, batch)
		batch, size = state.StateKeyRewrap{ID: active}, 0
		return err
	}
	for secret, by := range v.WrappedSecrets() {
		if by == active {
			continue
		}
		bound := k.cfg.Bound(v, secret)
		plain, err := k.Unwrap(by, secret.Before, bound)
		if err == nil {
			secret.After, err = key.wrapBytes(plain, bound)
		}
		if err != nil {
			if first == nil {
				first = fmt.Errorf("encrypt the %s %s with the state key %s: %w", secret.Kind, secret.Name, active, err)
			}
			continue
		}
		batch.Rows = append(batch.Rows, secret)
		if size += len(secret.Before) + len(secret.After); size >= rewrapBytes {
			if err := commit(); err != nil {
				return err
			}
		}
	}
	if err := commit(); err != nil {
		return err
	}
	return first
}

// forgetKeys commits that the keys whose time is over are forgotten, once every hub has the active one and nothing is
// encrypted with them.
func (k *Keyring) forgetKeys(ctx context.Context, v *state.View, active string, keys []*state.StateKey) error {
	used := map[string]bool{}
	for _, by := range v.WrappedSecrets() {
		used[by] = true
	}
	now := k.cfg.Now().UnixNano()
	i := slices.IndexFunc(keys, func(row *state.StateKey) bool { return row.ID == active })
	if i < 0 {
		return nil
	}
	if all, err := k.isHeldByAll(keys[i].Held, v.Hubs()); err != nil || !all {
		return err
	}
	for _, row := range keys {
		if row.KeptUntil == 0 || row.KeptUntil > now || row.ForgottenAt != 0 || used[row.ID] {
			continue
		}
		if err := k.commitAsLeader(ctx, state.StateKeyForget{ID: row.ID, Now: now}); err != nil {
			return err
		}
		k.cfg.Log.Info("state key forgotten: every hub erases it", "state_key", row.ID)
	}
	return nil
}
