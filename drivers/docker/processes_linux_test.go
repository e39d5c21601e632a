package docker

import (
	"strings"
	"testing"
)

// TestHasCgroupOf: the cgroups of a container are those of each daemon and version, and nobody else's.
func TestHasCgroupOf(t *testing.T) {
	id := strings.Repeat("0a", 32)
	for cgroups, want := range map[string]bool{
		"0::/docker/" + id + "\n":                                                       true,
		"0::/system.slice/docker-" + id + ".scope\n":                                    true,
		"12:memory:/outer/docker/" + id + "/nested\n0::/init.scope\n":                   true,
		"0::/machine.slice/libpod-" + id + ".scope/container\n":                         true,
		"3:pids:/libpod_parent/libpod-" + id + "\n":                                     true,
		"0::/machine.slice/libpod-conmon-" + id + ".scope\n":                            false,
		"0::/system.slice/" + id + ".service\n":                                         false,
		"0::/system.slice/" + id + "-startup-12.service\n":                              false,
		"0::/docker/" + strings.Repeat("0b", 32) + "\n0::/user.slice/x" + id[1:] + "\n": false,
		"": false,
	} {
		if hasCgroupOf(cgroups, id) != want || hasCgroupOf(cgroups, "") {
			t.Errorf("%q: %v, want %v", cgroups, !want, want)
		}
	}
}
