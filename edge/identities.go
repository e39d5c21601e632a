package edge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"skerry/edge/identities"
	"skerry/edge/link"
	"skerry/fleet"
	"skerry/syncproto"
)

// openIdentities opens the keeper of the tokens of tasks.
func (e *Edge) openIdentities() (err error) {
	e.identities, err = identities.Open(identities.Config{
		Node: e.node, Journal: e.journal, Sealer: e.machine, Log: e.log.With("component", "identities"),
		Needs:   e.needsSecrets,
		HubTime: e.hubTime, Connected: e.isConnected,
		Announce: func() {
			if l := e.currentLink(); l != nil {
				l.RequestHeartbeat()
			}
		},
	})
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	return nil
}

// needsSecrets reports whether an allocation is here and has not ended. It is called once the allocations are open.
func (e *Edge) needsSecrets(ctx context.Context, alloc fleet.AllocID) (bool, error) {
	return e.allocs.IsUnfinished(ctx, alloc)
}

// acceptIdentities keeps the tokens that a hub delivers, and answers with what the edge holds.
func (e *Edge) acceptIdentities(ctx context.Context, req syncproto.Request) (io.ReadCloser, error) {
	held, err := e.identities.Accept(ctx, req.Identities, req.IdentityKey)
	if err != nil {
		return nil, err
	}
	text, err := syncproto.EncodeIdentities(held)
	return io.NopCloser(bytes.NewReader(text)), err
}

// hubTime returns the time by the clocks of hubs, as well as the edge knows it. Once a hub has answered since the boot, it is
// that hub's time and the machine's since then. Before, nothing but the wall clock says how long the machine was off: it
// counts, if it is not earlier than a time that has certainly passed.
func (e *Edge) hubTime() time.Time {
	if now, ok := e.journal.HubNow(); ok {
		return now
	}
	now := e.cfg.Now()
	if floor := e.trustedNow(); floor.After(now) {
		return floor
	}
	return now
}

// currentLink returns the link; nil: the edge has not begun it.
func (e *Edge) currentLink() *link.Link {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.link
}

// isConnected reports whether the edge has a session with a hub that has answered within a time.
func (e *Edge) isConnected(within time.Duration) bool {
	l := e.currentLink()
	return l != nil && l.Status().State == link.StateConnected && e.journal.Away() < within
}
