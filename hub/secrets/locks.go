package secrets

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/hub/rpc"
	"skerry/hub/state"
	"skerry/internal/pace"
)

const (
	// lockGrace is added to the TTL of every lock when a hub begins to lead: renewals may have met no leader.
	lockGrace = 10 * time.Second
	// lockRetry is the pause after a lock could not be ended.
	lockRetry = time.Second
	// lockIdle is the wait of Locks.Lead while nothing is locked, if the state does not change.
	lockIdle = time.Hour
)

// lockRenewal names a lock whose TTL starts again.
type lockRenewal struct {
	Namespace string
	Path      string
	ID        string
}

// methodRenewLock renews a lock on the leader.
const methodRenewLock rpc.Method[lockRenewal, struct{}] = "variables.renew-lock"

// LocksConfig of Locks. All is required.
type LocksConfig struct {
	Hub   fleet.HubID
	State *state.Store
	Lead  state.Applier // commits commands only while this hub leads
	Peers *rpc.Peers
	Log   *slog.Logger
}

// Locks ends the locks of variables that are not renewed. Renewals are kept in the leader's memory alone, so that they
// cost no entry of the log.
type Locks struct {
	cfg LocksConfig

	mu     sync.Mutex
	leads  bool
	timers map[lockedVariable]time.Time // when the lock, or its delay, ends; of this leadership
}

// lockedVariable identifies one lock of a variable, or the delay after it.
type lockedVariable struct {
	lockRenewal
	changed fleet.Index // of the delay: the variable's ModifyIndex; 0: of a lock
}

func lockedBy(v *state.Variable) lockedVariable {
	l := lockedVariable{lockRenewal: lockRenewal{v.Namespace, v.Path, v.Lock.ID}}
	if v.Lock.ID == "" {
		l.changed = v.ModifyIndex
	}
	return l
}

// NewLocks returns the Locks of a hub. It starts nothing.
func NewLocks(cfg LocksConfig) *Locks {
	return &Locks{cfg: cfg, timers: map[lockedVariable]time.Time{}}
}

// ServeCalls registers the handler for the calls of other hubs.
func (l *Locks) ServeCalls() {
	methodRenewLock.Handle(l.cfg.Peers, func(ctx context.Context, _ string, r lockRenewal) (struct{}, error) {
		return l.renewAsLeader(ctx, r)
	})
}

// RenewLock starts the TTL of a lock again, on the leader. CodeConflict: the variable does not have that lock any more.
func (l *Locks) RenewLock(ctx context.Context, ns, path, id string) error {
	ctx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
	defer cancel()
	_, err := methodRenewLock.OnLeader(ctx, l.cfg.Peers, lockRenewal{ns, path, id}, l.renewAsLeader)
	return err
}

// renewAsLeader handles methodRenewLock.
func (l *Locks) renewAsLeader(_ context.Context, r lockRenewal) (struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leads {
		return struct{}{}, rpc.NoLeader()
	}
	v, ok := l.cfg.State.View().Variable(r.Namespace, r.Path)
	if !ok || v.Lock == nil || v.Lock.ID == "" || v.Lock.ID != r.ID {
		return struct{}{}, fleet.Errorf(fleet.CodeConflict, "renew the lock of variable %s: it does not have the lock %s any more", r.Path, r.ID)
	}
	k := lockedBy(v)
	if end, known := l.timers[k]; known && !time.Now().Before(end) {
		return struct{}{}, fleet.Errorf(fleet.CodeConflict, "renew the lock of variable %s: its TTL of %s is over", r.Path, v.Lock.TTL)
	}
	l.timers[k] = time.Now().Add(v.Lock.TTL)
	return struct{}{}, nil
}

// Lead is a leader task: it ends locks that are not renewed within their TTL, and later the delays after them, until ctx
// ends. It always returns nil; failures are logged and tried again.
func (l *Locks) Lead(ctx context.Context) error {
	l.beginLeading()
	defer l.endLeading()
	for grace := lockGrace; ; grace = 0 {
		v := l.cfg.State.Watch()
		due, next := l.dueLocks(v, grace, time.Now())
		switch failed := l.endLocks(ctx, due); {
		case failed:
			pace.Rest(ctx, lockRetry)
		case len(due) == 0:
			wait, cancel := context.WithTimeout(ctx, next)
			_ = v.Changed(wait) // or the next lock is due
			cancel()
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// endLocks commits the ends of locks and delays. It reports whether one could not be committed.
func (l *Locks) endLocks(ctx context.Context, due []state.VariableUnlock) (failed bool) {
	for _, c := range due {
		switch res, err := l.cfg.Lead.Apply(ctx, c); {
		case err != nil:
			failed = true
			if ctx.Err() == nil {
				l.cfg.Log.Warn("lock of a variable not ended; trying again", "variable", c.Path, "error", err)
			}
		case res.Err == nil && c.Expired:
			l.cfg.Log.Info("lock of a variable ended: it was not renewed", "variable", c.Path, "namespace", c.Namespace)
		}
	}
	return failed
}

func (l *Locks) beginLeading() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leads = true
	clear(l.timers)
}

func (l *Locks) endLeading() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leads = false
}

// dueLocks returns the commands that end the locks and delays that are over, and how long no other one is. It starts the
// timers of those that are new, with the grace, and forgets those that are gone.
func (l *Locks) dueLocks(v *state.View, grace time.Duration, now time.Time) (due []state.VariableUnlock, next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	there := map[lockedVariable]bool{}
	next = lockIdle
	for row := range v.LockedVariables() {
		k := lockedBy(row)
		there[k] = true
		end, known := l.timers[k]
		if !known {
			end = now.Add(row.Lock.TTL + grace)
			if row.Lock.ID == "" {
				end = now.Add(row.Lock.LockDelay)
			}
			l.timers[k] = end
		}
		if left := end.Sub(now); left > 0 {
			next = min(next, left)
			continue
		}
		due = append(due, state.VariableUnlock{
			Namespace: row.Namespace, Path: row.Path, LockID: row.Lock.ID, Expired: row.Lock.ID != "", CheckIndex: k.changed, Now: now.UnixNano(),
		})
	}
	for k := range l.timers {
		if !there[k] {
			delete(l.timers, k)
		}
	}
	return due, next
}
