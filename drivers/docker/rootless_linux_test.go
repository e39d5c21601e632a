package docker_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// nobody is the id of the user of TestRootlessPodman and of its group, which every machine has.
const nobody = 65534

// TestRootlessPodman runs the conformance suite with a Podman of another user: this program starts again as that user.
func TestRootlessPodman(t *testing.T) {
	for _, d := range daemons {
		if d.name == "podman" && d.absent != "" {
			t.Skipf("no podman: %s", d.absent)
		}
	}
	if testing.Short() || os.Getuid() != 0 {
		t.Skip("make test-drivers runs it as root")
	}
	dir, err := os.MkdirTemp("", "sk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	run := filepath.Join(dir, "r")
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, run} {
		if err := os.Chown(d, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestConformance$/^podman$", "-test.v")
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "XDG_RUNTIME_DIR=" + run, "TMPDIR=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Setsid: true}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestConformance/podman") {
		t.Errorf("%v\n%s", err, out)
	}
}
