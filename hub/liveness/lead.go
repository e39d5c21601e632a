package liveness

import (
	"context"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// Lead holds the deadlines of all nodes until ctx ends: hub.Open calls it when
// this hub has become the leader and its state is as new as any.
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
		if asleep := now.Sub(l.lastActive); asleep > l.cfg.SweepEvery+max(l.cfg.Policy.Grace/2, time.Second) {
			l.cfg.Log.Warn("this hub was asleep, nobody is judged by what it did not hear", "for", asleep)
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

// restartDeadlines restarts every deadline, with time for the longest TTL that any hub may
// have given: an edge that beats rarely must not be missed by a new leader, nor by
// one that was asleep (a machine that was suspended, a process that was stopped)
// and has the beats of that time yet to read.
func (l *Liveness) restartDeadlines(now time.Time) {
	l.lastActive = now
	view := l.cfg.State.View()
	l.mu.Lock()
	defer l.mu.Unlock()
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

func (l *Liveness) stopLeading() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leading = false
	l.deadlines = newDeadlines()
	clear(l.heard)
	clear(l.leases)
}

// resetDeadlineTimer sets the timer to the earliest deadline, but not so soon after the last
// command that each node would get an entry of its own.
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

// expireDeadlines commits what is due at now. What could not be committed is due again soon.
func (l *Liveness) expireDeadlines(ctx context.Context, now time.Time) {
	l.mu.Lock()
	over := l.deadlines.popExpired(now, maxMissed)
	view := l.cfg.State.View()
	missed := make([]state.NodeMissed, len(over))
	for i, d := range over {
		heard, ok := l.heard[d.node]
		if !ok {
			heard = l.leadingSince // it was in touch with another leader, before that
		}
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

// sweepNodes holds a deadline for each node that got a session without a beat having
// reached this hub, drops those of nodes that are gone, and moves nodes on that
// nothing waits for.
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

// isAwaited reports whether an allocation of a node may still come back with it.
// The scheduler gives each up (lost) when its lost_after is over.
func isAwaited(view *state.View, node fleet.NodeID) bool {
	for a := range view.AllocsByNode(node) {
		if !a.Terminal() {
			return true
		}
	}
	return false
}

// commitMissed moves nodes on, and reports whether it could. Without any there is no entry.
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
	l.lastActive = time.Now() // it may take long, and beats are heard meanwhile
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
