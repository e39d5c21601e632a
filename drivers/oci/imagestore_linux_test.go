package oci_test

import (
	"archive/tar"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry/drivers"
	"skerry/drivers/oci"
	"skerry/drivers/oci/layouttest"
)

// imageTask is a task with an OCI layout at local/app.
type imageTask struct {
	cfg    drivers.TaskConfig
	layout string
}

func newImageTask(tb testing.TB, alloc string) imageTask {
	tb.Helper()
	root := tb.TempDir()
	t := imageTask{cfg: drivers.TaskConfig{
		Dir: filepath.Join(root, "web"), LocalDir: filepath.Join(root, "web", "local"), AllocDir: filepath.Join(root, "alloc"),
		StateDir: filepath.Join(root, "tasks", alloc, "web", "1"),
	}}
	t.layout = filepath.Join(t.cfg.LocalDir, "app")
	for _, dir := range []string{t.layout, t.cfg.AllocDir, t.cfg.StateDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	return t
}

func mustLayer(tb testing.TB, files ...layouttest.File) []byte {
	tb.Helper()
	layer, err := layouttest.Layer(files...)
	if err != nil {
		tb.Fatal(err)
	}
	return layer
}

func mustWrite(tb testing.TB, dir string, i layouttest.Image) string {
	tb.Helper()
	digest, err := layouttest.Write(dir, i)
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimPrefix(digest, "sha256:")
}

func mustIsolation(tb testing.TB, images string) *oci.Isolation {
	tb.Helper()
	i, err := oci.New(oci.Config{Images: images})
	if err != nil {
		tb.Fatal(err)
	}
	return i
}

// treeOf lists the files below a folder, with the content of regular ones and the targets of links.
func treeOf(tb testing.TB, dir string) (list []string) {
	tb.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		switch d.Type() {
		case 0:
			b, err := os.ReadFile(path)
			list = append(list, name+"="+string(b))
			return err
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			list = append(list, name+"->"+target)
			return err
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return list
}

// TestLayersAreUnpacked: upper layers replace and hide files of lower ones, wherever a whiteout stands in its layer.
func TestLayersAreUnpacked(t *testing.T) {
	task := newImageTask(t, "a1")
	digest := mustWrite(t, task.layout, layouttest.Image{Layers: [][]byte{
		mustLayer(t, layouttest.File{Name: "./"}, layouttest.File{Name: "/bin/sh", Content: "1"}, layouttest.File{Name: "gone", Content: "1"},
			layouttest.File{Name: "old/a", Content: "1"}, layouttest.File{Name: "was/folder/a", Content: "1"}, layouttest.File{Name: "set", Content: "1", Mode: 0o4755}),
		mustLayer(t, layouttest.File{Name: "old/b", Content: "2"}, layouttest.File{Name: ".wh.gone"}, layouttest.File{Name: "old/.wh..wh..opq"},
			layouttest.File{Name: "was/folder", Content: "2"}, layouttest.File{Name: "bin/ash", Hard: "bin/sh"}, layouttest.File{Name: "lib", Link: "/usr/lib"},
			layouttest.File{Name: "dev/null", Kind: tar.TypeChar}),
	}})
	root, err := mustIsolation(t, filepath.Join(t.TempDir(), "images")).UnpackImage(t.Context(), task.cfg, "local/app")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"bin/ash=1", "bin/sh=1", "lib->/usr/lib", "old/b=2", "set=1", "was/folder=2"}
	if got := treeOf(t, root); !slices.Equal(got, want) || filepath.Base(filepath.Dir(root)) != digest {
		t.Errorf("%s: %q, want %q", root, got, want)
	}
	if info, err := os.Stat(filepath.Join(root, "set")); err != nil || info.Mode() != 0o755 {
		t.Errorf("a setuid program: %v, %v", info.Mode(), err)
	}
}

// TestImagesAreUnpackedOnce, for all allocations, and go when the last one that used them has ended and another image
// comes. A layout that is damaged later does no harm to an unpacked image.
func TestImagesAreUnpackedOnce(t *testing.T) {
	images := filepath.Join(t.TempDir(), "images")
	first, second, third := newImageTask(t, "a1"), newImageTask(t, "a2"), newImageTask(t, "a3")
	one := layouttest.Image{Layers: [][]byte{mustLayer(t, layouttest.File{Name: "a", Content: "1"})}}
	digest := mustWrite(t, first.layout, one)
	mustWrite(t, second.layout, one)
	other := mustWrite(t, third.layout, layouttest.Image{Layers: [][]byte{mustLayer(t, layouttest.File{Name: "b", Content: "2"})}})
	for _, task := range []imageTask{first, second} {
		root, err := mustIsolation(t, images).UnpackImage(t.Context(), task.cfg, "/local/app")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "kept"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(images, digest, "root", "kept")); err != nil {
		t.Error(err)
	}
	if err := os.MkdirAll(filepath.Join(images, ".part", "root"), 0o700); err != nil { // the agent died while it unpacked
		t.Fatal(err)
	}
	end := func(task imageTask) {
		if err := os.RemoveAll(filepath.Dir(filepath.Dir(task.cfg.StateDir))); err != nil {
			t.Fatal(err)
		}
	}
	wantImages := func(when string, want ...string) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(images, other)); err != nil {
			t.Fatal(err)
		}
		if _, err := mustIsolation(t, images).UnpackImage(t.Context(), third.cfg, "local/app"); err != nil {
			t.Fatal(err)
		}
		list, err := os.ReadDir(images)
		var names []string
		for _, f := range list {
			names = append(names, f.Name())
		}
		slices.Sort(want)
		if !slices.Equal(names, want) {
			t.Errorf("%s: %q, %v; want %q", when, names, err, want)
		}
	}
	end(first)
	wantImages("one of two has ended", digest, other)
	end(second)
	wantImages("both have ended", other)
}

// TestBadImagesAreRefused, each with a reason, and leave nothing behind.
func TestBadImagesAreRefused(t *testing.T) {
	layer := func(files ...layouttest.File) layouttest.Image {
		return layouttest.Image{Layers: [][]byte{mustLayer(t, files...)}}
	}
	outside := t.TempDir()
	wrongType, wrongArch := layer(layouttest.File{Name: "a"}), layer(layouttest.File{Name: "a"})
	wrongType.MediaType, wrongArch.Architecture = "application/vnd.oci.image.layer.v1.tar+zstd", "vax"
	for want, i := range map[string]layouttest.Image{
		"lies outside":                layer(layouttest.File{Name: "../a", Content: "x"}),
		"path escapes":                layer(layouttest.File{Name: "a", Link: outside}, layouttest.File{Name: "a/b", Content: "x"}),
		"write c: linkat a/b c: path": layer(layouttest.File{Name: "a", Link: outside}, layouttest.File{Name: "c", Hard: "a/b"}),
		"a device, a pipe":            layer(layouttest.File{Name: "null", Kind: tar.TypeChar}),
		"hides nothing":               layer(layouttest.File{Name: "a/.wh...", Content: "x"}),
		"tar+zstd":                    wrongType,
		"it is for linux/vax":         wrongArch,
		"from 1 to 128 are taken":     {},
		"it is no archive":            {Layers: [][]byte{[]byte(strings.Repeat("x", 600))}},
		"larger than is allowed":      layer(layouttest.File{Name: "a", Content: strings.Repeat("x", oci.TestImageBytes+1)}),
		"more than 262144 files":      layer(slices.Repeat([]layouttest.File{{Name: "a"}}, oci.TestImageFiles+1)...),
	} {
		task := newImageTask(t, "a1")
		mustWrite(t, task.layout, i)
		images := filepath.Join(t.TempDir(), "images")
		if _, err := oci.Bounded(mustIsolation(t, images)).UnpackImage(t.Context(), task.cfg, "local/app"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if list, _ := os.ReadDir(images); len(list) != 0 {
			t.Errorf("%q: it left %v", want, list)
		}
	}
	if list := treeOf(t, outside); len(list) != 0 {
		t.Errorf("written outside: %q", list)
	}
}

// TestDamagedLayoutsAreRefused: missing and changed blobs, and a layout that is none or lies outside of the task's folder.
func TestDamagedLayoutsAreRefused(t *testing.T) {
	task := newImageTask(t, "a1")
	mustWrite(t, task.layout, layouttest.Image{Layers: [][]byte{mustLayer(t, layouttest.File{Name: "a", Content: "1"})}})
	isolation := mustIsolation(t, filepath.Join(t.TempDir(), "images"))
	blobs, err := filepath.Glob(filepath.Join(task.layout, "blobs", "sha256", "*"))
	if err != nil || len(blobs) != 3 {
		t.Fatalf("%q, %v", blobs, err)
	}
	for _, blob := range blobs {
		content, err := os.ReadFile(blob)
		if err != nil {
			t.Fatal(err)
		}
		damaged := slices.Clone(content)
		damaged[len(damaged)-1] ^= 1
		for what, change := range map[string]func() error{
			"changed": func() error { return os.WriteFile(blob, damaged, 0o600) }, "missing": func() error { return os.Remove(blob) },
		} {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			if _, err := isolation.UnpackImage(t.Context(), task.cfg, "local/app"); err == nil {
				t.Errorf("a blob is %s, and the image is used", what)
			}
			if err := os.WriteFile(blob, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Symlink("/", filepath.Join(task.cfg.LocalDir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"local", "local/none", "local/link" + task.layout, "../web/local/app", task.layout} {
		if _, err := isolation.UnpackImage(t.Context(), task.cfg, name); err == nil {
			t.Errorf("%s is used as a layout", name)
		}
	}
	if _, err := isolation.UnpackImage(t.Context(), task.cfg, "local/app"); err != nil {
		t.Errorf("the sound layout: %v", err)
	}
}

// FuzzLayer unpacks a layer, which must write nothing outside of the image.
func FuzzLayer(f *testing.F) {
	f.Add(mustLayer(f, layouttest.File{Name: "a", Content: "1"}, layouttest.File{Name: "b/.wh..wh..opq"}, layouttest.File{Name: "c", Link: "../a"}))
	f.Fuzz(func(t *testing.T, layer []byte) {
		task := newImageTask(t, "a1")
		mustWrite(t, task.layout, layouttest.Image{Layers: [][]byte{layer}})
		_, _ = oci.Bounded(mustIsolation(t, filepath.Join(t.TempDir(), "images"))).UnpackImage(t.Context(), task.cfg, "local/app")
	})
}

// FuzzLayout reads documents of a layout.
func FuzzLayout(f *testing.F) {
	f.Add([]byte(`{"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha256:00","size":1}]}`))
	f.Fuzz(func(t *testing.T, index []byte) {
		task := newImageTask(t, "a1")
		if err := os.WriteFile(filepath.Join(task.layout, "index.json"), index, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := mustIsolation(t, filepath.Join(t.TempDir(), "images")).UnpackImage(t.Context(), task.cfg, "local/app"); err == nil {
			t.Error("an image without blobs is used")
		}
	})
}
