package exec_test

import (
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skerry/drivers"
	"skerry/drivers/exec"
	"skerry/drivers/oci"
	"skerry/drivers/oci/layouttest"
)

// mustLayout writes an image with busybox into the task's folder local/app.
func mustLayout(tb testing.TB, cfg drivers.TaskConfig) {
	tb.Helper()
	path, err := osexec.LookPath("busybox")
	if err != nil {
		tb.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	lower := []layouttest.File{
		{Name: "bin/busybox", Content: string(program)}, {Name: "etc/passwd", Content: "root:x:0:0::/:/bin/sh\nshop:x:1234:1235::/:/bin/sh\n", Mode: 0o644},
		{Name: "etc/old", Content: "1"}, {Name: "srv/", Mode: 0o777},
	}
	for _, name := range []string{"sh", "cat", "echo", "id", "ls", "pwd", "env", "sleep"} {
		lower = append(lower, layouttest.File{Name: "bin/" + name, Link: "busybox"})
	}
	i := layouttest.Image{Config: map[string]any{
		"Env": []string{"PATH=/bin", "GREETING=hello", "SHOP=none"}, "WorkingDir": "/srv", "User": "shop",
		"Entrypoint": []string{"sh", "-c"}, "Cmd": []string{"echo from the image"},
	}}
	for _, files := range [][]layouttest.File{lower, {{Name: "etc/.wh.old"}, {Name: "etc/new", Content: "2"}}} {
		layer, err := layouttest.Layer(files...)
		if err != nil {
			tb.Fatal(err)
		}
		i.Layers = append(i.Layers, layer)
	}
	dir := filepath.Join(cfg.LocalDir, "app")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	if _, err := layouttest.Write(dir, i); err != nil {
		tb.Fatal(err)
	}
}

// mustRunImage runs a task with an image to its end and returns its output.
func mustRunImage(t *testing.T, runtime, images string, cfg drivers.TaskConfig) string {
	t.Helper()
	d, err := exec.New(oci.DriverConfig{Log: slog.New(slog.DiscardHandler), Isolation: oci.Config{Runtime: runtime, Images: images}})
	if err != nil {
		t.Fatal(err)
	}
	h, err := d.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	task, err := d.Recover(t.Context(), cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	exit, err := task.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, stream := range []string{"stdout", "stderr"} {
		b, err := os.ReadFile(filepath.Join(cfg.LogDir, cfg.Task+"."+stream+".0"))
		if err == nil {
			out.Write(b)
		}
	}
	if !exit.Success() {
		t.Errorf("%+v, output %q", exit, out.String())
	}
	return out.String()
}

// runtimesHere returns the OCI runtimes of this machine.
func runtimesHere() (paths []string) {
	for _, name := range []string{"runc", "crun"} {
		if path, err := osexec.LookPath(name); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// TestImage runs tasks on the root of an image, with the image's environment, folder, user and program unless the task
// names its own. What one attempt writes is gone in the next, and the image stays as it is.
func TestImage(t *testing.T) {
	mustHaveRuntime(t)
	for _, runtime := range runtimesHere() {
		t.Run(filepath.Base(runtime), func(t *testing.T) { testImage(t, runtime) })
	}
}

func testImage(t *testing.T, runtime string) {
	images := filepath.Join(t.TempDir(), "images")
	env := map[string]string{"SHOP": "19"}
	const script = `pwd; id -u; id -g; echo $GREETING $SHOP $PATH
for f in /etc/new /etc/old /usr /local/app /srv/x; do [ -e $f ] && echo $f; done
echo x > /srv/x && cat /srv/x; echo y > /alloc/data/y`
	const seen = "/srv\n1234\n1235\nhello 19 /bin\n/etc/new\n/local/app\nx\n"
	for want, configs := range map[string][]map[string]any{
		"from the image\n": {{"image": "local/app"}},
		seen:               {{"image": "/local/app", "args": []any{script}}, {"image": "local/app", "command": "/bin/sh", "args": []any{"-c", script}}},
	} {
		for _, config := range configs {
			cfg := newTask(t, "")
			mustLayout(t, cfg)
			cfg.Env, cfg.Config = env, config
			if out := mustRunImage(t, runtime, images, cfg); out != want {
				t.Errorf("%v: output %q, want %q", config, out, want)
			}
			if b, err := os.ReadFile(filepath.Join(cfg.AllocDir, "data", "y")); want == seen && (err != nil || string(b) != "y\n") {
				t.Errorf("the allocation's folder: %q, %v", b, err)
			}
		}
	}
	changed, err := filepath.Glob(filepath.Join(images, "*", "root", "srv", "*"))
	if err != nil || len(changed) != 0 {
		t.Errorf("tasks changed the image: %q, %v", changed, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), filepath.Dir(images)) {
		t.Errorf("a mount is left: %v", err)
	}
}

// TestImageWithoutAnOverlay: a task still runs, and its root is read-only. The path of the image is one that overlayfs
// does not take.
func TestImageWithoutAnOverlay(t *testing.T) {
	mustHaveRuntime(t)
	for _, runtime := range runtimesHere() {
		cfg := newTask(t, "")
		mustLayout(t, cfg)
		cfg.User = "root"
		cfg.Config = map[string]any{"image": "local/app", "args": []any{"cat /etc/new; (echo x > /srv/x) 2>/dev/null || echo read-only; echo z > /local/z && cat /local/z"}}
		if out := mustRunImage(t, runtime, filepath.Join(t.TempDir(), "no,overlay"), cfg); out != "2read-only\nz\n" {
			t.Errorf("%s: output %q", runtime, out)
		}
	}
}

// TestImageAfterAReboot: neither a network nor the unpacked image is needed, and another user may be named.
func TestImageAfterAReboot(t *testing.T) {
	mustHaveRuntime(t)
	images := filepath.Join(t.TempDir(), "images")
	for range 2 {
		cfg := newTask(t, "")
		mustLayout(t, cfg)
		cfg.User = "0"
		cfg.Config = map[string]any{"image": "local/app", "command": "id", "args": []any{"-u"}, "work_dir": "/"}
		if out := mustRunImage(t, "", images, cfg); out != "0\n" {
			t.Errorf("output %q", out)
		}
		if err := os.RemoveAll(images); err != nil {
			t.Fatal(err)
		}
	}
}
