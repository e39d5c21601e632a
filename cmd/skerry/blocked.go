package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"skerry/cmd/client"
	"skerry/fleet"
)

// awaitAnyChange waits until the answer of one of the paths is newer than the index that was
// read of it.
func awaitAnyChange(ctx context.Context, hub *client.Client, read map[string]fleet.Index) error {
	ctx, cancel := context.WithCancel(ctx)
	changed := make(chan error, len(read))
	for path, index := range read {
		go func() {
			_, err := hub.ReadAfter(ctx, max(index, 1), path, nil, nil) // after 0 it answers at once
			changed <- err
		}()
	}
	err := <-changed
	cancel()
	for range len(read) - 1 {
		<-changed
	}
	return err
}

// evalsPath is the path of the followed job's evaluations.
func (f *followedJob) evalsPath() string { return jobPath(f.eval.JobID, "/evaluations") }

// readBlocked reads the blocked evaluation of the job, if there is one.
func (f *followedJob) readBlocked(ctx context.Context, hub *client.Client) (fleet.Index, error) {
	var evals []fleet.Evaluation
	index, err := hub.Read(ctx, f.evalsPath(), nil, &evals)
	if err != nil {
		return 0, err
	}
	f.blocked = nil
	if i := slices.IndexFunc(evals, func(e fleet.Evaluation) bool { return e.Status == fleet.EvalBlocked }); i >= 0 {
		f.blocked = &evals[i]
	}
	return index, nil
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
