package snapshot_test

import (
	"bytes"
	"crypto/sha256"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/rpc"
	"skerry/hub/snapshot"
	"skerry/hub/state"
	"skerry/hub/state/statetest"
)

// election is over some time after its begin; then this hub leads.
type election struct{ over time.Time }

func (e election) IsLeader() bool { return !time.Now().Before(e.over) }

func (election) Leader() (fleet.HubID, string, bool) { return "", "", false }

// TestRestoreDuringAnElection: a restore begins again until a hub leads, and fails with the reason if none does. No
// chunks stay in the state.
func TestRestoreDuringAnElection(t *testing.T) {
	for name, tc := range map[string]struct {
		election time.Duration
		restored bool
	}{
		"a short one": {3 * time.Second, true},
		"a long one":  {rpc.CallTimeout + 5*time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { restoreDuring(t, tc.election, tc.restored) })
		})
	}
}

func restoreDuring(t *testing.T, lasts time.Duration, restored bool) {
	log := statetest.NewLog()
	log.MustApply(t, state.ClusterInit{Cluster: state.Cluster{ID: "cluster"}})
	peers, err := rpc.New(rpc.Config{Pool: new(rpc.Pool), Self: "hub-1", Leadership: election{time.Now().Add(lasts)}})
	if err != nil {
		t.Fatal(err)
	}
	r := snapshot.New(snapshot.Config{Hub: "hub-1", State: log.Store, Apply: log, Lead: log, Peers: peers, Log: slog.New(slog.DiscardHandler)})
	var saved bytes.Buffer
	if err := log.Store.View().Persist(&saved); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(saved.Bytes())
	ended := make(chan struct{})
	leader := make(chan struct{})
	go func() { // the leader loop
		defer close(leader)
		select {
		case c := <-r.Commands():
			c.Answer(log.Apply(c.Context, c.Command))
		case <-ended:
		}
	}()
	_, err = r.Restore(t.Context(), bytes.NewReader(saved.Bytes()), int64(saved.Len()), sum[:])
	close(ended)
	<-leader
	if restored && err != nil || !restored && !rpc.IsNoLeader(err) {
		t.Errorf("restore: %v", err)
	}
	if restore, ok := log.Store.View().Restoring(); ok {
		t.Errorf("chunks of restore %s are left", restore)
	}
	if restored {
		if _, ok := log.Entries()[len(log.Entries())-1].(state.SnapshotRestore); !ok {
			t.Errorf("last entry %T", log.Entries()[len(log.Entries())-1])
		}
	}
}
