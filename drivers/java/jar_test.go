package java_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/drivers"
	"skerry/drivers/java"
)

// mustArchive returns a zip archive with a comment and a file.
func mustArchive(tb testing.TB, comment string) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	f, err := w.Create("META-INF/MANIFEST.MF")
	if err == nil {
		_, err = f.Write([]byte("Main-Class: A\n"))
	}
	if err := errors.Join(err, w.SetComment(comment), w.Close()); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// mustTask returns a task with its folders, and these files in the folder of its allocation.
func mustTask(tb testing.TB, files map[string][]byte) drivers.TaskConfig {
	tb.Helper()
	root := tb.TempDir()
	task := filepath.Join(root, "web")
	cfg := drivers.TaskConfig{Dir: task, LocalDir: filepath.Join(task, "local"), SecretsDir: filepath.Join(task, "secrets"), AllocDir: filepath.Join(root, "alloc")}
	for _, dir := range []string{cfg.LocalDir, cfg.SecretsDir, cfg.AllocDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return cfg
}

// TestJarIsChecked: a jar that is missing or broken fails the start with its path, the reason and a hint.
func TestJarIsChecked(t *testing.T) {
	whole, commented := mustArchive(t, ""), mustArchive(t, strings.Repeat("c", 60000))
	cfg := mustTask(t, map[string][]byte{
		"web/local/app.jar": whole, "web/local/comment.jar": commented, "web/local/script.jar": append([]byte("#!/bin/sh\nexec java -jar $0\n"), whole...),
		"web/top.jar": whole, "alloc/shared.jar": whole,
		"web/local/empty.jar": nil, "web/local/text.jar": []byte("<html>404</html>"), "web/local/cut.jar": whole[:len(whole)-30],
		"web/local/end.jar": whole[len(whole)-22:], "alloc/cut.jar": commented[:100],
	})
	const missing, broken = "there is no jar ", "it is no jar: "
	for _, tc := range []struct {
		name, jar string
		isolated  bool
		want      string // "": the jar is good
	}{
		{"in the local folder", "local/app.jar", true, ""},
		{"as the task sees it", "/local/app.jar", true, ""},
		{"in the task's folder", "top.jar", true, ""},
		{"of the allocation", "/alloc/shared.jar", true, ""},
		{"with a comment", "local/comment.jar", true, ""},
		{"with a script before it", "local/script.jar", true, ""},
		{"alone", "local/app.jar", false, ""},
		{"alone, by its path", filepath.Join(cfg.LocalDir, "app.jar"), false, ""},
		{"no such file", "local/none.jar", true, missing + "/local/none.jar"},
		{"no such folder", "/none/none.jar", true, missing + "/none/none.jar"},
		{"below a file", "local/app.jar/x", true, missing},
		{"no such file of the allocation", "/alloc/none.jar", true, missing},
		{"no such file, alone", "local/none.jar", false, missing + cfg.Dir},
		{"a folder", "local", true, broken + "it is not a file"},
		{"empty", "local/empty.jar", true, broken + "it is empty"},
		{"another file", "local/text.jar", true, broken + "it is no zip archive, or cut off"},
		{"cut off", "local/cut.jar", true, broken},
		{"cut off, alone", "local/cut.jar", false, broken},
		{"without a directory", "local/end.jar", true, broken},
		{"of the allocation, cut off", "/alloc/cut.jar", true, broken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			workDir := "/"
			if !tc.isolated {
				workDir = cfg.Dir
			}
			err := java.CheckJar(cfg, tc.jar, workDir, tc.isolated)
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !drivers.IsRecoverable(err) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), " (") || !strings.Contains(err.Error(), filepath.Base(tc.jar)) {
				t.Errorf("%v, want %q and a hint", err, tc.want)
			}
		})
	}
}

// TestJarElsewhere: what only the task can find is left to Java.
func TestJarElsewhere(t *testing.T) {
	cfg := mustTask(t, nil)
	for link, to := range map[string]string{"absolute.jar": "/local/none.jar", "relative.jar": "alloc/none.jar", "folder": "/alloc"} {
		if err := os.Symlink(to, filepath.Join(cfg.Dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, jar string
		isolated  bool
	}{
		{"in a volume", "/srv/app.jar", true},
		{"in a volume below the local folder", "local/lib/app.jar", true},
		{"on the machine, as the task sees it", "/usr/share/java/none.jar", true},
		{"on the machine", "/usr/share/java/none.jar", false},
		{"an absolute link", "absolute.jar", true},
		{"a link to what is mounted in the task", "relative.jar", true},
		{"in a folder that is a link", "folder/none.jar", true},
		{"out of the folder", "../../none.jar", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			workDir := "/"
			if !tc.isolated {
				workDir = cfg.Dir
			}
			if err := java.CheckJar(cfg, tc.jar, workDir, tc.isolated, "/srv", "/usr/", "/local/lib"); err != nil {
				t.Error(err)
			}
		})
	}
}
