package liveness_test

import (
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/liveness"
)

// What a leader says of another hub's lease is never longer than it led.
func TestHubSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		l := newLiveness(c, nil)
		if _, leads := l.HubSilence("hub-2"); leads {
			t.Error("it answers though it does not lead")
		}
		l.RenewLease("hub-2") // not as the leader: that is no renewal
		expect := func(want time.Duration) {
			t.Helper()
			synctest.Wait()
			if got, leads := l.HubSilence("hub-2"); got != want || !leads {
				t.Errorf("hub-2 is silent for %s (leads: %v), want %s", got, leads, want)
			}
		}
		time.Sleep(time.Hour)
		stop := runInBackground(t, l.Lead)
		expect(0)
		time.Sleep(20 * time.Second)
		expect(20 * time.Second)
		l.RenewLease("hub-2")
		time.Sleep(7 * time.Second)
		expect(7 * time.Second)
		stop()
		time.Sleep(time.Hour)
		defer runInBackground(t, l.Lead)()
		expect(0) // another leader may have renewed it meanwhile
	})
}

// TestSilentHubKeepsItsNodes has a node miss its deadline. While its hub does not reach the leader and its lease is not over,
// that hub may answer heartbeats: the node is not given up before.
func TestSilentHubKeepsItsNodes(t *testing.T) {
	const missed = 15 * time.Second // after the last heartbeat
	for name, c := range map[string]struct {
		renews time.Duration // for how long the hub renews its lease after the last heartbeat; below 0: how long before it stopped
		want   time.Duration // from the last heartbeat until the node is given up
	}{
		"silent since the last heartbeat":    {0, 30 * time.Second},
		"silent for a while before":          {-10 * time.Second, 20 * time.Second},
		"silent, and its lease is long over": {-time.Minute, missed},
		"it reaches the leader":              {time.Hour, missed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := newCluster(t)
				epoch := cluster.mustConnect("n", "")
				node, _ := cluster.View().Node("n")
				l := liveness.New(liveness.Config{
					Hub: "another", Policy: policy, State: cluster.Store, Apply: cluster, Hubs: func() int { return 1 }, SessionLease: 30 * time.Second,
				})
				defer runInBackground(t, l.Lead)()
				const beats = 2 * time.Minute
				for at := time.Duration(0); at < beats+time.Minute; at += 5 * time.Second {
					if at <= beats {
						l.RecordHeartbeats(liveness.Heartbeat{Node: "n", Epoch: epoch, TTL: 10 * time.Second})
					}
					if at <= beats+c.renews {
						l.RenewLease(node.Hub)
					}
					synctest.Wait()
					n, _ := cluster.View().Node("n")
					if given := n.Status != fleet.NodeReady; given != (at > beats+c.want) && at != beats+c.want {
						t.Errorf("%s after the last heartbeat the node is %s, want it to be given up after %s", at-beats, n.Status, c.want)
					}
					time.Sleep(5 * time.Second)
				}
			})
		})
	}
}
