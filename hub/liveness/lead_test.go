package liveness_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/liveness"
	"skerry/hub/state"
)

func TestElectionGivesTimeForTheLongestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.mustApply(state.Pool{Pool: fleet.Pool{Name: "ships", HeartbeatTTL: 15 * time.Minute}})
		c.mustConnect("shop", "")
		c.mustConnect("zhip", "ships")
		l := newLiveness(c, nil)
		time.Sleep(time.Hour) // whatever was before the election
		defer runInBackground(t, l.Lead)()
		time.Sleep(15*time.Minute + 4*time.Second)
		c.expectStatuses("shop=ready zhip=ready")
		time.Sleep(2 * time.Second)
		c.expectStatuses("shop=down zhip=down")
	})
}

// A leader that was asleep has the beats of that time yet to read: it judges nobody
// by them.
func TestLeaderThatWasAsleepMissesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		epoch := c.mustConnect("beats", "")
		c.mustConnect("silent", "")
		var asleep atomic.Int64
		hubs := func() int { time.Sleep(time.Duration(asleep.Swap(0))); return 1 }
		l := liveness.New(liveness.Config{Policy: policy, State: c.Store, Apply: c, Hubs: hubs})
		defer runInBackground(t, l.Lead)()
		time.Sleep(2 * time.Second)
		asleep.Store(int64(time.Minute))
		c.mustConnect("silent", "")             // for the next sweep, which then counts the hubs
		time.Sleep(time.Minute + 6*time.Second) // it fell asleep in a sweep within 5 s
		c.expectStatuses("beats=ready silent=ready")
		l.RecordHeartbeats(liveness.Heartbeat{Node: "beats", Epoch: epoch, TTL: 10 * time.Second})
		time.Sleep(14*time.Second + 900*time.Millisecond) // awake since 1 m 5 s
		c.expectStatuses("beats=ready silent=down")
	})
}

// TestSessionOverWhereItsHubLeads has a node miss its deadline: only a session that the leader
// had itself is surely over.
func TestSessionOverWhereItsHubLeads(t *testing.T) {
	for _, leads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.mustConnect("n", "")
			before, _ := c.View().Node("n")
			leader := before.Hub
			if !leads {
				leader = "another"
			}
			l := liveness.New(liveness.Config{Hub: leader, Policy: policy, State: c.Store, Apply: c, Hubs: func() int { return 1 }})
			defer runInBackground(t, l.Lead)()
			time.Sleep(time.Minute)
			if n, _ := c.View().Node("n"); n.Status == fleet.NodeReady || n.SessionOver != leads {
				t.Errorf("its hub leads %t: the node is %s, its session over %t", leads, n.Status, n.SessionOver)
			}
		})
	}
}

// An edge falls silent before a hub becomes the leader. It is away since that hub last heard of it, if its session was
// there; else since the election, as another hub may have heard of it until then.
func TestLastContactBeforeAnElection(t *testing.T) {
	for _, tc := range []struct {
		name          string
		hub           fleet.HubID // the new leader; the session is on hub-1
		led           bool        // it led when it received the heartbeat
		reconnected   bool        // another session was opened after the heartbeat
		reconnects    bool        // another session is opened after the election, and has no heartbeat
		sinceElection bool
	}{
		{name: "its own session", hub: "hub-1"},
		{name: "its own session, led before", hub: "hub-1", led: true},
		{name: "an earlier session of its own", hub: "hub-1", reconnected: true, sinceElection: true},
		{name: "a session before the newest", hub: "hub-1", reconnects: true, sinceElection: true},
		{name: "a session of another hub", hub: "hub-2", sinceElection: true},
		{name: "a session of another hub, led before", hub: "hub-2", led: true, sinceElection: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				epoch := c.mustConnect("n", "")
				l := liveness.New(liveness.Config{Hub: tc.hub, Policy: policy, State: c.Store, Apply: c, Hubs: func() int { return 1 }})
				time.Sleep(2 * time.Second)
				heard := time.Now()
				stop := func() {}
				if tc.led {
					stop = runInBackground(t, l.Lead)
					synctest.Wait()
				}
				l.RecordHeartbeat("n", epoch, 10*time.Second)
				time.Sleep(3 * time.Second)
				if tc.reconnected {
					c.mustConnect("n", "")
				}
				stop()
				time.Sleep(time.Second)
				elected := time.Now()
				defer runInBackground(t, l.Lead)()
				synctest.Wait()
				if tc.reconnects {
					c.mustConnect("n", "")
				}
				time.Sleep(time.Minute)
				want := heard
				if tc.sinceElection {
					want = elected
				}
				if n, _ := c.View().Node("n"); n.DisconnectedAt != want.UnixNano() {
					t.Errorf("the node is %s, away since %s, want %s", n.Status, time.Unix(0, n.DisconnectedAt), want)
				}
			})
		})
	}
}
