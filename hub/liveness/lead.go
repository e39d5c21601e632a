package liveness

import (
	"context"
	"maps"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// Lead maintains the deadlines of all nodes and commits the missed ones, until ctx ends. hub.Open calls it
// when this hub has become the leader and its state is up to date.
func (l *Liveness) Lead(ctx context.Context) error {
	l.restartDeadlines(time.Now())
	defer l.stopLeading()
	sweep := time.NewTicker(l.cfg.SweepEvery)
	defer sweep.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	var last time.Time // of the last command
	for {
		l.resetDeadlineTimer(due, last)
		var swept, over bool
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		case <-sweep.C:
			swept = true
		case <-due.C:
			over = true
		}
		now := time.Now()
		if suspended := now.Sub(l.lastActive); suspended > l.cfg.SweepEvery+max(l.cfg.Policy.Grace/2, time.Second) {
			l.cfg.Log.Warn("this hub was suspended, all heartbeat deadlines start again", "for", suspended)
			l.restartDeadlines(now)
			continue
		}
		l.lastActive = now
		switch {
		case swept:
			l.sweepNodes(ctx, now)
		case over:
			l.expireDeadlines(ctx, now)
			last = time.Now()
		}
	}
}

// restartDeadlines gives every node with a session a new deadline, after the longest TTL that any hub may
// have given. A new leader has not received earlier heartbeats; a hub that was suspended has not read them
// yet. Neither may count a node as gone for that. It makes this hub leading.
func (l *Liveness) restartDeadlines(now time.Time) {
	l.lastActive = now
	view := l.cfg.State.View()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leading {
		l.forgetForwardedLocked(view)
	}
	l.leading, l.leadingSince = true, now
	clear(l.outbox)
	longest := l.longestTTL
	for p := range view.Pools() {
		longest = max(longest, l.ttlLocked(view, p.Name))
	}
	at := l.cfg.Policy.Deadline(now, longest)
	for n := range view.Nodes("") {
		if hasSession(n) {
			l.deadlines.setDeadline(n.ID, n.Epoch, at)
		}
	}
	l.cfg.Log.Info("deadlines restarted", "nodes", len(l.deadlines.byNode), "until", longest+l.cfg.Policy.Grace)
}

// forgetForwardedLocked drops the heartbeats of sessions that are not this hub's: others may have been
// received since then, by another leader. The caller holds mu.
func (l *Liveness) forgetForwardedLocked(view *state.View) {
	maps.DeleteFunc(l.heard, func(id fleet.NodeID, c contact) bool {
		n, ok := view.Node(id)
		return !ok || n.Hub != l.cfg.Hub || n.Epoch != c.epoch
	})
}

// lastContactLocked returns when the node of a deadline was last in contact, at the latest: when this hub
// became the leader if it received no heartbeat since then, nor an earlier one in that session. The caller
// holds mu.
func (l *Liveness) lastContactLocked(d deadline) time.Time {
	c, ok := l.heard[d.node]
	if !ok || c.epoch != d.epoch && c.at.Before(l.leadingSince) {
		return l.leadingSince
	}
	return c.at
}

// stopLeading drops all deadlines. Leases that this hub granted as a leader do not count when it leads again.
func (l *Liveness) stopLeading() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leading = false
	l.deadlines = newDeadlines()
}

// resetDeadlineTimer sets the timer to the earliest deadline, but at least minCommitInterval after the
// last command, so that nodes share an entry.
func (l *Liveness) resetDeadlineTimer(due *time.Timer, last time.Time) {
	l.mu.Lock()
	at, ok := l.deadlines.earliestDeadline()
	l.mu.Unlock()
	if !ok {
		due.Stop()
		return
	}
	if earliest := last.Add(minCommitInterval); at.Before(earliest) {
		at = earliest
	}
	due.Reset(time.Until(at))
}

// expireDeadlines removes the deadlines that are missed at now and commits a NodeStatus for their nodes.
// If that fails, they get a new deadline after retryAfter. A node whose hub is silent gets one at the end of that
// hub's lease: until then that hub may have answered heartbeats, from which the edge counts stop_on_client_after.
func (l *Liveness) expireDeadlines(ctx context.Context, now time.Time) {
	l.mu.Lock()
	view := l.cfg.State.View()
	over := slices.DeleteFunc(l.deadlines.popExpired(now, maxMissed), func(d deadline) bool {
		until, waits := l.leaseOfSilentHub(view, d, now)
		if waits {
			l.deadlines.setDeadline(d.node, d.epoch, until)
		}
		return waits
	})
	missed := make([]state.NodeMissed, len(over))
	for i, d := range over {
		heard := l.lastContactLocked(d)
		missed[i] = state.NodeMissed{NodeID: d.node, Epoch: d.epoch, Reason: "missed its heartbeat deadline", LastHeard: heard.UnixNano()}
		if n, ok := view.Node(d.node); ok {
			missed[i].SessionOver = n.Epoch == d.epoch && n.Hub == l.cfg.Hub
		}
	}
	l.mu.Unlock()
	if l.commitMissed(ctx, missed) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range over {
		if l.deadlines.sessionEpoch(d.node) == 0 {
			l.deadlines.setDeadline(d.node, d.epoch, now.Add(retryAfter))
		}
	}
}

// sweepNodes adds a deadline for each node that has a session and no heartbeat on this hub, removes those
// of nodes without a session, and commits a NodeStatus for disconnected nodes without live allocations,
// which makes them down.
func (l *Liveness) sweepNodes(ctx context.Context, now time.Time) {
	view := l.cfg.State.View()
	var over []state.NodeMissed
	l.mu.Lock()
	for n := range view.Nodes("") {
		switch {
		case hasSession(n) && l.deadlines.sessionEpoch(n.ID) < n.Epoch:
			l.deadlines.setDeadline(n.ID, n.Epoch, l.cfg.Policy.Deadline(now, l.ttlLocked(view, n.NodePool)))
		case hasSession(n):
		default:
			if l.deadlines.sessionEpoch(n.ID) <= n.Epoch {
				l.deadlines.removeNode(n.ID)
			}
			if n.Status == fleet.NodeDisconnected && len(over) < maxMissed && !isAwaited(view, n.ID) {
				over = append(over, state.NodeMissed{NodeID: n.ID, Epoch: n.Epoch, Reason: "nothing waits for it any more"})
			}
		}
	}
	l.mu.Unlock()
	l.commitMissed(ctx, over)
}

// isAwaited reports whether a node has an allocation that is not terminal, so that its return is awaited.
// The scheduler marks allocations lost when their lost_after is over.
func isAwaited(view *state.View, node fleet.NodeID) bool {
	for a := range view.AllocsByNode(node) {
		if !a.Terminal() {
			return true
		}
	}
	return false
}

// commitMissed commits a NodeStatus for the nodes, and reports whether that succeeded. For no nodes it
// commits nothing.
func (l *Liveness) commitMissed(ctx context.Context, missed []state.NodeMissed) bool {
	if len(missed) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	res, err := l.cfg.Apply.Apply(ctx, state.NodeStatus{
		Nodes:    missed,
		EvalSeed: fleet.NewUUID(nil),
		Now:      time.Now().UnixNano(),
	})
	l.lastActive = time.Now() // the commit may take long, but heartbeats are recorded meanwhile
	if err = res.Failure(err); err != nil {
		l.cfg.Log.Warn("missed deadlines not committed", "nodes", len(missed), "error", err)
		return false
	}
	if len(res.Moved) > 0 {
		l.mu.Lock()
		l.stats.Missed += uint64(len(res.Moved))
		l.mu.Unlock()
		l.cfg.Log.Info("nodes moved on after a missed deadline", "count", len(res.Moved), "nodes", fleet.ShortList(res.Moved))
	}
	return true
}
