package fleet_test

import (
	"testing"

	"skerry/fleet"
)

func TestDeploymentFails(t *testing.T) {
	version := func(v uint64, hash string, stable bool) *fleet.Job {
		return &fleet.Job{ID: "shop", Version: v, SpecHash: hash, Stable: stable}
	}
	for _, tc := range []struct {
		name     string
		reverts  bool
		versions []*fleet.Job
		want     string
		back     int // the version, -1 for none
	}{
		{"C32", false, []*fleet.Job{version(1, "b", false), version(0, "a", true)}, fleet.DescFailedAllocations, -1},
		{"C34", true, []*fleet.Job{version(1, "b", false), version(0, "a", true)}, fleet.DescFailedAllocations + " - rolling back to job version 0", 0},
		{"C35, C43, I19", true, []*fleet.Job{version(1, "a", false), version(0, "a", true)},
			fleet.DescFailedAllocations + " - not rolling back to stable job version 0 as current job has same specification", -1},
		{"the newest stable one", true, []*fleet.Job{version(3, "d", false), version(2, "c", false), version(1, "b", true), version(0, "a", true)},
			fleet.DescFailedAllocations + " - rolling back to job version 1", 1},
		{"C43: it is the newest stable one itself", true, []*fleet.Job{version(1, "b", true), version(0, "a", true)},
			fleet.DescFailedAllocations + " - not rolling back to stable job version 1 as current job has same specification", -1},
		{"none is stable", true, []*fleet.Job{version(1, "b", false), version(0, "a", false)},
			fleet.DescFailedAllocations + " - no stable job version to auto revert to", -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := fleet.Deployment{
				ID: "d", JobID: "shop", JobVersion: tc.versions[0].Version, Status: fleet.DeploymentRunning,
				TaskGroups: map[string]fleet.DeploymentState{"web": {AutoRevert: tc.reverts}, "db": {}},
			}
			u, back := d.Fail(tc.versions, fleet.DescFailedAllocations)
			if u.Status != fleet.DeploymentFailed || u.StatusDescription != tc.want {
				t.Errorf("%+v, want %q", u, tc.want)
			}
			if (back == nil) != (tc.back < 0) || back != nil && back.Version != uint64(tc.back) {
				t.Errorf("back to %+v, want %d", back, tc.back)
			}
		})
	}
}
