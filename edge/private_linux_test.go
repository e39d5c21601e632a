package edge_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"skerry/drivers/rawexec"
	"skerry/edge/local"
	"skerry/fleet"
)

// A running task of another user keeps its folders when the agent starts again; folders of other allocations that an
// earlier release left open are closed.
func TestUsersKeepTheirFoldersOverARestart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs tasks as other users")
	}
	if err := asNobody("test", "-x", os.TempDir()).Run(); err != nil {
		t.Skipf("other users cannot enter %s", os.TempDir())
	}
	dir := mustEnrolled(t)
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // the operator's folder
		t.Fatal(err)
	}
	mustWant(t, dir, fleet.Task{
		Name: "t", Driver: rawexec.Name, User: "nobody", KillTimeout: 5 * time.Second,
		Config: map[string]any{"command": "/bin/sleep", "args": []any{"600"}},
	}, shop)
	p := mustSpawn(t, dir, "", 0)
	if !<-p.up {
		t.Fatal("the task does not run")
	}
	mustLetNobodyWrite(t, dir)
	if err := p.closeAndWait(); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"allocs": 0o755, "allocs/old/alloc/data": 0o755, "allocs/" + string(shop): 0o755} {
		if err := os.MkdirAll(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}

	p = mustSpawn(t, dir, "", 0)
	if !<-p.up {
		t.Fatal("the agent does not find its task")
	}
	mustLetNobodyWrite(t, dir)
	for name, want := range map[string]os.FileMode{
		"allocs": 0o711, "allocs/old": 0o700, "allocs/old/alloc": 0o700,
		"allocs/" + string(shop): 0o711, "allocs/" + string(shop) + "/alloc": 0o755, "allocs/" + string(shop) + "/alloc/logs": 0o700,
	} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	c := local.NewClient(filepath.Join(dir, "local.sock"))
	if err := c.Stop(t.Context(), local.StopRequest{Alloc: shop, MayReturn: true}); err != nil {
		t.Error(err)
	}
	mustReachStatus(t, &runningEdge{Client: c}, "stopped", func(s local.Status) bool { return s.Allocs[0].ClientStatus == fleet.ClientComplete })
	if err := p.closeAndWait(); err != nil {
		t.Error(err)
	}
}

// mustLetNobodyWrite checks that the user nobody may write to the folders of its task in the allocation shop.
func mustLetNobodyWrite(t *testing.T, dir string) {
	t.Helper()
	for _, folder := range []string{"alloc/data", "alloc/tmp", "t/local"} {
		if err := asNobody("test", "-w", filepath.Join(dir, "allocs", string(shop), folder)).Run(); err != nil {
			t.Errorf("nobody cannot write to %s: %v", folder, err)
		}
	}
}

// asNobody returns a command that the user nobody runs.
func asNobody(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}
