package templates_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/machinekey"
	"skerry/fleet"
)

// newMachineWithPins makes a machine with a key, and with files of the allocation: those with secrets have the word geheim.
func newMachineWithPins(t *testing.T, list ...fleet.Template) *machine {
	t.Helper()
	m := newMachine(t, list...)
	m.key, _ = machinekey.New()
	root := filepath.Join(m.dir, "allocs", "a")
	for name, text := range map[string]string{
		"web/secrets/pin": "A=geheim", "other/secrets/sub/pin": "A=geheim", "web/local/plain": "A=open", "alloc/secrets/plain": "A=open", "web/local/secrets/plain": "A=open",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"web/local/link": "../secrets/pin", "web/local/again": "link", "web/local/folder": "../../other/secrets", "alloc/up": "../web/local/again", "web/local/near": "plain",
	} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// record is the newest rendering of the first template, as it is on the disk.
func (m *machine) record(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(m.dir, "tasks/a/web/template-0"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestTemplateWithFilesOfSecretsFolders: what a template has from a secrets folder of the allocation, whatever the path looks like, is
// on the disk only encrypted, gets into no environment, and no error has a part of it. Other files are treated as before.
func TestTemplateWithFilesOfSecretsFolders(t *testing.T) {
	for path, secret := range map[string]bool{
		"secrets/pin": true, "/secrets/pin": true, "./local/..//secrets/pin": true, "../other/secrets/sub/pin": true, "../web/secrets/pin": true,
		"local/link": true, "local/again": true, "local/folder/sub/pin": true, "/alloc/up": true,
		"local/plain": false, "local/near": false, "/alloc/secrets/plain": false, "local/secrets/plain": false,
	} {
		for _, from := range []fleet.Template{{EmbeddedTmpl: `{{ file "` + path + `" }}`}, {SourcePath: path}} {
			from.DestPath = "secrets/out"
			m := newMachineWithPins(t, from)
			if err := m.prepare(); err != nil {
				t.Fatal(err)
			}
			want := map[bool]string{true: "A=geheim", false: "A=open"}[secret]
			m.mustHave(t, "web/secrets/out", want)
			if got := m.record(t); strings.Contains(got, want) == secret || strings.Contains(got, "Sealed") != secret {
				t.Errorf("%+v: on the disk is %s", from, got)
			}
			from.Envvars = true
			m = newMachineWithPins(t, from)
			if secret {
				m.mustFail(t, "a file of a secrets folder, and has env = true", false)
			} else if err := m.prepare(); err != nil {
				t.Error(err)
			}
			if has := m.env["A"] == strings.TrimPrefix(want, "A="); has == secret {
				t.Errorf("%+v: the environment is %q", from, m.env)
			}
		}
		if !secret {
			continue
		}
		m := newMachineWithPins(t, fleet.Template{EmbeddedTmpl: `{{ file "` + path + `" | parseInt }}`, DestPath: "local/out"})
		m.mustFail(t, "the reason is not shown", false)
		if strings.Contains(strings.Join(m.log, ""), "geheim") {
			t.Errorf("%s: %q", path, m.log)
		}
	}
}

// TestSecretSourceThatDoesNotParse: the error of a source in a secrets folder has no part of it.
func TestSecretSourceThatDoesNotParse(t *testing.T) {
	m := newMachineWithPins(t, fleet.Template{SourcePath: "local/link", DestPath: "local/out"})
	if err := os.WriteFile(filepath.Join(m.dir, "allocs/a/web/secrets/pin"), []byte("{{ geheim }}"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.mustFail(t, "template 1 (local/out):1: it failed", false)
	if strings.Contains(m.log[0], "geheim") {
		t.Errorf("%q", m.log)
	}
}

// TestRenderingBecomesSecret: a rendering that is on the disk in clear is encrypted when what it reads has become a secret, although its
// text is the same.
func TestRenderingBecomesSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachineWithPins(t, fleet.Template{EmbeddedTmpl: `{{ file "local/moved" }}`, DestPath: "secrets/out"})
		moved := filepath.Join(m.dir, "allocs/a/web/local/moved")
		if err := os.WriteFile(moved, []byte("A=geheim"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		if got := m.record(t); !strings.Contains(got, "geheim") {
			t.Errorf("on the disk is %s", got)
		}
		if err := os.Remove(moved); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../secrets/pin", moved); err != nil {
			t.Fatal(err)
		}
		m.watchFor(10 * time.Second)
		m.mustLog(t)
		if got := m.record(t); strings.Contains(got, "geheim") || !strings.Contains(got, "Sealed") {
			t.Errorf("on the disk is %s", got)
		}
	})
}
