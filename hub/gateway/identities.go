package gateway

import (
	"context"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/hub/workload"
	"skerry/syncproto"
)

// identitiesInRequest bounds the tokens of a request.
const identitiesInRequest = 100

// Signer signs the identities of tasks.
type Signer interface {
	SignIdentity(ctx context.Context, a *fleet.Alloc, w *fleet.OwnedIdentity) (workload.Token, error)
}

// identitySender sends an edge the tokens of its allocations' tasks, and others when half of their time is over. Its owner
// is the goroutine of runSendLoop.
type identitySender struct {
	s        *session
	outcomes deliveryOutcomes
	held     map[syncproto.IdentityName]syncproto.DeliveredIdentity // what the edge has; nil: it was not asked yet
	toldKey  string                                                 // the id of its own key that the edge knows to be published
	// request sends tokens with that id, and returns what the edge holds then.
	request func(ctx context.Context, list []syncproto.DeliveredIdentity, published string) ([]syncproto.DeliveredIdentity, error)
}

func newIdentitySender(s *session) *identitySender {
	i := &identitySender{s: s}
	i.request = func(ctx context.Context, list []syncproto.DeliveredIdentity, published string) ([]syncproto.DeliveredIdentity, error) {
		text, err := s.sendDelivery(ctx, syncproto.Request{Kind: syncproto.RequestIdentities, Identities: list, IdentityKey: published}, syncproto.MaxHeldIdentities)
		if err != nil {
			return nil, err
		}
		return syncproto.DecodeIdentities(text)
	}
	return i
}

// wantedIdentity is an identity that the edge has to have.
type wantedIdentity struct {
	alloc    *fleet.Alloc
	identity fleet.OwnedIdentity
}

// sendDue sends the tokens that the edge lacks, and those that are due for renewal. It returns the time until it has to be
// called again although nothing changes; 0: not at all.
func (i *identitySender) sendDue(ctx context.Context) time.Duration {
	if i.outcomes.unsupported || i.s.gw.cfg.Sign == nil {
		return 0
	}
	next, err := i.trySendDue(ctx)
	if err == nil {
		i.outcomes.warned = ""
		return next
	}
	if i.outcomes.noteFailure(ctx, i.s.log, "identities not delivered to the edge", err) {
		return recordRetryDelay
	}
	return 0
}

func (i *identitySender) trySendDue(ctx context.Context) (next time.Duration, err error) {
	view := i.s.gw.cfg.State.View()
	wanted := wantedIdentities(view, i.s.node)
	if len(wanted) == 0 {
		return 0, nil
	}
	published, _ := view.PublishedIdentityKey(i.s.node)
	if i.held == nil || i.toldKey != published {
		if err := i.exchangeTokens(ctx, nil, published); err != nil {
			return 0, err
		}
	}
	var batch []syncproto.DeliveredIdentity
	now := i.s.gw.cfg.Now()
	for _, w := range wanted {
		held, ok := i.held[syncproto.IdentityName{Alloc: w.alloc.ID, Task: w.identity.Task, Identity: w.identity.Name}]
		if _, known := view.RootKey(held.KeyID); ok && known && held.Offline == w.identity.Offline {
			if w.identity.TTL == 0 {
				continue
			}
			if left := renewAt(held).Sub(now); left > 0 {
				next = shorter(next, left)
				continue
			}
		}
		made, err := i.s.gw.cfg.Sign.SignIdentity(ctx, w.alloc, &w.identity)
		if err != nil {
			return 0, err
		}
		d := syncproto.DeliveredIdentity{
			Alloc: w.alloc.ID, Task: w.identity.Task, Name: w.identity.Name, Token: made.Text, KeyID: made.KeyID, Issued: made.IssuedAt, Expires: made.Expires,
			Offline: w.identity.Offline,
		}
		if w.identity.TTL > 0 {
			next = shorter(next, renewAt(d).Sub(now))
		}
		if batch = append(batch, d); len(batch) == identitiesInRequest {
			if err := i.exchangeTokens(ctx, batch, published); err != nil {
				return 0, err
			}
			batch = nil
		}
	}
	if len(batch) > 0 {
		return next, i.exchangeTokens(ctx, batch, published)
	}
	return next, nil
}

// exchangeTokens sends tokens with the id of the edge's key that is published, and notes what the edge holds then.
func (i *identitySender) exchangeTokens(ctx context.Context, list []syncproto.DeliveredIdentity, published string) error {
	all, err := i.request(ctx, list, published)
	if err != nil {
		return err
	}
	i.toldKey = published
	i.held = make(map[syncproto.IdentityName]syncproto.DeliveredIdentity, len(all))
	for _, d := range all {
		i.held[d.IdentityName()] = d
	}
	return nil
}

// renewAt is when a token is renewed: half-way to its end, by the clocks of hubs.
func renewAt(d syncproto.DeliveredIdentity) time.Time {
	return time.Unix(d.Issued, 0).Add(time.Duration(d.Expires-d.Issued) * time.Second / 2)
}

// shorter returns the shorter of two waits, of which 0 stands for none.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// wantedIdentities lists the identities of the tasks and services that are to run on a node.
func wantedIdentities(v *state.View, node fleet.NodeID) (all []wantedIdentity) {
	for a := range v.AllocsByNode(node) {
		g := a.Group()
		if g == nil || a.DesiredStatus != fleet.DesiredRun || a.ClientTerminal() {
			continue
		}
		for _, w := range g.DeliveredIdentities() {
			all = append(all, wantedIdentity{a, w})
		}
	}
	return all
}
