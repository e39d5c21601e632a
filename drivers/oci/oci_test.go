package oci_test

import (
	"encoding/json"
	"slices"
	"testing"

	"skerry/drivers/oci"
	"skerry/drivers/options"
	"skerry/fleet"
)

func TestTaskCapabilities(t *testing.T) {
	all, _ := oci.TaskCapabilities(nil, nil)
	for name, tc := range map[string]struct {
		add, drop []string
		has       string
		count     int
		added     []string
	}{
		"default":      {nil, nil, "CAP_CHOWN", len(all), nil},
		"added":        {[]string{"net_bind_service"}, nil, "CAP_NET_BIND_SERVICE", len(all), []string{"CAP_NET_BIND_SERVICE"}},
		"dropped":      {nil, []string{"CAP_CHOWN", "kill"}, "CAP_SETUID", len(all) - 2, nil},
		"all but one":  {[]string{"kill"}, []string{"all"}, "CAP_KILL", 1, []string{"CAP_KILL"}},
		"everything":   {[]string{"all"}, nil, "CAP_CHOWN", len(all), all},
		"beyond those": {nil, []string{"net_admin"}, "CAP_CHOWN", len(all), nil},
	} {
		bounding, added := oci.TaskCapabilities(tc.add, tc.drop)
		if len(bounding) != tc.count || !slices.Contains(bounding, tc.has) || !slices.Equal(added, tc.added) {
			t.Errorf("%s: %v, added %v", name, bounding, added)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for name, cfg := range map[string]oci.Config{
		"a relative runtime": {Runtime: "crun"},
		"a relative folder":  {Chroot: map[string]string{"bin": "/bin"}},
		"a relative target":  {Chroot: map[string]string{"/bin": "bin"}},
		"the root":           {Chroot: map[string]string{"/": "/"}},
		"the local folder":   {Chroot: map[string]string{"/opt": "/local"}},
		"below the secrets":  {Chroot: map[string]string{"/opt": "/secrets/../secrets/x"}},
		"two at one place":   {Chroot: map[string]string{"/opt": "/srv", "/usr": "/srv/"}},
	} {
		if _, err := oci.New(cfg); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Keys of isolation are read without a panic, and values that are accepted are among those that exist.
func FuzzReadIsolation(f *testing.F) {
	f.Add([]byte(`{"work_dir": "/x", "pid_mode": "host", "ipc_mode": "private", "cap_add": ["kill"], "cap_drop": ["all"], "pids_limit": 5}`))
	f.Add([]byte(`{"work_dir": "x", "pid_mode": "a", "ipc_mode": 1, "cap_add": ["sys_admin"], "cap_drop": "all", "pids_limit": -5}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var config map[string]any
		if json.Unmarshal(b, &config) != nil {
			return
		}
		r := options.Read(config)
		var p oci.Program
		oci.ReadIsolation(r, &p)
		if err := r.Err("test", "hint"); err != nil {
			if fleet.CodeOf(err) != fleet.CodeInvalid {
				t.Errorf("refused with %v", err)
			}
			return
		}
		if p.PIDs < 0 || !slices.Contains([]string{"", "private", "host"}, p.PIDMode) || oci.CheckCapabilities(p.CapAdd, p.CapDrop) != nil {
			t.Errorf("%s: accepted %+v", b, p)
		}
	})
}
