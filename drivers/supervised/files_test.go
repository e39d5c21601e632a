package supervised_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"skerry/drivers/supervised"
)

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
