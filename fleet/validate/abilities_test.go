package validate_test

import (
	"slices"
	"testing"

	"skerry/fleet/validate"
)

// TestDriverLimits: a job that asks a driver for what it can do on no machine, or for ports that tasks of a group
// cannot have side by side, is refused, and no other.
func TestDriverLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		group string
		want  []string
	}{
		"a volume of raw_exec": {`{"Tasks": [{"Name": "t", "Driver": "raw_exec", "VolumeMounts": [{"Volume": "v", "Destination": "/v"}]}]}`,
			[]string{`TaskGroups[0].Tasks[0].VolumeMounts: driver "raw_exec" cannot mount the volumes of task "t"`}},
		"a volume of java": {`{"Tasks": [{"Name": "t", "Driver": "java", "VolumeMounts": [{"Volume": "v", "Destination": "/v"}]}]}`, nil},
		"a bridge of qemu and of docker": {`{"Networks": [{"Mode": "bridge"}], "Tasks": [{"Name": "c", "Driver": "docker"}, {"Name": "t", "Driver": "qemu"}]}`,
			[]string{`TaskGroups[0].Networks[0].Mode: driver "qemu" cannot run task "t" in a network of mode "bridge"`}},
		"a plugin's network of wasm": {`{"Networks": [{"Mode": "cni/x"}], "Tasks": [{"Name": "t", "Driver": "wasm"}]}`,
			[]string{`TaskGroups[0].Networks[0].Mode: driver "wasm" cannot run task "t" in a network of mode "cni/x"`}},
		"a host name of raw_exec": {`{"Networks": [{"Mode": "bridge", "Hostname": "h"}], "Tasks": [{"Name": "t", "Driver": "raw_exec"}]}`,
			[]string{`TaskGroups[0].Networks[0]: driver "raw_exec" cannot give task "t" a hostname or dns`}},
		"name servers of exec":      {`{"Networks": [{"Mode": "none", "DNS": {"Servers": ["192.0.2.1"]}}], "Tasks": [{"Name": "t", "Driver": "exec"}]}`, nil},
		"a network that nobody has": {`{"Networks": [{"Mode": "x"}], "Tasks": [{"Name": "t", "Driver": "qemu"}]}`, nil},
		"ports of tasks": {`{"Networks": [{"Mode": "host", "DynamicPorts": [{"Label": "a"}]}], "Tasks": [
			{"Name": "t", "Resources": {"Networks": [{"DynamicPorts": [{"Label": "b"}, {"Label": "c"}], "ReservedPorts": [{"Label": "d", "Value": 80}]}]}}]}`, nil},
		"ports of two tasks": {`{"Networks": [{"Mode": "host", "DynamicPorts": [{"Label": "a"}]}], "Tasks": [
			{"Name": "t", "Resources": {"Networks": [{"DynamicPorts": [{"Label": "a"}], "ReservedPorts": [{"Label": "d", "Value": 80}]}]}},
			{"Name": "u", "Resources": {"Networks": [{"ReservedPorts": [{"Label": "e", "Value": 80}]}]}}]}`,
			[]string{`TaskGroups[0].Tasks[0].Resources.Networks[0]: port "a" of task t is also one of the group`,
				`TaskGroups[0].Tasks[1].Resources.Networks[0]: port 80 of task u is also one of task t`}},
		"ports of a task in a bridge": {`{"Networks": [{"Mode": "bridge"}], "Tasks": [{"Name": "t", "Resources": {"Networks": [{"DynamicPorts": [{"Label": "a"}]}]}}]}`,
			[]string{`TaskGroups[0].Tasks[0].Resources.Networks[0]: task "t" has ports of its own, and its group has a network of mode "bridge"`}},
		"a driver that nobody has": {`{"Networks": [{"Mode": "bridge"}], "Tasks": [{"Name": "t", "Driver": "abacus", "VolumeMounts": [{}]}]}`, nil},
	} {
		job, _ := validate.DecodeJob([]byte(`{"ID": "j", "TaskGroups": [` + tc.group + `]}`))
		var got []string
		for _, p := range validate.Unsupported(job) {
			got = append(got, p.Path+": "+p.Message)
			if p.Hint == "" {
				t.Errorf("%s: no hint", name)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
