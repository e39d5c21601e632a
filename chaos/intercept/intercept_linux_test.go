package intercept_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"skerry/chaos/intercept"
	"skerry/cmd/edged"
	"skerry/drivers/builtin"
)

// writerEnv makes a process write files into the folder that it names.
const writerEnv = "INTERCEPT_TEST_FOLDER"

func TestMain(m *testing.M) {
	intercept.RunLauncher()
	builtin.RunTaskProcess()
	if folder := os.Getenv(writerEnv); folder != "" {
		if err := writeFiles(folder); err != nil {
			fmt.Println(err)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == edgeCommand {
		cmd := edged.Command(edgeCommand, "0.0.1")
		cmd.SetArgs(os.Args[2:])
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := cmd.ExecuteContext(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const text = "twelve bytes"

// writeFiles makes a file durable in a folder of its own, and gives it another name. A child writes another one.
func writeFiles(folder string) error {
	if os.Getenv("INTERCEPT_TEST_CHILD") != "" {
		return os.WriteFile(filepath.Join(folder, "by-a-child"), []byte(text), 0o600)
	}
	dir := filepath.Join(folder, "new")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".file.*.1000")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, "file")); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(program)
	child.Env = append(os.Environ(), "INTERCEPT_TEST_CHILD=1")
	if out, err := child.CombinedOutput(); err != nil || len(out) > 0 {
		return fmt.Errorf("%w: %s", err, out)
	}
	return exec.Command("/bin/sh", "-c", "echo by another program > "+filepath.Join(folder, "other")).Run()
}

// mustRunWriter runs the program that writes files, and returns its folder and its output.
func mustRunWriter(t *testing.T, handle func(folder string, target func() *intercept.Target, c *intercept.Call) syscall.Errno) (folder, said string) {
	t.Helper()
	folder = t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), writerEnv+"="+folder)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	started := make(chan struct{})
	var target *intercept.Target
	target, err = intercept.Start(cmd, folder, func(c *intercept.Call) syscall.Errno {
		<-started
		return handle(folder, func() *intercept.Target { return target }, c)
	})
	if err != nil {
		t.Fatal(err)
	}
	close(started)
	_ = target.Wait() // a killed one fails
	if err := target.WaitAll(); err != nil {
		t.Fatal(err)
	}
	return folder, out.String()
}

func TestEachWriteIsReported(t *testing.T) {
	var kinds []string
	folder, said := mustRunWriter(t, func(_ string, _ func() *intercept.Target, c *intercept.Call) syscall.Errno {
		kinds = append(kinds, c.Kind())
		return 0
	})
	want := []string{
		"agent mkdir new", "agent open new/.file.NUMBER.NUMBER", "agent write new/.file.NUMBER.NUMBER", "agent fsync new/.file.NUMBER.NUMBER",
		"agent rename new/file", "child open by-a-child", "child write by-a-child",
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("reported are\n%s\nwant\n%s", strings.Join(kinds, "\n"), strings.Join(want, "\n"))
	}
	if said != "" {
		t.Errorf("the program says %s", said)
	}
	for name, want := range map[string]string{"new/file": text, "by-a-child": text, "other": "by another program\n"} {
		if b, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(b) != want {
			t.Errorf("%s holds %q (%v), want %q", name, b, err, want)
		}
	}
}

func TestACallThatFails(t *testing.T) {
	for _, kind := range []string{"agent mkdir new", "agent write new/.file.NUMBER.NUMBER", "agent rename new/file", "child open by-a-child"} {
		_, said := mustRunWriter(t, func(_ string, _ func() *intercept.Target, c *intercept.Call) syscall.Errno {
			if c.Kind() == kind {
				return syscall.ENOSPC
			}
			return 0
		})
		if !strings.Contains(said, syscall.ENOSPC.Error()) {
			t.Errorf("%s fails: the program says %q", kind, said)
		}
	}
}

func TestHalfOfAWrite(t *testing.T) {
	after := 0
	folder, _ := mustRunWriter(t, func(_ string, target func() *intercept.Target, c *intercept.Call) syscall.Errno {
		if c.Name == "fsync" || c.Name == "rename" {
			after++
		}
		if c.Name != "write" {
			return 0
		}
		if err := errors.Join(c.PerformHalf(), syscall.Kill(target().PID(), syscall.SIGKILL)); err != nil {
			t.Error(err)
		}
		return 0
	})
	if after != 0 {
		t.Errorf("a program that was killed made %d more calls", after)
	}
	names, err := filepath.Glob(filepath.Join(folder, "new", ".file.*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("the folder has %v (%v)", names, err)
	}
	if b, err := os.ReadFile(names[0]); err != nil || string(b) != text[:len(text)/2] {
		t.Errorf("the file holds %q (%v), want half of %q", b, err, text)
	}
}

// The disk of a machine that is off is a folder of this machine's own disk, whose processes are not its own.
func TestAMachineThatIsOffHasNoProcesses(t *testing.T) {
	m := &machine{folder: t.TempDir()}
	if err := os.Mkdir(filepath.Join(m.folder, "disk"), 0o700); err != nil {
		t.Fatal(err)
	}
	if pids, err := m.processes(); err != nil || len(pids) > 0 {
		t.Errorf("it has the processes %v (%v)", pids, err)
	}
}
