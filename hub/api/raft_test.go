package api_test

import (
	"slices"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// Nomad's client takes a vote and hands the lead over, by id and by address.
func TestVotersAreChanged(t *testing.T) {
	h, _, c := mustServe(t)
	op := c.Operator()
	for _, bad := range []struct {
		do   func() error
		says string
	}{
		{func() error { return op.RaftRemovePeerByID("hub9", nil) }, "it is not a member of the Raft cluster"},
		{func() error { return op.RaftRemovePeerByID("", nil) }, "neither id nor address is given"},
		{func() error { return op.RaftRemovePeerByID("hub1", nil) }, "it is the leader"},
		{func() error { return op.RaftTransferLeadershipByID("hub9", nil) }, "find hub hub9: it is not a member of the Raft cluster"},
		{func() error { return op.RaftTransferLeadershipByID("hub9", nil) }, "hub1 (127.0.0.1:4647), hub2 (127.0.0.2:4647)"},
		{func() error { return op.RaftTransferLeadershipByAddress("127.0.0.9:1", nil) }, "it is not a member of the Raft cluster"},
	} {
		if err := bad.do(); err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%v, want %q", err, bad.says)
		}
	}
	if err := op.RaftTransferLeadershipByAddress("127.0.0.2:4647", nil); err != nil || h.leader != "hub2" {
		t.Errorf("hub %s leads: %v", h.leader, err)
	}
	if err := op.RaftTransferLeadershipByID("hub1", nil); err != nil || h.leader != "hub1" {
		t.Errorf("hub %s leads: %v", h.leader, err)
	}
	mustApply(t, h, state.Hub{Hub: state.HubAddr{ID: "hub7", QUIC: "127.0.0.7:4647"}}) // a recovery took its vote already
	for _, err := range []error{op.RaftRemovePeerByID("hub2", nil), op.RaftRemovePeerByAddress("127.0.0.7:4647", nil)} {
		if err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(h.removed, []fleet.HubID{"hub2", "hub7"}) {
		t.Errorf("removed %v", h.removed)
	}
}
