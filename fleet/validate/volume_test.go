package validate_test

import (
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/validate"
)

// TestHostVolumeModes: access_mode and attachment_mode of host volumes, and args of networks without plugins.
func TestHostVolumeModes(t *testing.T) {
	for name, tc := range map[string]struct {
		volume fleet.VolumeRequest
		want   string // of the problem; "": none
	}{
		"nothing":           {fleet.VolumeRequest{}, ""},
		"a writer":          {fleet.VolumeRequest{AccessMode: "single-node-writer", AttachmentMode: "file-system"}, ""},
		"a reader":          {fleet.VolumeRequest{AccessMode: "single-node-reader-only", ReadOnly: true}, ""},
		"a reader that may": {fleet.VolumeRequest{AccessMode: "single-node-reader-only"}, "needs read_only"},
		"of many nodes":     {fleet.VolumeRequest{AccessMode: "multi-node-multi-writer"}, "unknown access_mode"},
		"a device":          {fleet.VolumeRequest{AttachmentMode: "block-device"}, "attachment_mode block-device"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.volume.Type, tc.volume.Name, tc.volume.Source = fleet.VolumeHost, "v", "data"
			j := job()
			j.TaskGroups[0].Volumes = map[string]fleet.VolumeRequest{"v": tc.volume}
			got := strings.Join(validate.Job(j).Lines(), "\n")
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	j := job()
	j.TaskGroups[0].Networks = []fleet.NetworkResource{{Mode: fleet.NetworkHost, CNI: &fleet.CNIConfig{Args: map[string]string{"a": "b"}}}}
	if got := strings.Join(validate.Job(j).Lines(), "\n"); !strings.Contains(got, "no plugins") {
		t.Errorf("%q", got)
	}
}
