package supervised_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"skerry/drivers/supervised"
)

func TestRotator(t *testing.T) {
	dir := t.TempDir()
	w := supervised.Rotator(dir, "web.stdout", 3, 10)
	var all string
	for i := range 8 {
		line := fmt.Sprintf("line %d\n", i)
		mustWrite(t, w, line)
		all += line
	}
	mustClose(t, w)
	wantFiles(t, dir, map[string]string{"web.stdout.3": all[30:40], "web.stdout.4": all[40:50], "web.stdout.5": all[50:56]})

	// A rotator continues where the previous one of the task ended.
	w = supervised.Rotator(dir, "web.stdout", 2, 10)
	mustWrite(t, w, "again")
	mustClose(t, w)
	wantFiles(t, dir, map[string]string{"web.stdout.5": all[50:56] + "agai", "web.stdout.6": "n"})
}

// A full disk never blocks a task's output, and the lost bytes are counted.
func TestRotatorLosesAndCounts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	w := supervised.Rotator(dir, "web.stderr", 2, 100)
	mustWrite(t, w, "12345")
	mustWrite(t, w, "67")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, w, "and on\n")
	mustClose(t, w)
	wantFiles(t, dir, map[string]string{"web.stderr.0": "[7 bytes were lost: the disk did not take them]\nand on\n"})
}

func mustWrite(tb testing.TB, w interface{ Write([]byte) (int, error) }, s string) {
	tb.Helper()
	if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
		tb.Fatalf("Write: %d, %v", n, err)
	}
}

func mustClose(tb testing.TB, c interface{ Close() error }) {
	tb.Helper()
	if err := c.Close(); err != nil {
		tb.Fatal(err)
	}
}

func wantFiles(tb testing.TB, dir string, want map[string]string) {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			tb.Fatal(err)
		}
		if w, ok := want[e.Name()]; !ok || w != string(b) {
			tb.Errorf("%s: %q, want %q (%v)", e.Name(), b, w, ok)
		}
	}
	if len(entries) != len(want) {
		tb.Errorf("%d files, want %d", len(entries), len(want))
	}
}

func TestEnvironment(t *testing.T) {
	agent := []string{
		"PATH=/bin", "HOME=/root", "SKERRY_ADDR=x", "NOMAD_TOKEN=x", "VAULT_TOKEN=x", "AWS_REGION=here",
		"AWS_SECRET_ACCESS_KEY=x", "GOMAXPROCS=1", "NOTIFY_SOCKET=x", "=C:=x", "VAULT_TOKEN_NAME=not it",
	}
	got := supervised.Environment(agent, map[string]string{"HOME": "/home/task", "NOMAD_TASK_NAME": "web"})
	want := []string{"AWS_REGION=here", "HOME=/home/task", "NOMAD_TASK_NAME=web", "PATH=/bin", "VAULT_TOKEN_NAME=not it"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestResolve(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{
		filepath.Join(dir, "local"): 0o755, filepath.Join(bin, "tool"): 0o755, filepath.Join(bin, "local"): 0o755,
		filepath.Join(bin, "text"): 0o644,
	} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=relative:" + bin}
	for command, want := range map[string]string{
		"local": filepath.Join(dir, "local"), "./local": filepath.Join(dir, "local"),
		"tool": filepath.Join(bin, "tool"), filepath.Join(bin, "tool"): filepath.Join(bin, "tool"),
	} {
		if got, err := supervised.FindProgram(command, dir, env); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", command, got, err, want)
		}
	}
	for _, command := range []string{"text", "./tool", "missing", filepath.Join(bin, "text"), "."} {
		if got, err := supervised.FindProgram(command, dir, env); err == nil {
			t.Errorf("%s: %q, want an error", command, got)
		}
	}
}

func FuzzRecords(f *testing.F) {
	f.Add("spec", []byte(`{"version":1,"task_id":"a/b/1","path":"/bin/sh","argv":["sh"],"log_name":"b","log_files":1,"log_file_bytes":1}`))
	f.Add("task", []byte(`{"version":1,"boot_id":"x","pid":7,"start":9,"device":1,"inode":2}`))
	f.Add("task", []byte(`{"version":1,"pid":-1,"start":9}`))
	f.Add("exit", []byte(`{"version":1,"code":-1,"error":"lost"}`))
	f.Add("exit", []byte(`{"version":2}`))
	f.Add("identity", []byte(`{"pid":1e99}`))
	f.Fuzz(func(t *testing.T, name string, b []byte) {
		number, err := supervised.Decode(name, b)
		if err == nil && (name == "task" && number <= 1 || name == "spec" && number < 1) {
			t.Errorf("%s: accepted %q", name, b)
		}
	})
}
