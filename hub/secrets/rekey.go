package secrets

import (
	"context"
	"errors"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/internal/pace"
)

const (
	// rekeyBytes is how many bytes of encrypted items a command of a re-encryption has, apart from the last variable's.
	rekeyBytes = 1 << 20
	// firstRetry and lastRetry bound the pause before what failed is tried again. A new cluster has its state key a moment later.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Lead is a leader task: it encrypts the variables of rekeying keys with the active key, until ctx ends, and makes the
// first signing key where Config says so. What another leader has begun goes on here. A failure is tried again, and logged once
// if it lasts for a second.
func (s *Secrets) Lead(ctx context.Context) error {
	for said, pause := "", firstRetry; ; {
		v := s.cfg.State.Watch()
		err := s.rekeyAll(ctx, v)
		if s.cfg.Signs && err == nil {
			_, err = s.SigningKey(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			said, pause = "", firstRetry
			if v.Changed(ctx) != nil {
				return nil
			}
			continue
		case pause > time.Second && err.Error() != said:
			said = err.Error()
			s.cfg.Log.Warn("root keys are not all in use as they should be; trying again", "error", err)
		}
		if !pace.Rest(ctx, pause) {
			return nil
		}
		pause = min(2*pause, lastRetry)
	}
}

// rekeyAll encrypts the variables of all rekeying keys again, and makes the keys deprecated that are not used any more.
func (s *Secrets) rekeyAll(ctx context.Context, v *state.View) error {
	var errs []error
	for row := range v.RootKeys() {
		if row.State != fleet.RootKeyRekeying {
			continue
		}
		if err := s.rekeyVariables(ctx, row.KeyID); err != nil {
			errs = append(errs, err)
			continue
		}
		res, err := s.cfg.Lead.Apply(ctx, state.RootKeyRetire{KeyID: row.KeyID})
		if err = res.Failure(err); err != nil {
			errs = append(errs, err)
			continue
		}
		s.cfg.Log.Info("root key replaced in all variables", "root_key", row.KeyID)
	}
	return errors.Join(errs...)
}

// rekeyVariables encrypts the variables of one key with the active key, in commands of bounded size. It leaves out those
// that it cannot decrypt, and returns the first one's error.
func (s *Secrets) rekeyVariables(ctx context.Context, keyID string) (first error) {
	active, err := s.activeKey(ctx)
	if err != nil {
		return err
	}
	batch, size := state.VariablesRekey{}, 0
	commit := func() error {
		if len(batch.Rows) == 0 {
			return nil
		}
		res, err := s.cfg.Lead.Apply(ctx, batch)
		batch, size = state.VariablesRekey{}, 0
		return res.Failure(err)
	}
	for row := range s.cfg.State.View().VariablesByRootKey(keyID) {
		items, err := s.Decrypt(row)
		var sealed state.SealedItems
		if err == nil {
			sealed, err = s.encryptItems(active, row.Namespace, row.Path, items)
		}
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		batch.Rows = append(batch.Rows, state.RekeyedVariable{Namespace: row.Namespace, Path: row.Path, ModifyIndex: row.ModifyIndex, Sealed: sealed})
		if size += len(sealed.Data); size >= rekeyBytes {
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
