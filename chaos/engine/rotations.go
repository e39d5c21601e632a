package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"skerry/api"
	"skerry/chaos/hubclient"
	"skerry/chaos/schedule"
	"skerry/client"
)

// managerOfTurn returns the hub to call in the n-th attempt, with the management token if access control is on.
func (u *Users) managerOfTurn(n int) hubclient.Hub {
	h := u.Hubs[n%len(u.Hubs)]
	if u.Access == nil {
		return h
	}
	return u.Access.Manager(h)
}

// rotateKeys makes a new root key, and has all variables encrypted with it, and makes a new state key, with which the root
// keys are encrypted. It repeats this until a hub acknowledges both, or until lastCalls after the schedule's end.
func rotateKeys(ctx context.Context, p *Faults, _ schedule.Fault) (Active, error) {
	rotated := false
	err := p.Users.repeatUntilAcked(ctx, func(ctx context.Context, n int) error {
		h := p.Users.managerOfTurn(n)
		if !rotated {
			if _, err := h.RotateRootKey(ctx, true); err != nil {
				return err
			}
			rotated = true
		}
		_, err := h.RotateStateKey(ctx, api.RotateStateKeyRequest{Keep: keptStateKey})
		if client.StatusOf(err) == http.StatusConflict { // the one before is under way, or many are kept
			return nil
		}
		return err
	})
	if err != nil {
		return Done(0, fmt.Sprintf("the keyring was not rotated: %v", err)), nil
	}
	return Done(1, ""), nil
}

// keptStateKey is how long a replaced state key is kept: less than most runs last.
const keptStateKey = "4m"

// errOtherRotation is the reason why a rotation of the CA was refused.
var errOtherRotation = errors.New("another rotation is under way")

// caRotation is a user's wish to have the CA replaced.
type caRotation struct {
	grace  string
	before uint64 // number of the newest CA before it; 0: not known yet
}

// askHub asks a hub for another CA. Where an earlier attempt had no answer, that CA may be there already.
func (r *caRotation) askHub(ctx context.Context, h hubclient.Hub) error {
	s, err := h.CAStatus(ctx)
	if err != nil {
		return err
	}
	newest := s.CAs[len(s.CAs)-1].Number
	switch {
	case r.before == 0:
		r.before = newest
	case newest > r.before:
		return nil
	}
	_, err = h.RotateCA(ctx, api.RotateCARequest{Grace: r.grace})
	if client.StatusOf(err) == http.StatusConflict {
		return errOtherRotation
	}
	return err
}

// rotateCA has the hubs replace their CA. It repeats this until a hub acknowledges it, for schedule.RotationPatience: hubs
// that are put back to a copy must not lack the CA of the edges' certificates. It misses if another rotation is under way.
func rotateCA(ctx context.Context, p *Faults, f schedule.Fault) (Active, error) {
	r := caRotation{grace: f.Params.Grace.String()}
	var refused error
	err := p.Users.repeatUntilAcked(ctx, func(ctx context.Context, n int) error {
		err := r.askHub(ctx, p.Users.managerOfTurn(n))
		if err != nil && (errors.Is(err, errOtherRotation) || p.Users.Elapsed() > f.At+schedule.RotationPatience-callTimeout) {
			refused = err
			return nil
		}
		return err
	})
	if err = errors.Join(err, refused); err != nil {
		return Done(0, fmt.Sprintf("the CA was not replaced: %v", err)), nil
	}
	return Done(1, ""), nil
}
