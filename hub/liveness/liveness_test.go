package liveness_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/liveness"
	"skerry/hub/state"
)

// cluster is a replicated state without Raft: commands apply at once, or fail
// while broken is set.
type cluster struct {
	*state.Store
	tb testing.TB

	mu      sync.Mutex
	index   fleet.Index
	broken  bool
	entries []state.Command
}

func newCluster(tb testing.TB) *cluster { return &cluster{Store: state.New(), tb: tb} }

func (c *cluster) Apply(_ context.Context, cmd state.Command) (state.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		return state.Result{}, fleet.Errorf(fleet.CodeUnavailable, "no leader")
	}
	c.index++
	c.entries = append(c.entries, cmd)
	return c.Store.Apply(c.index, cmd), nil
}

func (c *cluster) mustApply(cmd state.Command) state.Result {
	c.tb.Helper()
	res, err := c.Apply(c.tb.Context(), cmd)
	if err != nil || res.Err != nil {
		c.tb.Fatalf("apply %T: %v, %v", cmd, err, res.Err)
	}
	return res
}

func (c *cluster) setBroken(broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = broken
}

// statusEntries counts NodeStatus commands.
func (c *cluster) statusEntries() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, e := range c.entries {
		if _, ok := e.(state.NodeStatus); ok {
			n++
		}
	}
	return n
}

// mustConnect opens a session of a node, which becomes ready, and returns its epoch.
func (c *cluster) mustConnect(node fleet.NodeID, pool string) fleet.Epoch {
	c.tb.Helper()
	session := uint64(1)
	if n, ok := c.View().Node(node); ok {
		session = n.Session + 1
	}
	res := c.mustApply(state.SessionOpen{
		NodeID: node, Session: session, Instance: "instance", BootID: "boot", Hub: "hub-1",
		Node: &fleet.Node{ID: node, Name: string(node), NodePool: pool}, Now: time.Now().UnixNano(),
	})
	return res.Session.Epoch
}

func (c *cluster) statuses() string {
	var lines []string
	for n := range c.View().Nodes("") {
		lines = append(lines, fmt.Sprintf("%s=%s", n.ID, n.Status))
	}
	return strings.Join(lines, " ")
}

func (c *cluster) expect(want string) {
	c.tb.Helper()
	synctest.Wait()
	if got := c.statuses(); got != want {
		c.tb.Errorf("%s after the start: nodes %s, want %s", time.Now().Format("15:04:05.0"), got, want)
	}
}

var policy = liveness.Policy{MinTTL: 10 * time.Second, Grace: 5 * time.Second, MaxRate: 500}

func newLiveness(c *cluster, forward func(context.Context, []liveness.Beat) error) *liveness.Liveness {
	return liveness.New(liveness.Config{
		Policy: policy, State: c, Apply: c, Hubs: func() int { return 1 }, Forward: forward,
	})
}

// background runs f until the test's bubble is done with it.
func background(t *testing.T, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ended with %v", err)
		}
	}
}

func TestMissedDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		quiet, loud := c.mustConnect("a-quiet", ""), c.mustConnect("b-loud", "")
		l := newLiveness(c, nil)
		stop := background(t, l.Lead)
		defer stop()
		time.Sleep(time.Second)
		for range 4 { // until 33 s: the quiet one's deadline is 1 s + 15 s
			l.Beat(liveness.Beat{Node: "b-loud", Epoch: loud, TTL: l.TTL("default")})
			if time.Since(time.Unix(946684800, 0)) < 5*time.Second {
				l.Beat(liveness.Beat{Node: "a-quiet", Epoch: quiet, TTL: l.TTL("default")})
			}
			time.Sleep(8 * time.Second)
		}
		// Nothing lives on it, so it is down at once.
		c.expect("a-quiet=down b-loud=ready")
		if n := c.statusEntries(); n != 1 {
			t.Errorf("%d entries for one missed deadline, want 1", n)
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
		defer background(t, l.Lead)()
		synctest.Wait()
		l.Beat(liveness.Beat{Node: "n", Epoch: epoch, TTL: 20 * time.Second})
		time.Sleep(25*time.Second - time.Millisecond)
		c.expect("n=ready")
		time.Sleep(2 * time.Millisecond)
		c.expect("n=down")
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
			Policy: liveness.Policy{MinTTL: 10 * time.Second, MaxRate: 0.01}, State: c, Apply: c, Hubs: func() int { return 1 },
		})
		defer background(t, l.Lead)()
		synctest.Wait()
		if ttl, held := l.TTL(""), l.Stats().Deadlines; ttl != 10*time.Second || held != 0 {
			t.Errorf("TTL %s and %d deadlines, want 10s and none", ttl, held)
		}
		time.Sleep(time.Minute)
		c.expect("a-registered=initializing b-down=down")
		if n := c.statusEntries(); n != 1 {
			t.Errorf("%d entries, want the one that was there before", n)
		}
	})
}

// The first beat of a node that the leader did not know yet counts at once, and not from the
// next sweep on.
func TestDeadlineOfAnUnknownNodeDoesNotWaitForASweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		l := liveness.New(liveness.Config{
			Policy: policy, State: c, Apply: c, Hubs: func() int { return 1 }, SweepEvery: time.Minute,
		})
		defer background(t, l.Lead)()
		synctest.Wait()
		l.Beat(liveness.Beat{Node: "n", Epoch: c.mustConnect("n", ""), TTL: 10 * time.Second})
		time.Sleep(15*time.Second - time.Millisecond)
		c.expect("n=ready")
		time.Sleep(2 * time.Millisecond)
		c.expect("n=down")
	})
}

func TestManyMissedTogetherAreFewEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		for i := range 1500 {
			c.mustConnect(fleet.NodeID(fmt.Sprintf("n%04d", i)), "")
		}
		l := newLiveness(c, nil)
		defer background(t, l.Lead)()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		for n := range c.View().Nodes("") {
			if n.Status != fleet.NodeDown {
				t.Fatalf("%s is %s", n.ID, n.Status)
			}
		}
		if n := c.statusEntries(); n != 2 { // 1,000 and 500
			t.Errorf("%d entries for 1,500 nodes, want 2", n)
		}
	})
}

func TestElectionGivesTimeForTheLongestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.mustApply(state.Pool{Pool: fleet.Pool{Name: "ships", HeartbeatTTL: 15 * time.Minute}})
		c.mustConnect("shop", "")
		c.mustConnect("zhip", "ships")
		l := newLiveness(c, nil)
		time.Sleep(time.Hour) // whatever was before the election
		defer background(t, l.Lead)()
		time.Sleep(15*time.Minute + 4*time.Second)
		c.expect("shop=ready zhip=ready")
		time.Sleep(2 * time.Second)
		c.expect("shop=down zhip=down")
	})
}

func TestSessionThatNeverBeatGetsADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		l := newLiveness(c, nil)
		defer background(t, l.Lead)()
		time.Sleep(time.Minute)
		c.mustConnect("n", "") // committed by a hub that died before its first beat came
		time.Sleep(14 * time.Second)
		c.expect("n=ready")
		time.Sleep(7 * time.Second) // found by a sweep within 5 s
		c.expect("n=down")
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
		c.expect("n=initializing")
		stop := background(t, newLiveness(c, nil).Lead)
		time.Sleep(14 * time.Second)
		stop()
		defer background(t, newLiveness(c, nil).Lead)()
		time.Sleep(14 * time.Second)
		c.expect("n=initializing")
		time.Sleep(7 * time.Second)
		c.expect("n=down")
	})
}

// The deadline of an older session does not stand for a new one that never beat.
func TestNewSessionDoesNotInheritADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		old := c.mustConnect("n", "")
		l := newLiveness(c, nil)
		defer background(t, l.Lead)()
		synctest.Wait()
		l.Beat(liveness.Beat{Node: "n", Epoch: old, TTL: time.Hour})
		time.Sleep(time.Minute)
		c.mustConnect("n", "")
		time.Sleep(14 * time.Second)
		c.expect("n=ready")
		time.Sleep(7 * time.Second) // found by a sweep within 5 s
		c.expect("n=down")
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
		return state.Result{}, fleet.Errorf(fleet.CodeUnavailable, "no leader")
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
				l := liveness.New(liveness.Config{Policy: policy, State: c, Apply: r, Hubs: func() int { return 1 }})
				r.missed = func() {
					if newer {
						epoch = c.mustConnect("n", "")
					}
					l.Beat(liveness.Beat{Node: "n", Epoch: epoch, TTL: 10 * time.Second})
				}
				defer background(t, l.Lead)()
				time.Sleep(15*time.Second + 14*time.Second)
				c.expect("n=ready")
				time.Sleep(2 * time.Second)
				c.expect("n=down")
			})
		})
	}
}

// A beat that overtakes its session's entry keeps its deadline, though the state still shows
// the node as down.
func TestBeatBeforeItsSessionIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		epoch := c.mustConnect("n", "")
		c.mustApply(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: "n", Epoch: epoch}}, Now: time.Now().UnixNano()})
		l := newLiveness(c, nil)
		defer background(t, l.Lead)()
		time.Sleep(time.Second)
		l.Beat(liveness.Beat{Node: "n", Epoch: epoch + 1, TTL: 10 * time.Second})
		time.Sleep(12 * time.Second) // two sweeps
		c.mustConnect("n", "")
		c.expect("n=ready")
		time.Sleep(4 * time.Second)
		c.expect("n=down")
	})
}

func TestBeatOfAnOlderSessionDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		old := c.mustConnect("n", "")
		l := newLiveness(c, nil)
		defer background(t, l.Lead)()
		synctest.Wait()
		current := c.mustConnect("n", "")
		l.Beat(liveness.Beat{Node: "n", Epoch: current, TTL: 10 * time.Second})
		for range 3 {
			time.Sleep(5 * time.Second)
			l.Beat(liveness.Beat{Node: "n", Epoch: old, TTL: 10 * time.Second})
		}
		time.Sleep(time.Millisecond)
		c.expect("n=down")
	})
}

func TestMissedDeadlineIsCommittedWhenItCanBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.mustConnect("n", "")
		c.setBroken(true)
		l := newLiveness(c, nil)
		defer background(t, l.Lead)()
		time.Sleep(time.Minute)
		c.expect("n=ready")
		c.setBroken(false)
		time.Sleep(2 * time.Second)
		c.expect("n=down")
	})
}

// A leader that was asleep has the beats of that time yet to read: it judges nobody
// by them.
func TestLeaderThatWasAsleepMissesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		epoch := c.mustConnect("beats", "")
		c.mustConnect("silent", "")
		drowsy := &sleeper{cluster: c}
		l := liveness.New(liveness.Config{Policy: policy, State: drowsy, Apply: c, Hubs: func() int { return 1 }})
		defer background(t, l.Lead)()
		synctest.Wait()
		drowsy.doze(time.Minute)
		time.Sleep(time.Minute + 6*time.Second) // it fell asleep in a sweep within 5 s
		c.expect("beats=ready silent=ready")
		l.Beat(liveness.Beat{Node: "beats", Epoch: epoch, TTL: 10 * time.Second})
		time.Sleep(14*time.Second + 900*time.Millisecond) // awake since 1 m 5 s
		c.expect("beats=ready silent=down")
	})
}

// sleeper is a state that is not to be had for a while, once.
type sleeper struct {
	*cluster
	mu sync.Mutex
	d  time.Duration
}

func (s *sleeper) doze(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.d = d
}

func (s *sleeper) View() *state.View {
	s.mu.Lock()
	d := s.d
	s.d = 0
	s.mu.Unlock()
	time.Sleep(d)
	return s.cluster.View()
}

func TestFollowersForwardInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var epochs []fleet.Epoch
		for i := range 3 {
			epochs = append(epochs, c.mustConnect(fleet.NodeID(fmt.Sprint("n", i)), ""))
		}
		leader := newLiveness(c, nil)
		defer background(t, leader.Lead)()
		var mu sync.Mutex
		var batches []int
		fail := false
		follower := newLiveness(c, func(_ context.Context, beats []liveness.Beat) error {
			mu.Lock()
			defer mu.Unlock()
			if fail {
				return fleet.Errorf(fleet.CodeUnavailable, "no leader")
			}
			batches = append(batches, len(beats))
			leader.Beat(beats...)
			return nil
		})
		defer background(t, follower.Run)()
		beatAll := func() {
			for i, e := range epochs {
				follower.Beat(liveness.Beat{Node: fleet.NodeID(fmt.Sprint("n", i)), Epoch: e, TTL: 10 * time.Second})
			}
		}
		for range 10 {
			beatAll()
			time.Sleep(8 * time.Second)
		}
		c.expect("n0=ready n1=ready n2=ready")
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
		c.expect("n0=ready n1=ready n2=ready")
		if heard, ok := leader.LastHeard(); !ok || len(heard) != 3 {
			t.Errorf("the leader heard %v (%v), want all three", slices.Sorted(maps.Keys(heard)), ok)
		}
		if _, ok := follower.LastHeard(); ok {
			t.Error("a follower says when nodes were heard")
		}
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
			l := liveness.New(liveness.Config{Hub: leader, Policy: policy, State: c, Apply: c, Hubs: func() int { return 1 }})
			defer background(t, l.Lead)()
			time.Sleep(time.Minute)
			if n, _ := c.View().Node("n"); n.Status == fleet.NodeReady || n.SessionOver != leads {
				t.Errorf("its hub leads %t: the node is %s, its session over %t", leads, n.Status, n.SessionOver)
			}
		})
	}
}
