package liveness_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/hub/liveness"
)

// TestFailedForwardsAreLoggedOnce has a follower without a leader twice: each time is one line of its log, however
// often it tries.
func TestFailedForwardsAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		epoch := c.mustConnect("n", "")
		var out bytes.Buffer // written only by Run, and read while that waits
		var leaderless bool
		l := liveness.New(liveness.Config{
			Policy: policy, State: c.Store, Hubs: func() int { return 1 }, Log: slog.New(slog.NewTextHandler(&out, nil)),
			Forward: func(context.Context, []liveness.Heartbeat) error {
				if leaderless {
					return errNoLeader
				}
				return nil
			},
		})
		defer runInBackground(t, l.Run)()
		for i := range 2 {
			for _, leaderless = range []bool{true, false} {
				l.RecordHeartbeats(liveness.Heartbeat{Node: "n", Epoch: epoch, TTL: 10 * time.Second})
				time.Sleep(10 * time.Second)
				synctest.Wait()
			}
			if got := strings.Count(out.String(), "heartbeats cannot be forwarded"); got != i+1 {
				t.Errorf("%d lines for %d times without a leader:\n%s", got, i+1, &out)
			}
		}
	})
}
