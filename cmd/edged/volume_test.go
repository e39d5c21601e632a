package edged_test

import (
	"maps"
	"testing"

	"skerry/fleet"
)

func TestHostVolumes(t *testing.T) {
	n, err := mustDescribe(t, "--host-volume=data=/srv/data", "--host-volume=maps[0]=/srv/maps:ro")
	want := map[string]fleet.HostVolume{"data": {Path: "/srv/data"}, "maps[0]": {Path: "/srv/maps", ReadOnly: true}}
	if err != nil || !maps.Equal(n.HostVolumes, want) {
		t.Errorf("%+v, %v", n.HostVolumes, err)
	}
	for _, bad := range []string{"data", "=/srv", "a b=/srv", "data=srv", "data=", "data=/srv/../etc", "data=/srv/:ro"} {
		if _, err := mustDescribe(t, "--host-volume="+bad); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := mustDescribe(t, "--host-volume=data=/srv", "--host-volume=data=/mnt"); fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Errorf("twice: %v", err)
	}
}
