package liveness_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/liveness"
	"skerry/hub/state"
)

// The first beat of a node that the leader did not know yet counts at once, and not from the
// next sweep on.
func TestDeadlineOfAnUnknownNodeDoesNotWaitForASweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		l := liveness.New(liveness.Config{
			Policy: policy, State: c.Store, Apply: c, Hubs: func() int { return 1 }, SweepEvery: time.Minute,
		})
		defer runInBackground(t, l.Lead)()
		synctest.Wait()
		l.RecordHeartbeats(liveness.Heartbeat{Node: "n", Epoch: c.mustConnect("n", ""), TTL: 10 * time.Second})
		c.expectDown(15*time.Second-time.Millisecond, 2*time.Millisecond)
	})
}

// refusing has a beat come while a missed deadline is being committed, which fails.
type refusing struct {
	*cluster
	missed func()
}

func (r *refusing) Apply(ctx context.Context, cmd state.Command) (state.Result, error) {
	if _, ok := cmd.(state.NodeStatus); ok && r.missed != nil {
		r.missed()
		r.missed = nil
		return state.Result{}, errNoLeader
	}
	return r.cluster.Apply(ctx, cmd)
}

// A beat that comes while its session's deadline is being committed counts: what could not
// be committed is not tried again.
func TestBeatWhileTheDeadlineIsCommitted(t *testing.T) {
	for name, newer := range map[string]bool{"of the same session": false, "of a newer session": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				epoch := c.mustConnect("n", "")
				r := &refusing{cluster: c}
				l := liveness.New(liveness.Config{Policy: policy, State: c.Store, Apply: r, Hubs: func() int { return 1 }})
				r.missed = func() {
					if newer {
						epoch = c.mustConnect("n", "")
					}
					l.RecordHeartbeats(liveness.Heartbeat{Node: "n", Epoch: epoch, TTL: 10 * time.Second})
				}
				defer runInBackground(t, l.Lead)()
				c.expectDown(15*time.Second+14*time.Second, 2*time.Second)
			})
		})
	}
}

// A commit that takes long is no suspension of the hub: no deadline starts again.
func TestSlowCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.mustConnect("m", "")
		epoch := c.mustConnect("n", "")
		r := &refusing{cluster: c, missed: func() { time.Sleep(12 * time.Second) }}
		l := liveness.New(liveness.Config{Policy: policy, State: c.Store, Apply: r, Hubs: func() int { return 1 }})
		defer runInBackground(t, l.Lead)()
		time.Sleep(5 * time.Second)
		l.RecordHeartbeats(liveness.Heartbeat{Node: "n", Epoch: epoch, TTL: 10 * time.Second})
		time.Sleep(21 * time.Second) // the commit for m began at 15 s; the deadline of n was at 20 s
		c.expectStatuses("m=ready n=ready")
		time.Sleep(3 * time.Second)
		c.expectStatuses("m=down n=down")
	})
}

// A beat that overtakes its session's entry keeps its deadline, though the state still shows
// the node as down.
func TestBeatBeforeItsSessionIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		epoch := c.mustConnect("n", "")
		c.mustApply(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: "n", Epoch: epoch}}, Now: time.Now().UnixNano()})
		l := newLiveness(c, nil)
		defer runInBackground(t, l.Lead)()
		time.Sleep(time.Second)
		l.RecordHeartbeats(liveness.Heartbeat{Node: "n", Epoch: epoch + 1, TTL: 10 * time.Second})
		time.Sleep(12 * time.Second) // two sweeps
		c.mustConnect("n", "")
		c.expectStatuses("n=ready")
		time.Sleep(4 * time.Second)
		c.expectStatuses("n=down")
	})
}

func TestBeatOfAnOlderSessionDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		old := c.mustConnect("n", "")
		l := newLiveness(c, nil)
		defer runInBackground(t, l.Lead)()
		synctest.Wait()
		current := c.mustConnect("n", "")
		l.RecordHeartbeats(liveness.Heartbeat{Node: "n", Epoch: current, TTL: 10 * time.Second})
		for range 3 {
			time.Sleep(5 * time.Second)
			l.RecordHeartbeats(liveness.Heartbeat{Node: "n", Epoch: old, TTL: 10 * time.Second})
		}
		time.Sleep(time.Millisecond)
		c.expectStatuses("n=down")
	})
}

func TestFollowersForwardInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var epochs []fleet.Epoch
		for i := range 3 {
			epochs = append(epochs, c.mustConnect(fleet.NodeID(fmt.Sprint("n", i)), ""))
		}
		leader := newLiveness(c, nil)
		defer runInBackground(t, leader.Lead)()
		var mu sync.Mutex
		var batches []int
		fail := false
		follower := newLiveness(c, func(_ context.Context, beats []liveness.Heartbeat) error {
			mu.Lock()
			defer mu.Unlock()
			if fail {
				return errNoLeader
			}
			batches = append(batches, len(beats))
			return leader.RecordForwarded(beats)
		})
		defer runInBackground(t, follower.Run)()
		beatAll := func() {
			for i, e := range epochs {
				follower.RecordHeartbeats(liveness.Heartbeat{Node: fleet.NodeID(fmt.Sprint("n", i)), Epoch: e, TTL: 10 * time.Second})
			}
		}
		for range 10 {
			beatAll()
			time.Sleep(8 * time.Second)
		}
		c.expectStatuses("n0=ready n1=ready n2=ready")
		mu.Lock()
		if want := slices.Repeat([]int{3}, 10); !slices.Equal(batches, want) {
			t.Errorf("batches of %v beats, want %v", batches, want)
		}
		fail = true
		mu.Unlock()
		beatAll()
		time.Sleep(3 * time.Second)
		mu.Lock()
		fail = false
		mu.Unlock()
		time.Sleep(7 * time.Second) // what could not be handed over then was kept
		c.expectStatuses("n0=ready n1=ready n2=ready")
		if heard, ok := leader.LastHeard(); !ok || len(heard) != 3 {
			t.Errorf("the leader heard %v (%v), want all three", slices.Sorted(maps.Keys(heard)), ok)
		}
		if heard, err := leader.LastContact(t.Context(), nil); err != nil || len(heard) != 3 {
			t.Errorf("the leader, which asks nobody, knows of %v (%v), want all three", slices.Sorted(maps.Keys(heard)), err)
		}
		if _, ok := follower.LastHeard(); ok {
			t.Error("a follower says when nodes were heard")
		}
	})
}
