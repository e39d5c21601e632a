package templates_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/drivers"
	"skerry/edge/machinekey"
	"skerry/fleet"
)

// newMachineWithSecrets makes a machine with a key and a folder in memory, whose task has secrets and an env block.
func newMachineWithSecrets(t *testing.T, env map[string]string, list ...fleet.Secret) *machine {
	t.Helper()
	m := newMachine(t)
	m.key, _ = machinekey.New()
	m.memory = t.TempDir()
	m.task.Secrets, m.task.Env, m.task.Vault = list, env, &fleet.Vault{}
	return m
}

// onDisk returns the text of all files in the state folder of the task.
func (m *machine) onDisk(tb testing.TB) string {
	tb.Helper()
	var all strings.Builder
	if err := filepath.WalkDir(filepath.Join(m.dir, "tasks"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all.WriteString(d.Name() + ": " + string(b) + "\n")
		return err
	}); err != nil {
		tb.Fatal(err)
	}
	return all.String()
}

// TestSecrets: the items of a variable are in the environment, and encrypted on the disk. While the variable cannot be read, a start
// has those of the last one; an agent that comes back has them too.
func TestSecrets(t *testing.T) {
	m := newMachineWithSecrets(t, map[string]string{"ADDRESS": "tcp://${secret.db.address}/${NOMAD_TASK_NAME}", "PLAIN": "x"},
		fleet.Secret{Name: "db", Provider: "nomad", Path: "/nomad/jobs/"})
	m.task.Templates = []fleet.Template{{EmbeddedTmpl: `{{ env "ADDRESS" }}`, DestPath: "secrets/out"}}
	if err := m.prepare(); err != nil {
		t.Fatal(err)
	}
	want := "tcp://10.0.0.1/web"
	m.mustHave(t, "web/secrets/out", want)
	if m.env["ADDRESS"] != want || m.env["secret.db.address"] != "" {
		t.Errorf("the environment is %q", m.env)
	}
	if text := m.onDisk(t); strings.Contains(text, "10.0.0.1") || !strings.Contains(text, "secret-db: ") {
		t.Errorf("on the disk is\n%s", text)
	}

	m.services.set(nil, errors.New("no variables yet"))
	if err := m.prepare(); err != nil || m.env["ADDRESS"] != want {
		t.Errorf("%v, the environment is %q", err, m.env)
	}
	m.mustLog(t, fleet.TaskTemplate+": The rendering of ")
	if !strings.Contains(m.log[0], `secret "db" cannot be rendered now`) {
		t.Errorf("%q", m.log)
	}

	m.task.Secrets[0].Path = "nomad/jobs" // another release may read it by another text
	p := m.preparation()
	m.hook().RestoreVars(p)
	if m.env["ADDRESS"] != want || !p.IsSecretVar("ADDRESS") || p.IsSecretVar("PLAIN") {
		t.Errorf("restored %q", m.env)
	}

	m.setAddress("10.0.0.2")
	if err := m.prepare(); err != nil || m.env["ADDRESS"] != "tcp://10.0.0.2/web" {
		t.Errorf("%v, the environment is %q", err, m.env)
	}
}

// TestSecretsThatAreNotThere: a task whose secret cannot be read, or has no such item, is tried again, and one on an edge without memory
// is not. No error has a value.
func TestSecretsThatAreNotThere(t *testing.T) {
	db := fleet.Secret{Name: "db", Provider: "nomad", Path: "nomad/jobs"}
	for name, try := range map[string]struct {
		env         string
		change      func(m *machine)
		want        string
		recoverable bool
	}{
		"no variable":    {"${secret.db.address}", func(m *machine) { m.services.set(nil, errors.New("no variables")) }, `render secret "db"`, true},
		"no item":        {"${secret.db.port}", func(*machine) {}, "${secret.db.port}: the secret has no such item", true},
		"no memory":      {"${secret.db.address}", func(m *machine) { m.memory = "" }, "this edge has no memory", false},
		"no key":         {"${secret.db.address}", func(m *machine) { m.key = nil }, "this edge has no key to encrypt it", false},
		"other variable": {"${secret.db.address}", func(m *machine) { m.task.Secrets[0].Path = "nomad/jobs/other" }, "may not read the variable", false},
	} {
		m := newMachineWithSecrets(t, map[string]string{"A": try.env}, db)
		try.change(m)
		err := m.prepare()
		if err == nil || !strings.Contains(err.Error(), try.want) || drivers.IsRecoverable(err) != try.recoverable || strings.Contains(err.Error(), "10.0.0.1") {
			t.Errorf("%s: %v, recoverable %v; want %q", name, err, drivers.IsRecoverable(err), try.want)
		}
		m.mustLog(t, fleet.TaskTemplate)
	}
	m := newMachineWithSecrets(t, map[string]string{"A": "plain"}, db)
	m.memory = ""
	if err := m.prepare(); err != nil { // only its password of a registry could be one
		t.Errorf("a secret that is not in the environment: %v", err)
	}
}

// TestSecretOfVault: the items of both engines are read, and the task waits for a Vault that is away at its first start.
func TestSecretOfVault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := map[string]string{"ADDRESS": "${secret.db.address}", "MORE": "${secret.v2.number} ${secret.v2.yes} ${secret.v2.list} [${secret.v2.none}] ${secret.v2.my.key}"}
		m := newMachineWithSecrets(t, env, fleet.Secret{Name: "db", Provider: "vault", Path: "kv/db"},
			fleet.Secret{Name: "v2", Provider: "vault", Path: "kv/data/db", Config: map[string]any{"engine": "kv_v2"}})
		m.slowVault.Store(true)
		done := make(chan error, 1)
		go func() { done <- m.prepare() }()
		time.Sleep(time.Hour)
		synctest.Wait()
		m.mustLog(t, fleet.TaskTemplate+`: The task waits for Vault: render secret "db": `)
		m.slowVault.Store(false)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if m.env["ADDRESS"] != "10.0.0.1" || m.env["MORE"] != `12345678901234567890 true ["a",1] [] dotted` {
			t.Errorf("the environment is %q", m.env)
		}
		m.task.Secrets[1].Config = nil // the engine is another one: what it reads has no such items
		if err := m.prepare(); err == nil || !strings.Contains(err.Error(), "has no such item") {
			t.Errorf("%v", err)
		}
		m.task.Secrets[0].Config = map[string]any{"engine": "kv_v2"}
		if err := m.prepare(); err == nil || !strings.Contains(err.Error(), "it has no items") {
			t.Errorf("%v", err)
		}
	})
}
