package disk_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"skerry/chaos/disk"
)

const diskSize = 64 << 20

// mustDisk makes a disk; without root, it skips the test.
func mustDisk(tb testing.TB) (d *disk.Disk, dir string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("only root mounts file systems")
	}
	dir = filepath.Join(tb.TempDir(), "disk")
	d, err := disk.Make(dir+".img", dir, diskSize)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Error(err)
		}
	})
	return d, dir
}

func killNothing() error { return nil }

func mustWrite(tb testing.TB, path, text string, sync bool) {
	tb.Helper()
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		tb.Fatal(err)
	}
	if sync {
		if err := f.Sync(); err != nil {
			tb.Fatal(err)
		}
	}
}

// mustCopyMounts starts a process in another mount namespace, which has a copy of all mounts, until end.
func mustCopyMounts(tb testing.TB) (end func()) {
	tb.Helper()
	holder := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", "echo && exec sleep 600")
	holder.Dir = "/"
	said, err := holder.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		tb.Fatal(err)
	}
	if _, err := said.Read(make([]byte, 1)); err != nil { // it has its copy now
		tb.Fatal(err)
	}
	return func() {
		_ = holder.Process.Kill()
		_ = holder.Wait() // the kill is its error
	}
}

// TestWithPowerWaitsForAPowerCut: what changes files of a disk does not meet a file system that was shut down.
func TestWithPowerWaitsForAPowerCut(t *testing.T) {
	d, dir := mustDisk(t)
	mustWrite(t, filepath.Join(dir, "journal"), "rows", true)
	cutting, changed := make(chan struct{}), make(chan error, 1)
	go func() {
		<-cutting
		changed <- d.WithPower(func() error {
			return os.WriteFile(filepath.Join(dir, "journal"), []byte("damaged"), 0o600)
		})
	}()
	if err := d.PowerCut(func() error {
		close(cutting)
		select {
		case err := <-changed:
			t.Errorf("changed during the power cut: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-changed; err != nil {
		t.Error(err)
	}
}

// TestPowerCutBesideACopyOfItsMount has a process with a copy of all mounts, as a container has that is being made.
func TestPowerCutBesideACopyOfItsMount(t *testing.T) {
	d, dir := mustDisk(t)
	mustWrite(t, filepath.Join(dir, "synced"), "synced", true)
	defer mustCopyMounts(t)()
	if err := d.PowerCut(killNothing); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "synced")); err != nil || string(b) != "synced" {
		t.Errorf("a synced file holds %q, %v", b, err)
	}
}

// TestPowerCutForgets writes with and without fsync, in both orders, cuts the
// power, and looks.
func TestPowerCutForgets(t *testing.T) {
	d, dir := mustDisk(t)
	for range 3 {
		mustWrite(t, filepath.Join(dir, "early"), "not synced", false)
		mustWrite(t, filepath.Join(dir, "synced"), "synced", true)
		mustWrite(t, filepath.Join(dir, "late"), "not synced", false)
		if err := d.PowerCut(killNothing); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "synced")); err != nil || string(b) != "synced" {
			t.Errorf("a synced file holds %q, %v", b, err)
		}
		// The early one's name may have been made durable with the synced one, its
		// content not.
		for _, name := range []string{"early", "late"} {
			if b, _ := os.ReadFile(filepath.Join(dir, name)); len(b) > 0 {
				t.Errorf("%s, which was not synced, holds %q", name, b)
			}
		}
		for _, name := range []string{"early", "late", "synced"} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
}

// TestPowerCutWaitsForOtherNamespaces cuts the power of a disk of which another mount namespace has a copy, as a
// container that starts has for a moment.
func TestPowerCutWaitsForOtherNamespaces(t *testing.T) {
	d, dir := mustDisk(t)
	mustWrite(t, filepath.Join(dir, "kept"), "text", true)
	end := mustCopyMounts(t)
	over := make(chan struct{})
	go func() {
		defer close(over)
		// It holds the disk until this sees the file system that was shut down.
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for give := time.Now().Add(time.Minute); time.Now().Before(give); <-tick.C {
			if _, err := os.ReadFile(filepath.Join(dir, "kept")); errors.Is(err, syscall.EIO) {
				break
			}
		}
		end()
	}()
	err := d.PowerCut(killNothing)
	<-over
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "kept")); err != nil || string(b) != "text" {
		t.Errorf("after the power cut the disk has %q, %v", b, err)
	}
}

// TestSyncedIsKept syncs the disk as a whole.
func TestSyncedIsKept(t *testing.T) {
	d, dir := mustDisk(t)
	mustWrite(t, filepath.Join(dir, "file"), "synced with the others", false)
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := d.PowerCut(killNothing); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(b) != "synced with the others" {
		t.Errorf("it holds %q, %v", b, err)
	}
}

// TestPowerCutFindsADiskThatRemembers syncs behind the disk's back.
func TestPowerCutFindsADiskThatRemembers(t *testing.T) {
	d, _ := mustDisk(t)
	err := d.PowerCut(func() error { syscall.Sync(); return nil })
	if !errors.Is(err, disk.ErrRemembers) {
		t.Errorf("a disk that was synced passed: %v", err)
	}
}

func TestFullDisk(t *testing.T) {
	d, dir := mustDisk(t)
	full, err := d.Fill()
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(full, syscall.ENOSPC) {
		t.Errorf("it was filled until: %v", full)
	}
	if err := os.WriteFile(filepath.Join(dir, "more"), make([]byte, 8192), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writing on a full disk: %v", err)
	}
	if err := d.Empty(); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(dir, "more"), "fits again", true)
}

func TestStutterStallsWrites(t *testing.T) {
	d, dir := mustDisk(t)
	const frozen = 300 * time.Millisecond
	if err := d.Freeze(); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan time.Duration)
	began := time.Now()
	go func() {
		_ = os.WriteFile(filepath.Join(dir, "slow"), []byte("slow"), 0o600)
		wrote <- time.Since(began)
	}()
	select {
	case <-wrote:
		t.Error("a frozen disk took a write")
	case <-time.After(frozen):
		if err := d.Thaw(); err != nil {
			t.Fatal(err)
		}
		<-wrote
	}
	times, err := d.Stutter(&endAfter{Context: t.Context(), asked: 3}, time.Millisecond, time.Millisecond)
	if err != nil || times != 3 {
		t.Errorf("it froze %d times: %v", times, err)
	}
}

// endAfter is a context that has ended once Err was asked a number of times.
type endAfter struct {
	context.Context
	asked int
}

func (c *endAfter) Err() error {
	if c.asked == 0 {
		return context.Canceled
	}
	c.asked--
	return c.Context.Err()
}
