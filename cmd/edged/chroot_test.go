package edged_test

import (
	"path/filepath"
	"strings"
	"testing"

	"skerry/fleet"
)

// TestExecChroot: a wrong --exec-chroot ends the start of the agent with an error that has the value. A folder that the machine
// lacks may come later, so it ends nothing but makes the drivers unhealthy.
func TestExecChroot(t *testing.T) {
	for _, tc := range []struct{ flags, want string }{
		{"--exec-chroot=opt", `"opt"`},
		{"--exec-chroot=/opt=srv", `"srv"`},
		{"--exec-chroot=/opt=", `"/opt="`},
		{"--exec-chroot==/opt", `"=/opt"`},
		{"--exec-chroot=/opt=/", `at "/"`},
		{"--exec-chroot=/opt=/local", `at "/local"`},
		{"--exec-chroot=/opt=/a --exec-chroot=/opt=/b", "at /a already"},
		{"--exec-chroot=/opt=/a --exec-chroot=/srv=/a", "it would hide /opt"},
	} {
		if _, err := mustDescribe(t, strings.Fields(tc.flags)...); fleet.CodeOf(err) != fleet.CodeInvalid || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want it refused with %q", tc.flags, err, tc.want)
		}
	}
	if n, err := mustDescribe(t); err != nil || !n.Drivers["exec"].Healthy {
		t.Skipf("no tasks can be isolated here: %+v, %v", n.Drivers["exec"], err)
	}
	absent := filepath.Join(t.TempDir(), "absent")
	for _, value := range []string{absent, absent + "=/opt"} {
		n, err := mustDescribe(t, "--exec-chroot=/usr", "--exec-chroot="+value)
		if d := n.Drivers["exec"]; err != nil || d.Healthy || !strings.Contains(d.HealthDescription, absent) {
			t.Errorf("--exec-chroot %s: %+v, %v, want the driver unhealthy because of the folder", value, d, err)
		}
	}
}
