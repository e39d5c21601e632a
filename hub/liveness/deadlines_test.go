package liveness_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/liveness"
	"skerry/hub/state"
)

func TestMissedDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		quiet, loud := c.mustConnect("a-quiet", ""), c.mustConnect("b-loud", "")
		l := newLiveness(c, nil)
		stop := runInBackground(t, l.Lead)
		defer stop()
		time.Sleep(time.Second)
		for range 4 { // until 33 s: the quiet one's deadline is 1 s + 15 s
			l.RecordHeartbeats(liveness.Heartbeat{Node: "b-loud", Epoch: loud, TTL: l.TTL("default")})
			if time.Since(time.Unix(946684800, 0)) < 5*time.Second {
				l.RecordHeartbeats(liveness.Heartbeat{Node: "a-quiet", Epoch: quiet, TTL: l.TTL("default")})
			}
			time.Sleep(8 * time.Second)
		}
		// Nothing lives on it, so it is down at once.
		c.expectStatuses("a-quiet=down b-loud=ready")
		if n := c.EntryCount(state.KindOf(state.NodeStatus{})); n != 1 {
			t.Errorf("%d entries for one missed deadline, want 1", n)
		}
		if n := l.Stats().Missed; n != 1 {
			t.Errorf("%d missed deadlines are counted, want 1", n)
		}
		// It is away since its last beat, and not since that was noticed.
		beat := time.Unix(946684801, 0)
		if n, _ := c.View().Node("a-quiet"); n.DisconnectedAt != beat.UnixNano() {
			t.Errorf("away since %s, its last beat was at %s", time.Unix(0, n.DisconnectedAt), beat)
		}
		said := c.View().NodeHistory("a-quiet")
		if last := said[len(said)-1]; last.Since == nil || !last.Since.Equal(beat) || !last.Time.After(beat) {
			t.Errorf("its record says at %s: %s, since %v", last.Time, last.Event, last.Since)
		}
	})
}

func TestDeadlineIsTTLAndGraceAfterTheBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		epoch := c.mustConnect("n", "")
		l := newLiveness(c, nil)
		defer runInBackground(t, l.Lead)()
		synctest.Wait()
		l.RecordHeartbeats(liveness.Heartbeat{Node: "n", Epoch: epoch, TTL: 20 * time.Second})
		c.expectDown(25*time.Second-time.Millisecond, 2*time.Millisecond)
	})
}

// A node that never had a session, and one that is down, have no deadline, and do not count
// in how often the others beat.
func TestNodesWithoutASessionHaveNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.mustApply(state.NodeRegister{Node: fleet.Node{ID: "a-registered", Name: "registered"}, Now: time.Now().UnixNano()})
		epoch := c.mustConnect("b-down", "")
		c.mustApply(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: "b-down", Epoch: epoch}}, Now: time.Now().UnixNano()})
		l := liveness.New(liveness.Config{
			Policy: liveness.Policy{MinTTL: 10 * time.Second, MaxRate: 0.01}, State: c.Store, Apply: c, Hubs: func() int { return 1 },
		})
		defer runInBackground(t, l.Lead)()
		synctest.Wait()
		if ttl, held := l.TTL(""), l.Stats().Deadlines; ttl != 10*time.Second || held != 0 {
			t.Errorf("TTL %s and %d deadlines, want 10s and none", ttl, held)
		}
		time.Sleep(time.Minute)
		c.expectStatuses("a-registered=initializing b-down=down")
		if n := c.EntryCount(state.KindOf(state.NodeStatus{})); n != 1 {
			t.Errorf("%d entries, want the one that was there before", n)
		}
	})
}

func TestManyMissedTogetherAreFewEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		for i := range 1500 {
			c.mustConnect(fleet.NodeID(fmt.Sprintf("n%04d", i)), "")
		}
		l := newLiveness(c, nil)
		defer runInBackground(t, l.Lead)()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		for n := range c.View().Nodes("") {
			if n.Status != fleet.NodeDown {
				t.Fatalf("%s is %s", n.ID, n.Status)
			}
		}
		if n := c.EntryCount(state.KindOf(state.NodeStatus{})); n != 2 { // 1,000 and 500
			t.Errorf("%d entries for 1,500 nodes, want 2", n)
		}
	})
}

func TestMissedDeadlineIsCommittedWhenItCanBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.mustConnect("n", "")
		c.SetRefusal(errNoLeader)
		l := newLiveness(c, nil)
		defer runInBackground(t, l.Lead)()
		time.Sleep(time.Minute)
		c.expectStatuses("n=ready")
		c.SetRefusal(nil)
		time.Sleep(2 * time.Second)
		c.expectStatuses("n=down")
	})
}

func TestSessionThatNeverBeatGetsADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		l := newLiveness(c, nil)
		defer runInBackground(t, l.Lead)()
		time.Sleep(time.Minute)
		c.mustConnect("n", "")                      // committed by a hub that died before its first beat came
		c.expectDown(14*time.Second, 7*time.Second) // found by a sweep within 5 s
	})
}

// A node whose history is still coming in has a deadline like one that is ready, under the
// leader that it connected to and under the next one.
func TestInitializingNodeHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.mustApply(state.SessionOpen{
			NodeID: "n", Session: 1, Instance: "instance", BootID: "boot", Hub: "hub-1", Head: 5,
			Node: &fleet.Node{ID: "n", Name: "n"}, Now: time.Now().UnixNano(),
		})
		c.expectStatuses("n=initializing")
		stop := runInBackground(t, newLiveness(c, nil).Lead)
		time.Sleep(14 * time.Second)
		stop()
		defer runInBackground(t, newLiveness(c, nil).Lead)()
		time.Sleep(14 * time.Second)
		c.expectStatuses("n=initializing")
		time.Sleep(7 * time.Second)
		c.expectStatuses("n=down")
	})
}

// The deadline of an older session does not stand for a new one that never beat.
func TestNewSessionDoesNotInheritADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		old := c.mustConnect("n", "")
		l := newLiveness(c, nil)
		defer runInBackground(t, l.Lead)()
		synctest.Wait()
		l.RecordHeartbeats(liveness.Heartbeat{Node: "n", Epoch: old, TTL: time.Hour})
		time.Sleep(time.Minute)
		c.mustConnect("n", "")
		c.expectDown(14*time.Second, 7*time.Second) // found by a sweep within 5 s
	})
}

// Without a deadline the hub waits for none.
func TestNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		l := newLiveness(c, nil)
		defer runInBackground(t, l.Lead)()
		synctest.Wait()
		if l.HasDeadline() {
			t.Error("there is a deadline without a node")
		}
		l.RecordHeartbeats(liveness.Heartbeat{Node: "n", Epoch: c.mustConnect("n", ""), TTL: 10 * time.Second})
		if !l.HasDeadline() {
			t.Error("there is no deadline after a heartbeat")
		}
	})
}
