package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/api"
	"skerry/chaos/check"
	"skerry/chaos/hubclient"
	"skerry/chaos/schedule"
	"skerry/client"
	"skerry/fleet"
)

// probeEvery is the mean pause between two probes, and probes bounds how many there are in a long run.
const (
	probeEvery = 25 * time.Second
	probes     = 1000
)

// settledRevocation is for how long after the acknowledgement of a token's end a probe waits: each hub that is not cut off
// has applied it by then.
const settledRevocation = 5 * time.Second

// unknownSecret is a secret that no token has.
const unknownSecret = "5ec2e751-0000-4000-8000-0000000000ff"

// prober calls hubs with tokens that do not give what the call requires. One goroutine owns it.
type prober struct {
	u   *Users
	rng *rand.Rand
	n   int // number of probes so far
}

// attempt is a request that needs a capability. A stale one is answered from the hub's own state.
type attempt struct {
	name string
	ask  func(ctx context.Context, c *client.Client, name string, u *Users) error
}

// attempts are the requests of probes. Those that would change something use a name of their own, but for one that would
// be seen otherwise.
var attempts = []attempt{
	{"register a job", func(ctx context.Context, c *client.Client, name string, _ *Users) error {
		_, err := c.RegisterJob(ctx, keyJob(fleet.JobID(name), name), api.JobRegisterRequest{})
		return err
	}},
	{"stop a job", func(ctx context.Context, c *client.Client, _ string, u *Users) error {
		_, err := c.StopJob(ctx, u.Schedule.Jobs[0].ID, client.StopOptions{})
		return err
	}},
	{"write a variable", func(ctx context.Context, c *client.Client, name string, _ *Users) error {
		_, err := c.StoreVariable(ctx, fleet.Variable{VariableMeta: fleet.VariableMeta{Path: name}, Items: fleet.VariableItems{"a": "b"}})
		return err
	}},
	{"overwrite a variable", func(ctx context.Context, c *client.Client, _ string, u *Users) error {
		_, err := c.StoreVariable(ctx, fleet.Variable{
			VariableMeta: fleet.VariableMeta{Path: schedule.SecretPath(u.Schedule.Jobs[0].ID)}, Items: fleet.VariableItems{"a": "b"},
		})
		return err
	}},
	{"delete a variable", func(ctx context.Context, c *client.Client, _ string, u *Users) error {
		return c.DeleteVariable(ctx, schedule.SecretPath(u.Schedule.Jobs[0].ID))
	}},
	{"lock a variable", func(ctx context.Context, c *client.Client, _ string, _ *Users) error {
		_, err := c.LockVariable(ctx, fleet.Variable{VariableMeta: fleet.VariableMeta{Path: lockPath}})
		return err
	}},
	{"read a variable", func(ctx context.Context, c *client.Client, _ string, u *Users) error {
		_, err := c.Variable(ctx, schedule.SecretPath(u.Schedule.Jobs[0].ID))
		return err
	}},
	{"read a job", func(ctx context.Context, c *client.Client, _ string, u *Users) error {
		_, err := c.Job(ctx, u.Schedule.Jobs[0].ID)
		return err
	}},
	{"rotate the keyring", func(ctx context.Context, c *client.Client, _ string, _ *Users) error {
		_, err := c.RotateRootKey(ctx, true)
		return err
	}},
	{"list the root keys", func(ctx context.Context, c *client.Client, _ string, _ *Users) error {
		_, err := c.RootKeys(ctx, client.List{})
		return err
	}},
	{"make a management token", func(ctx context.Context, c *client.Client, name string, _ *Users) error {
		_, err := c.CreateACLToken(ctx, fleet.ACLToken{Name: name, Type: fleet.ACLTokenManagement}, 0)
		return err
	}},
	{"list the tokens", func(ctx context.Context, c *client.Client, _ string, _ *Users) error {
		_, err := c.ACLTokens(ctx, client.List{})
		return err
	}},
	{"read a snapshot", func(ctx context.Context, c *client.Client, _ string, _ *Users) error {
		body, err := c.Snapshot(ctx)
		if err == nil {
			err = body.Close()
		}
		return err
	}},
	{"read the audit", func(ctx context.Context, c *client.Client, _ string, _ *Users) error {
		body, err := c.Audit(ctx, 0)
		if err == nil {
			err = body.Close()
		}
		return err
	}},
	{"revoke a join token", func(ctx context.Context, c *client.Client, name string, _ *Users) error {
		_, err := c.RevokeJoinToken(ctx, name)
		return err
	}},
}

// startProbes starts, in g, a client that probes the hubs until ctx ends, where access control is on.
func (u *Users) startProbes(ctx context.Context, g *errgroup.Group) {
	if u.Access == nil || len(u.Schedule.Jobs) == 0 {
		return
	}
	p := &prober{u: u, rng: u.randomOf(200)}
	g.Go(func() error { p.probeHubs(ctx); return nil })
}

// probeHubs probes hubs with tokens at random until ctx ends, and reports the answers to the checkers.
func (p *prober) probeHubs(ctx context.Context) {
	every := max(probeEvery, p.u.Schedule.Length/probes)
	for Pause(ctx, time.Duration((0.5+p.rng.Float64())*float64(every))) {
		p.probeHub(context.WithoutCancel(ctx))
	}
}

// probeHub makes one probe.
func (p *prober) probeHub(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settledRevocation+callTimeout)
	defer cancel()
	what, t := p.pickToken()
	revoked := what == tokenRevoked
	if revoked && !Pause(ctx, settledRevocation) {
		return
	}
	p.n++
	h := p.u.Hubs[p.rng.IntN(len(p.u.Hubs))]
	try := attempts[p.rng.IntN(len(attempts))]
	c := h.WithToken(t.SecretID)
	stale := p.rng.IntN(3) == 0 && !revoked // a hub that is cut off may not know of a revocation
	o := check.Probe{Hub: h.HubName, Token: what, Attempt: try.name}
	if stale {
		c, o.Attempt = c.AllowStale(), try.name+", stale"
	}
	o.Status = StatusOf(try.ask(ctx, c, fmt.Sprintf("%s-%d", check.IntruderMark, p.n), p.u))
	if revoked && !p.u.Access.isRevoked(t) {
		return // the hubs were put back meanwhile
	}
	p.u.Observe(check.Observation{Probe: &o})
}

// Faults of the tokens that probes use.
const (
	tokenMissing = "no token"
	tokenUnknown = "a token that does not exist"
	tokenLesser  = "a token that may do less"
	tokenRevoked = "a revoked token"
	tokenExpired = "an expired token"
)

// pickToken returns a token that gives nothing of what probes ask for, and what is wrong with it.
func (p *prober) pickToken() (string, fleet.ACLToken) {
	a := p.u.Access
	a.mu.Lock()
	revoked := slices.Clone(a.revoked)
	a.mu.Unlock()
	expired := a.expiredTokens(time.Now())
	switch n := p.rng.IntN(10); {
	case n < 4 && len(revoked) > 0:
		return tokenRevoked, revoked[p.rng.IntN(len(revoked))]
	case n < 6 && len(expired) > 0:
		return tokenExpired, expired[p.rng.IntN(len(expired))]
	case n < 8:
		return tokenLesser, a.lesser
	case n < 9:
		return tokenUnknown, fleet.ACLToken{SecretID: unknownSecret}
	}
	return tokenMissing, fleet.ACLToken{}
}

// StatusOf returns the HTTP status of a call: 200 without an error, 0 without an answer.
func StatusOf(err error) int {
	if err == nil {
		return 200
	}
	return client.StatusOf(err)
}

// revokeToken revokes the token that users have, and repeats that until a hub acknowledges it, or until lastCalls after the
// schedule's end.
func revokeToken(ctx context.Context, p *Faults, _ schedule.Fault) (Active, error) {
	u := p.Users
	if u.Access == nil {
		return Done(0, "access control is off"), nil
	}
	err := u.repeatUntilAcked(ctx, func(ctx context.Context, n int) error {
		return u.Access.revokeOperator(ctx, u.Hubs[n%len(u.Hubs)])
	})
	if err != nil {
		return Done(0, err.Error()), nil
	}
	return Done(1, ""), nil
}

// revokeEdge expels an edge. When the fault is healed, the hubs purge its node, and its machine comes back with nothing of
// what it had, as another node.
func revokeEdge(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	u := p.Users
	var node fleet.NodeID
	err := u.repeatUntilAcked(ctx, func(ctx context.Context, n int) (err error) {
		h := u.hubOfTurn(n)
		if node == "" {
			if node, err = nodeNamed(ctx, h, edge); err != nil {
				return err
			}
		}
		_, err = h.RevokeNode(ctx, node, api.RevokeRequest{Reason: fmt.Sprintf("%s at %s", f.Kind, f.At)})
		return err
	})
	if err != nil {
		return Done(0, err.Error()), nil
	}
	p.Observe(check.Observation{Request: &check.Request{What: check.EdgeRevoked, Edge: edge}})
	return Active{
		Evidence: Counted(func() uint64 { return 1 }),
		Heal: func(ctx context.Context) error {
			_ = u.repeatUntilAcked(ctx, func(ctx context.Context, n int) error { // else the fleet does not settle, which is seen
				_, err := u.hubOfTurn(n).PurgeNode(ctx, node)
				if client.StatusOf(err) == 404 {
					return nil
				}
				return err
			})
			return p.ReplaceEdge(ctx, edge)
		},
	}, nil
}

// nodeNamed returns the node of the edge with a name, by a hub's own state.
func nodeNamed(ctx context.Context, h hubclient.Hub, edge string) (fleet.NodeID, error) {
	f, err := h.Fleet(ctx)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(f.Nodes, func(n api.NodeLine) bool { return n.Name == edge })
	if i < 0 {
		return "", errUnknownEdge
	}
	return f.Nodes[i].ID, nil
}

// repeatUntilAcked calls ask with the number of the attempt until it succeeds, or until lastCalls after the schedule's end.
// It returns the last error. ctx does not cancel it: what was asked for once may have been done.
func (u *Users) repeatUntilAcked(ctx context.Context, ask func(ctx context.Context, n int) error) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), max(0, u.Schedule.Length-u.Elapsed())+lastCalls)
	defer stop()
	for n := 0; ; n++ {
		asked, cancel := context.WithTimeout(ctx, callTimeout)
		err := ask(asked, n)
		cancel()
		if err == nil {
			return nil
		}
		u.renewIfRefused(ctx, n, err)
		if !Pause(ctx, retryEvery) {
			return err
		}
	}
}
