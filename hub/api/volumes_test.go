package api_test

import (
	"net/http"
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/hub/state"
)

// mustServeVolumes is mustServe with the namespaces red and blue, and a node that makes volumes.
func mustServeVolumes(t *testing.T) (*fakeHub, *nomad.Client) {
	t.Helper()
	h, _, c := mustServe(t)
	for _, name := range []string{"red", "blue"} {
		mustApply(t, h, state.NamespaceStore{Namespace: fleet.Namespace{Name: name}})
	}
	n, _ := h.store.View().Node(nodeID)
	able := *n
	able.Attributes = map[string]string{fleet.VolumePluginAttribute: "1.0.0"}
	mustApply(t, h, state.NodeRegister{Node: able, Now: 2})
	mustApply(t, h, state.SessionOpen{NodeID: nodeID, Session: 1, Instance: "i", BootID: "b", Hub: "hub1", EvalSeed: "s", Now: 3})
	return h, c
}

// writerOnly is a capability, which Nomad's client needs in each volume.
var writerOnly = []*nomad.HostVolumeCapability{{AttachmentMode: nomad.HostVolumeAttachmentModeFilesystem, AccessMode: nomad.HostVolumeAccessModeSingleNodeWriter}}

// TestVolumeWarnings creates a volume with a path, which the plugin chooses, and makes volumes of a node that is away.
func TestVolumeWarnings(t *testing.T) {
	h, c := mustServeVolumes(t)
	const ignored, away = "HostPath is ignored", "the volume is created when it is back"
	create := func(vol nomad.HostVolume) *nomad.HostVolumeCreateResponse {
		t.Helper()
		vol.RequestedCapabilities = writerOnly
		made, _, err := c.HostVolumes().Create(&nomad.HostVolumeCreateRequest{Volume: &vol}, nil)
		mustSucceed(t, err)
		return made
	}
	if made := create(nomad.HostVolume{Name: "a"}); made.Warnings != "" {
		t.Errorf("a plain volume: %q", made.Warnings)
	}
	made := create(nomad.HostVolume{Name: "b", HostPath: "/srv/b"})
	if !strings.HasPrefix(made.Warnings, ignored) || made.Volume.HostPath != "" {
		t.Errorf("a volume with a path: %q, at %q", made.Warnings, made.Volume.HostPath)
	}
	changed := *made.Volume
	changed.HostPath = "/srv/c"
	_, _, err := c.HostVolumes().Create(&nomad.HostVolumeCreateRequest{Volume: &changed}, nil)
	mustFailWith(t, err, "409", "path cannot change")
	n, _ := h.store.View().Node(nodeID)
	mustApply(t, h, state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: nodeID, Epoch: n.Epoch}}, EvalSeed: "s", Now: 5})
	if made := create(nomad.HostVolume{Name: "c", HostPath: "/srv/c", NodeID: string(nodeID)}); !strings.HasPrefix(made.Warnings, ignored) || !strings.HasSuffix(made.Warnings, away) {
		t.Errorf("a volume of a node that is away: %q", made.Warnings)
	}
	registered, _, err := c.HostVolumes().Register(&nomad.HostVolumeRegisterRequest{Volume: &nomad.HostVolume{
		Name: "d", HostPath: "/srv/d", NodeID: string(nodeID), RequestedCapabilities: writerOnly,
	}}, nil)
	if err != nil || !strings.HasSuffix(registered.Warnings, away) || registered.Volume.HostPath != "/srv/d" {
		t.Errorf("a registered volume of a node that is away: %+v, %v", registered, err)
	}
}

// TestVolumeNamespace creates volumes whose namespace the request, the volume or both name.
func TestVolumeNamespace(t *testing.T) {
	_, c := mustServeVolumes(t)
	for _, test := range []struct{ name, ofRequest, ofVolume, want string }{
		{"a", "", "", "default"}, {"b", "red", "", "red"}, {"c", "", "blue", "blue"}, {"d", "blue", "blue", "blue"},
		{"e", "default", "blue", "blue"}, {"f", "red", "blue", ""}, {"g", "red", "default", ""},
	} {
		made, _, err := c.HostVolumes().Create(&nomad.HostVolumeCreateRequest{
			Volume: &nomad.HostVolume{Name: test.name, Namespace: test.ofVolume, RequestedCapabilities: writerOnly},
		}, &nomad.WriteOptions{Namespace: test.ofRequest})
		switch {
		case test.want == "":
			mustFailWith(t, err, "400", "the volume has the namespace")
		case err != nil || made.Volume.Namespace != test.want:
			t.Errorf("%+v: %+v, %v", test, made, err)
		}
	}
}

// TestLockThatNothingAcquires stores a variable with a lock in the body, which only lock-acquire would make.
func TestLockThatNothingAcquires(t *testing.T) {
	_, srv, _ := mustServe(t)
	const body = `{"Items": {"a": "b"}, "Lock": {"TTL": "1m"}}`
	if status, said := mustAnswer(t, http.MethodPut, srv.URL+"/v1/var/settings", body); status != http.StatusBadRequest || !strings.Contains(said, "the request acquires none") {
		t.Errorf("a store: %d %s", status, said)
	}
	if status, said := mustAnswer(t, http.MethodPut, srv.URL+"/v1/var/settings?lock-acquire", body); status != http.StatusOK {
		t.Errorf("an acquisition: %d %s", status, said)
	}
}
