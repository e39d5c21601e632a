package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/chaos/check"
	"skerry/chaos/hubclient"
	"skerry/chaos/schedule"
	"skerry/client"
	"skerry/fleet"
)

// variableMark begins the value of each variable of a run. Nothing else has it, so that a value is found wherever it is in
// clear.
const variableMark = "mArKeD-sEcReT-"

// SecretNumber returns the number of a variable's value in a run; 0: no user of the run wrote it.
func SecretNumber(items map[string]string) int {
	text, ok := strings.CutPrefix(items[schedule.SecretItem], variableMark)
	n, err := strconv.Atoi(text)
	if !ok || err != nil {
		return 0
	}
	return n
}

// Paths of variables that no job of a run may read: some that only users read, and one whose lock they take.
const (
	privatePath = "work/notes"
	lockPath    = "work/leader"
)

const (
	lockers    = 2
	lockTTL    = 30 * time.Second
	lockRenew  = 12 * time.Second
	lockPause  = time.Minute // mean pause of a locker between two locks
	lockHeld   = time.Minute // the longest time for which a locker holds a lock
	newlyTried = 10 * time.Second
)

// errConflict is the error of a change that came after another one of the same variable. It is repeated.
var errConflict = errors.New("the variable was changed meanwhile")

// secretVariable is what the users know of a variable. One of them at a time changes it.
type secretVariable struct {
	path  string
	turn  chan struct{} // capacity 1: whoever fills it changes the variable
	index fleet.Index   // ModifyIndex, as known last
}

// ContinueSecrets has users write variables that earlier users have written, with greater numbers; nil: there were none. It is called
// before Play.
func (u *Users) ContinueSecrets(earlier *Users) {
	if earlier == nil {
		return
	}
	earlier.mu.Lock()
	defer earlier.mu.Unlock()
	u.secrets, u.secretNumber = earlier.secrets, earlier.secretNumber
}

// secretOf returns the variable with a path.
func (u *Users) secretOf(path string) *secretVariable {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.secrets == nil {
		u.secrets = map[string]*secretVariable{}
	}
	if u.secrets[path] == nil {
		u.secrets[path] = &secretVariable{path: path, turn: make(chan struct{}, 1)}
	}
	return u.secrets[path]
}

// nextSecretNumber returns the number of the next change of a variable.
func (u *Users) nextSecretNumber() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.secretNumber++
	return u.secretNumber
}

// secretItems returns the items of a variable's value with a number.
func secretItems(n int) fleet.VariableItems {
	return fleet.VariableItems{schedule.SecretItem: variableMark + strconv.Itoa(n)}
}

// ensureSecret writes the variable of a step's job, unless there is one, and repeats that until it is acknowledged.
func (u *Users) ensureSecret(ctx context.Context, s schedule.Step) error {
	v := u.secretOf(schedule.SecretPath(s.Job))
	_, err := u.askUntilAcked(ctx, s, func(ctx context.Context, h hubclient.Hub) error {
		found, err := u.readSecret(ctx, h, "users", v)
		if err != nil || found {
			return err
		}
		stored, err := u.changeSecret(ctx, h, "users", v, false)
		if err == nil && !stored {
			err = errConflict
		}
		return err
	})
	return err
}

// storeSecret writes the variable of a step's job, and repeats that until it is acknowledged.
func (u *Users) storeSecret(ctx context.Context, s schedule.Step) error {
	v := u.secretOf(schedule.SecretPath(s.Job))
	_, err := u.askUntilAcked(ctx, s, func(ctx context.Context, h hubclient.Hub) error {
		stored, err := u.changeSecret(ctx, h, "users", v, false)
		if err == nil && !stored {
			err = errConflict
		}
		return err
	})
	return err
}

// readSecret reads a variable at a hub, and reports that to the checkers. found is false if there is none.
func (u *Users) readSecret(ctx context.Context, h hubclient.Hub, who string, v *secretVariable) (found bool, err error) {
	o := check.VariableOperation{Client: who, Does: check.OpRead, Path: v.path, Call: u.Elapsed()}
	got, err := h.Variable(ctx, v.path)
	o.Outcome = OutcomeOf(err)
	switch o.Outcome {
	case check.OutcomeOK:
		o.Value = SecretNumber(got.Items)
	case check.OutcomeNotFound:
		err = nil
	default:
		if strings.Contains(err.Error(), "decrypt variable") {
			o.Failed = err.Error()
			u.Observe(check.Observation{Variable: &o})
		}
		return false, err
	}
	u.Observe(check.Observation{Variable: &o})
	return o.Outcome == check.OutcomeOK, err
}

// changeSecret stores a new value of a variable at a hub, or deletes it, if nobody has changed it since the users' last
// change, and reports that to the checkers. stored is false after a conflict: the next change is made from what it shows.
func (u *Users) changeSecret(ctx context.Context, h hubclient.Hub, who string, v *secretVariable, deletes bool) (stored bool, err error) {
	select {
	case v.turn <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-v.turn }()
	n := u.nextSecretNumber()
	o := check.VariableOperation{Client: who, Does: check.OpWrite, Path: v.path, Value: n, Call: u.Elapsed()}
	if deletes {
		o.Does, o.Outcome = check.OpDelete, check.OutcomeBegun
		begun := o
		u.Observe(check.Observation{Variable: &begun})
		if err = h.CheckAndDeleteVariable(ctx, v.path, v.index); err == nil {
			v.index = 0
		}
	} else {
		var now fleet.Variable
		now, err = h.CheckAndStoreVariable(ctx, fleet.Variable{VariableMeta: fleet.VariableMeta{Path: v.path, ModifyIndex: v.index}, Items: secretItems(n)})
		if err == nil {
			v.index = now.ModifyIndex
		}
	}
	o.Outcome = OutcomeOf(err)
	var conflict *client.VariableConflict
	if errors.As(err, &conflict) {
		v.index, err = conflict.Variable.ModifyIndex, nil
		o.Found = SecretNumber(conflict.Variable.Items)
	}
	u.Observe(check.Observation{Variable: &o})
	return o.Outcome == check.OutcomeOK, err
}

// startSecretClients starts, in g, a client that changes and reads variables, and clients that take the lock of one,
// until ctx ends.
func (u *Users) startSecretClients(ctx context.Context, g *errgroup.Group) {
	if u.Schedule.Secrets == 0 {
		return
	}
	var paths []string
	for _, j := range u.Schedule.Jobs {
		if j.Secret {
			paths = append(paths, schedule.SecretPath(j.ID), schedule.SecretPath(j.ID), schedule.GroupSecretPath(j.ID))
		}
	}
	c := &secretClient{u: u, name: "keeper", rng: u.randomOf(100), paths: append(paths, privatePath), every: time.Minute / time.Duration(u.Schedule.Secrets)}
	g.Go(func() error { c.changeSecrets(ctx); return nil })
	for i := range lockers {
		c := &secretClient{u: u, name: fmt.Sprintf("locker-%d", i+1), rng: u.randomOf(101 + uint64(i)), every: lockPause}
		g.Go(func() error { c.takeLocks(ctx); return nil })
	}
}

// randomOf returns the random numbers of a client.
func (u *Users) randomOf(client uint64) *rand.Rand {
	return rand.New(rand.NewPCG(u.Schedule.Seed, client))
}

// secretClient is a client that changes and reads variables, or takes locks. One goroutine owns it.
type secretClient struct {
	u     *Users
	name  string
	rng   *rand.Rand
	paths []string
	every time.Duration // mean pause
}

// pauseMean waits for half to one and a half of a mean, and reports false if ctx ended.
func (c *secretClient) pauseMean(ctx context.Context, mean time.Duration) bool {
	return Pause(ctx, time.Duration((0.5+c.rng.Float64())*float64(mean)))
}

// callHub calls ask with a hub at random, and gets another token for the users if theirs is refused. A call that began is
// not cancelled by ctx.
func (c *secretClient) callHub(ctx context.Context, ask func(ctx context.Context, h hubclient.Hub) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	turn := c.rng.IntN(len(c.u.Hubs))
	err := ask(ctx, c.u.hubOfTurn(turn))
	c.u.renewIfRefused(ctx, turn, err)
	return err
}

// changeSecrets changes, deletes and reads variables at random until ctx ends. The variable that a job needs is never
// deleted.
func (c *secretClient) changeSecrets(ctx context.Context) {
	for c.pauseMean(ctx, c.every) {
		v := c.u.secretOf(c.paths[c.rng.IntN(len(c.paths))])
		n := c.rng.IntN(10)
		_ = c.callHub(ctx, func(ctx context.Context, h hubclient.Hub) error { // the checkers are told of the outcome
			if n < 3 {
				_, err := c.u.readSecret(ctx, h, c.name, v)
				return err
			}
			needed := strings.Count(v.path, "/") == strings.Count(schedule.SecretPath(""), "/")
			_, err := c.u.changeSecret(ctx, h, c.name, v, n < 5 && !needed)
			return err
		})
	}
}

// takeLocks takes the lock of a variable again and again, holds it for a while, and releases it, until ctx ends.
func (c *secretClient) takeLocks(ctx context.Context) {
	for c.pauseMean(ctx, c.every) {
		var held fleet.Variable
		err := c.observeLock(ctx, check.OpLock, func(ctx context.Context, h hubclient.Hub) (err error) {
			held, err = h.LockVariable(ctx, fleet.Variable{
				VariableMeta: fleet.VariableMeta{Path: lockPath, Lock: &fleet.VariableLock{TTL: lockTTL, LockDelay: newlyTried}}, Items: secretItems(c.u.nextSecretNumber()),
			})
			return err
		})
		if err != nil {
			continue
		}
		until := c.u.Elapsed() + time.Duration(c.rng.Int64N(int64(lockHeld)))
		for err == nil && Pause(ctx, min(lockRenew, until-c.u.Elapsed())) && c.u.Elapsed() < until {
			err = c.observeLock(ctx, check.OpRenew, func(ctx context.Context, h hubclient.Hub) error { return h.RenewVariableLock(ctx, held) })
		}
		held.Items = nil
		_ = c.observeLock(ctx, check.OpUnlock, func(ctx context.Context, h hubclient.Hub) error { return h.UnlockVariable(ctx, held) })
	}
}

// observeLock calls a hub once about the lock, and reports that to the checkers. A release may take effect long before its
// answer, so that its begin is reported too.
func (c *secretClient) observeLock(ctx context.Context, does string, ask func(ctx context.Context, h hubclient.Hub) error) error {
	o := check.VariableOperation{Client: c.name, Does: does, Path: lockPath, Call: c.u.Elapsed(), TTL: lockTTL}
	if does == check.OpUnlock {
		begun := o
		begun.Outcome = check.OutcomeBegun
		c.u.Observe(check.Observation{Variable: &begun})
	}
	err := c.callHub(ctx, ask)
	o.Outcome = OutcomeOf(err)
	c.u.Observe(check.Observation{Variable: &o})
	return err
}
