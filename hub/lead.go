package hub

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// lead runs what only the leader runs, for as long as this hub is the leader.
func (h *Hub) lead(ctx context.Context) error {
	var term *reign
	defer func() {
		if term != nil {
			term.end()
		}
	}()
	for {
		var failed <-chan struct{}
		if term != nil {
			failed = term.over
		}
		select {
		case <-ctx.Done():
			return nil
		case <-failed:
			err := term.end()
			term = nil
			if err != nil {
				return err
			}
		case o := <-h.orders:
			if term == nil {
				o.done <- ordered{err: noLeader()}
				continue
			}
			err := term.end()
			term = nil
			if err != nil {
				o.done <- ordered{err: noLeader()}
				return err
			}
			res, err := h.node.Alone(o.ctx, o.command)
			o.done <- ordered{res, err}
			term = h.reign(ctx)
		case leads := <-h.node.Leadership():
			if term != nil {
				if err := term.end(); err != nil {
					return err
				}
				term = nil
			}
			if leads {
				h.log.Info("leadership gained", "raft_term", h.node.Term())
				term = h.reign(ctx)
			} else {
				h.log.Info("leadership lost", "raft_term", h.node.Term())
			}
		}
	}
}

// reign is one time of leading.
type reign struct {
	cancel context.CancelFunc
	group  *errgroup.Group
	over   <-chan struct{} // a room has failed, or ctx ended
}

func (h *Hub) reign(ctx context.Context) *reign {
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
		"restores":  h.dropLeftover,
		"secrets":   h.sealSecrets,
	} {
		group.Go(func() error {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("run %s: %w", name, err)
			}
			return nil
		})
	}
	return &reign{cancel: cancel, group: group, over: ctx.Done()}
}

// end stops leading and returns why it failed, if it did.
func (r *reign) end() error {
	r.cancel()
	return r.group.Wait()
}
