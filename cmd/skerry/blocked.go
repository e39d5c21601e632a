package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"skerry/client"
	"skerry/fleet"
)

// blockingRead reads again with a client that waits for a newer answer.
type blockingRead func(ctx context.Context, hub *client.Client) error

// awaitAnyChange waits until the answer of one of the reads is newer than its index.
func awaitAnyChange(ctx context.Context, hub *client.Client, reads map[*fleet.Index]blockingRead) error {
	ctx, cancel := context.WithCancel(ctx)
	changed := make(chan error, len(reads))
	for index, read := range reads {
		*index = max(*index, 1) // after 0 it answers at once
		go func() { changed <- read(ctx, hub.Watch(index)) }()
	}
	err := <-changed
	cancel()
	for range len(reads) - 1 {
		<-changed
	}
	return err
}

// readBlocked reads the blocked evaluation of the job, if there is one.
func (f *followedJob) readBlocked(ctx context.Context, hub *client.Client) error {
	evals, err := hub.JobEvals(ctx, f.eval.JobID)
	if err != nil {
		return err
	}
	f.blocked = nil
	if i := slices.IndexFunc(evals, func(e fleet.Evaluation) bool { return e.Status == fleet.EvalBlocked }); i >= 0 {
		f.blocked = &evals[i]
	}
	return nil
}

// placementFailures says, by group, why the newest evaluation found no node. Where none is blocked
// any more, everything is placed or is evaluated again just now.
func (f *followedJob) placementFailures() map[string]*fleet.AllocMetric {
	switch {
	case f.blocked != nil:
		return f.blocked.FailedTGAllocs
	case f.eval.BlockedEval != "" || f.eval.Status == fleet.EvalBlocked:
		return nil
	}
	return f.eval.FailedTGAllocs
}

// awaitsCapacity reports whether some allocations of the job are placed as soon as those that make
// room for them have stopped.
func (f *followedJob) awaitsCapacity() bool { return f.blocked != nil && len(f.blocked.AwaitsRoom) > 0 }

// writeUnplaced writes how many allocations of an evaluation are not placed, and why.
func writeUnplaced(w io.Writer, e fleet.Evaluation) {
	for _, group := range slices.Sorted(maps.Keys(e.AwaitsRoom)) {
		fmt.Fprintf(w, "Group %q: %d to place as soon as the allocations that make room have stopped\n", group, e.AwaitsRoom[group])
	}
	for _, group := range slices.Sorted(maps.Keys(e.FailedTGAllocs)) {
		m := e.FailedTGAllocs[group]
		fmt.Fprintf(w, "Group %q: %d cannot be placed\n", group, m.CoalescedFailures+1)
		for _, line := range placementReasons(m) {
			fmt.Fprintln(w, "  "+line)
		}
	}
}
