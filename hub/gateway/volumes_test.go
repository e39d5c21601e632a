package gateway_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// An edge is told of a volume once, of its deletion, and of all volumes in a later session. What it says of them is
// in the state.
func TestVolumesAreDelivered(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	w.openSession(1, "agent-1")
	h.mustApply(state.VolumeStore{Now: time.Now().UnixNano(), Volume: fleet.Volume{
		ID: "v1", Name: "data", Namespace: "default", NodeID: node1, PluginID: fleet.VolumePluginMkdir, Parameters: map[string]string{"mode": "0750"},
		RequestedCapabilities: []fleet.VolumeCapability{{AttachmentMode: fleet.AttachFileSystem, AccessMode: fleet.AccessWriter}},
	}})
	d := expect[syncproto.Desired](w, syncproto.StreamDesired)
	if len(d.Volumes) != 1 || d.Volumes[0].Path != "" || !d.Volumes[0].Pending || d.Volumes[0].Delete || d.Volumes[0].Parameters["mode"] != "0750" || d.Full {
		t.Fatalf("desired %+v", d)
	}
	ready := fleet.Transition{Kind: fleet.TransitionVolume, Volume: &fleet.VolumeReport{ID: "v1", State: fleet.VolumeReady, Path: "/data/v1"}}
	w.sendMessage(syncproto.StreamUpdates, w.newUpdates(1, ready))
	expect[syncproto.Applied](w, syncproto.StreamUpdates)
	h.waitForState("the volume is ready", func(v *state.View) bool {
		vol, _ := v.Volume("v1")
		return vol.State == fleet.VolumeReady && vol.HostPath == "/data/v1"
	})
	h.mustApply(state.VolumeDelete{Namespace: "default", ID: "v1"})
	if d := expect[syncproto.Desired](w, syncproto.StreamDesired); len(d.Volumes) != 1 || !d.Volumes[0].Delete || d.Volumes[0].Pending {
		t.Fatalf("desired %+v", d)
	}
	later := h.mustDial(t, node1)
	hello := later.newHello(2, "agent-1")
	hello.Last, hello.ChainHash = 1, w.chain
	later.exchangeHello(hello)
	later.sendHeartbeat()
	if d := expect[syncproto.Desired](later, syncproto.StreamDesired); !d.Full || len(d.Volumes) != 1 || !d.Volumes[0].Delete {
		t.Fatalf("desired in a later session %+v", d)
	}
	h.mustApply(state.VolumeStore{Now: time.Now().UnixNano(), Volume: fleet.Volume{
		ID: "v2", Name: "shelf", Namespace: "default", NodeID: node1, Registered: true, HostPath: "/srv/shelf",
		RequestedCapabilities: []fleet.VolumeCapability{{AttachmentMode: fleet.AttachFileSystem, AccessMode: fleet.AccessWriter}},
	}})
	if d := expect[syncproto.Desired](later, syncproto.StreamDesired); len(d.Volumes) != 1 || d.Volumes[0].Path != "/srv/shelf" {
		t.Fatalf("desired %+v", d)
	}
}
