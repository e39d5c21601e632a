package gateway

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"skerry/fleet"
)

// leaderStub is the lease table and the Raft node of a hub. lost is the error of Verify: the hub no longer leads.
type leaderStub struct {
	leads   bool
	lost    error
	renewed []fleet.HubID
}

func (l *leaderStub) RenewLease(hub fleet.HubID) { l.renewed = append(l.renewed, hub) }

func (l *leaderStub) HubSilence(fleet.HubID) (time.Duration, bool) { return 7 * time.Second, l.leads }

func (l *leaderStub) Verify(context.Context) error { return l.lost }

func (l *leaderStub) IsMember(hub fleet.HubID) (bool, error) { return hub == "hub-2", nil }

func (l *leaderStub) remote() *Remote {
	return NewRemote(RemoteConfig{Hub: "hub-1", Leases: l, Raft: l})
}

// TestLeaderRenewsLeasesOfMembers expects a renewal only for a member, and only from a confirmed leader.
func TestLeaderRenewsLeasesOfMembers(t *testing.T) {
	leader := &leaderStub{leads: true}
	if err := leader.remote().renewLeaseFor(t.Context(), "stranger"); fleet.CodeOf(err) != fleet.CodeForbidden {
		t.Errorf("a hub that is no member asked: %v, want %s", err, fleet.CodeForbidden)
	}
	if err := leader.remote().renewLeaseFor(t.Context(), "hub-2"); err != nil {
		t.Errorf("a member asked: %v", err)
	}
	if want := []fleet.HubID{"hub-2"}; !slices.Equal(leader.renewed, want) {
		t.Errorf("renewed the leases of %v, want %v", leader.renewed, want)
	}
	former := &leaderStub{leads: true, lost: errors.New("no majority")}
	if err := former.remote().renewLeaseFor(t.Context(), "hub-2"); !errors.Is(err, former.lost) || len(former.renewed) > 0 {
		t.Errorf("a hub without a majority was asked: %v, renewed %v", err, former.renewed)
	}
}

// TestSilenceOfAHub expects an answer about another hub's silence only from a confirmed leader.
func TestSilenceOfAHub(t *testing.T) {
	q := formerSession{Hub: "hub-2", Node: "node"}
	got, err := (&leaderStub{leads: true}).remote().silenceOfHub(t.Context(), q)
	if want := (Former{Silence: 7 * time.Second}); err != nil || got != want {
		t.Errorf("the leader says %+v (%v), want %+v", got, err, want)
	}
	if _, err := (&leaderStub{}).remote().silenceOfHub(t.Context(), q); fleet.CodeOf(err) != fleet.CodeNotLeader {
		t.Errorf("a hub that does not lead: %v, want %s", err, fleet.CodeNotLeader)
	}
	former := &leaderStub{leads: true, lost: errors.New("no majority")}
	if _, err := former.remote().silenceOfHub(t.Context(), q); !errors.Is(err, former.lost) {
		t.Errorf("a hub without a majority: %v, want %v", err, former.lost)
	}
}
