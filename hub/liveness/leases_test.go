package liveness_test

import (
	"testing"
	"testing/synctest"
	"time"
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
