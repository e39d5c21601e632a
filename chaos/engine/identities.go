package engine

import (
	"context"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/chaos/check"
	"skerry/chaos/hubclient"
	"skerry/chaos/schedule"
	"skerry/fleet"
)

// keptIdentities is how many identities of tasks probes choose from.
const keptIdentities = 200

// identityToken is an identity of a task that a hub has signed.
type identityToken struct {
	alloc fleet.AllocID
	token string
	end   time.Time
}

// KeepIdentity keeps an identity of an allocation's task for probes.
func (u *Users) KeepIdentity(alloc fleet.AllocID, token string, end time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.identities) == keptIdentities {
		u.identities = u.identities[1:]
	}
	u.identities = append(u.identities, identityToken{alloc, token, end})
}

// pickIdentity returns one of the kept identities; ok is false if there is none.
func (u *Users) pickIdentity(rng *rand.Rand) (t identityToken, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.identities) == 0 {
		return t, false
	}
	return u.identities[rng.IntN(len(u.identities))], true
}

// startIdentityProbes starts, in g, a client that shows hubs identities that do not count any more until ctx ends, where
// access control is on.
func (u *Users) startIdentityProbes(ctx context.Context, g *errgroup.Group) {
	if u.Access == nil {
		return
	}
	rng := u.randomOf(201)
	every := max(probeEvery, u.Schedule.Length/probes)
	g.Go(func() error {
		for Pause(ctx, time.Duration((0.5+rng.Float64())*float64(every))) {
			if t, ok := u.pickIdentity(rng); ok {
				u.probeIdentity(context.WithoutCancel(ctx), u.Hubs[rng.IntN(len(u.Hubs))], t)
			}
		}
		return nil
	})
}

// Faults of the identities that probes use.
const (
	identityExpired = "an expired identity"
	identityOfEnded = "the identity of a stopped allocation"
)

// probeIdentity reads the variable of a job at a hub with the identity of one of its tasks, if that has expired or its
// allocation was stopped, and reports the answer to the checkers.
func (u *Users) probeIdentity(ctx context.Context, h hubclient.Hub, t identityToken) {
	ctx, cancel := context.WithTimeout(ctx, settledRevocation+2*callTimeout)
	defer cancel()
	past := u.Access.pastOfHubs()
	a, err := u.Access.Manager(h).Alloc(ctx, t.alloc)
	if err != nil {
		return
	}
	o := check.Probe{Hub: h.HubName, Token: identityExpired, Attempt: "read the variable of its job"}
	if time.Now().Before(t.end.Add(time.Second)) {
		if o.Token = identityOfEnded; !a.ServerTerminal() || !Pause(ctx, settledRevocation) {
			return
		}
	}
	_, err = h.WithToken(t.token).Variable(ctx, schedule.SecretPath(a.JobOfIdentity()))
	if o.Status = StatusOf(err); past == u.Access.pastOfHubs() {
		u.Observe(check.Observation{Probe: &o})
	}
}
