package real

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skerry/chaos/cluster"
	"skerry/fleet"
)

// Clone starts a second edge with a copy of the first one's data directory. It
// has to be fenced and shown; the first goes on.
type Clone struct{ Ground }

// Run plays it with one hub.
func (t Clone) Run(ctx context.Context) error {
	return t.runOnFleet(ctx, fast(1, 1), func(s *fleetRun) error {
		if err := s.runJobUntilQuiet(ctx, workload("one", 2, s.starts, nil)); err != nil {
			return err
		}
		first := s.fleet.Edges[0]
		second, err := s.fleet.NewEdge("clone")
		if err != nil {
			return err
		}
		// The copy is taken while the first one's agent is down for a moment, as an
		// image of a disk would be.
		first.Kill()
		if err := copyData(first.Dir, second.Dir); err != nil {
			return err
		}
		if err := first.Start(); err != nil {
			return err
		}
		if _, _, err := s.waitUntilQuiet(ctx); err != nil {
			return err
		}
		if err := second.Start(); err != nil {
			return err
		}
		err = t.waitUntilFenced(ctx, s, first, second)
		return errors.Join(err, second.Scrap())
	})
}

func (t Clone) waitUntilFenced(ctx context.Context, s *fleetRun, first, second *cluster.Edge) error {
	id, err := first.NodeID(ctx)
	if err != nil {
		return err
	}
	var node fleet.Node
	err = cluster.Eventually(ctx, quietBound, "the clone is fenced and shown", func(ctx context.Context) string {
		if node, err = s.fleet.Hubs[0].Node(ctx, id); err != nil {
			return err.Error()
		}
		if len(node.Fenced) == 0 {
			return "the node's record names no fenced session"
		}
		st, err := second.Local().Status(ctx)
		if err != nil {
			return err.Error()
		}
		if st.Link.Fenced == "" {
			return "the clone itself does not say so: its link is " + st.Link.State
		}
		return ""
	})
	if err != nil {
		return err
	}
	// The first one's session has to stay, also while the clone tries again.
	epoch := node.Epoch
	if err := pause(ctx, 3*time.Second); err != nil {
		return err
	}
	if node, err = s.fleet.Hubs[0].Node(ctx, id); err != nil {
		return err
	}
	if node.Status != fleet.NodeReady || node.Epoch != epoch {
		return fmt.Errorf("%w: the first edge is %s, and had %d more sessions", ErrViolated, node.Status, node.Epoch-epoch)
	}
	t.printLine("a second edge with a copy of the first one's data: fenced as %s and shown; the first goes on", node.Fenced[0].Code)
	// The clone is a machine of its own: what it started tells in the same folder.
	s.starts = ""
	return s.judgeWhenQuiet(ctx)
}
