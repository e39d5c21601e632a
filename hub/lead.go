package hub

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"skerry/hub/rpc"
	"skerry/hub/state"
)

// runLeaderLoop starts the leader tasks when this hub becomes the leader and stops them when it no longer is, until
// ctx ends or a task fails. For a command of the Restorer it stops them, applies it, and starts them again.
func (h *Hub) runLeaderLoop(ctx context.Context) error {
	var term *leaderTasks
	defer func() {
		if term != nil {
			term.stopAndWait()
		}
	}()
	for {
		var failed <-chan struct{}
		if term != nil {
			failed = term.stopped
		}
		select {
		case <-ctx.Done():
			return nil
		case <-failed:
			err := term.stopAndWait()
			term = nil
			if err != nil {
				return err
			}
		case c := <-h.restorer.Commands():
			if term == nil {
				c.Answer(state.Result{}, rpc.NoLeader())
				continue
			}
			err := term.stopAndWait()
			term = nil
			if err != nil {
				c.Answer(state.Result{}, rpc.NoLeader())
				return err
			}
			c.Answer(h.node.Alone(c.Context, c.Command))
			term = h.startLeaderTasks(ctx)
		case leads := <-h.node.Leadership():
			if term != nil {
				if err := term.stopAndWait(); err != nil {
					return err
				}
				term = nil
			}
			if leads {
				h.log.Info("leadership gained", "raft_term", h.node.Term())
				term = h.startLeaderTasks(ctx)
			} else {
				h.log.Info("leadership lost", "raft_term", h.node.Term())
			}
		}
	}
}

// leaderTasks are the running leader tasks of one leadership term.
type leaderTasks struct {
	cancel  context.CancelFunc
	group   *errgroup.Group
	stopped <-chan struct{} // a task has failed, or ctx ended
}

// startLeaderTasks starts a goroutine for each leader task. They run until ctx ends or one of them fails.
func (h *Hub) startLeaderTasks(ctx context.Context) *leaderTasks {
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	for name, run := range map[string]func(context.Context) error{
		"broker":    h.broker.Run,
		"planner":   h.planner.Run,
		"liveness":  h.liveness.Lead,
		"drainer":   h.drainer.Lead,
		"collector": h.collector.Lead,
		"periodic":  h.periodic.Lead,
		"rollout":   h.rollouts.Lead,
		"restores":  h.restorer.DropUnfinished,
		"secrets":   h.keyring.SealSecrets,
		"statekeys": h.keyring.LeadRotation,
		"rekeying":  h.secrets.Lead,
		"locks":     h.locks.Lead,
	} {
		group.Go(func() error {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("run %s: %w", name, err)
			}
			return nil
		})
	}
	return &leaderTasks{cancel: cancel, group: group, stopped: ctx.Done()}
}

// stopAndWait cancels the tasks, waits for them, and returns the first error of a task that failed before.
func (r *leaderTasks) stopAndWait() error {
	r.cancel()
	return r.group.Wait()
}
