package templates_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry/drivers"
	"skerry/edge/machinekey"
	"skerry/edge/runner"
	"skerry/edge/templates"
	"skerry/fleet"
	"skerry/fleet/taskenv"
	"skerry/fleet/template"
)

// fakeServices are the edge's copy of the services.
type fakeServices struct {
	mu   sync.Mutex
	list []fleet.ServiceRegistration
	err  error
}

// set replaces the answer of the copy of the services.
func (f *fakeServices) set(list []fleet.ServiceRegistration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list, f.err = list, err
}

func (f *fakeServices) answerOf(context.Context, string, string) ([]fleet.ServiceRegistration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list, f.err
}

// hangs is the exit code of a script that does not end.
const hangs = -1

// machine has a task with templates, its disk, and a record of what happened to the task.
type machine struct {
	dir      string
	task     fleet.Task
	services fakeServices
	env      map[string]string // of the last preparation
	log      []string
	code     int // of scripts
	poll     time.Duration
	routes   string
	key      *machinekey.Key
	memory   string       // folder for what may not be on the disk; "": there is none
	contact  atomic.Int64 // when a hub answered (UnixNano); 0: it does all the time

	renderAnew bool        // as the restart policy says
	slowVault  atomic.Bool // it never answers
}

func newMachine(tb testing.TB, list ...fleet.Template) *machine {
	tb.Helper()
	m := &machine{dir: tb.TempDir(), task: fleet.Task{Name: "web", Templates: list}}
	for _, dir := range []string{"allocs/a/web/local", "allocs/a/web/secrets", "allocs/a/alloc"} {
		if err := os.MkdirAll(filepath.Join(m.dir, dir), 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	m.setAddress("10.0.0.1")
	return m
}

func (m *machine) setAddress(address string) {
	m.services.set([]fleet.ServiceRegistration{{ID: "1", ServiceName: "db", Address: address, Port: 5432, Tags: []string{"x"}}}, nil)
}

func (m *machine) hook() *templates.Hook {
	return templates.NewHook(templates.Config{
		Services: m.services.answerOf, Key: m.key, Variable: m.variable, Secret: m.secret, Away: m.away, Routes: m.routes, Poll: m.poll, Now: time.Now, Jitter: func() float64 { return 0.5 }, Log: slog.New(slog.DiscardHandler),
	})
}

// away is the time since a hub answered.
func (m *machine) away() time.Duration {
	at := m.contact.Load()
	if at == 0 {
		return 0
	}
	return time.Since(time.Unix(0, at))
}

// variable is the copy of the variables: the address of the service, as a secret.
func (m *machine) variable(_, path string) (map[string]string, bool) {
	list, err := m.services.answerOf(context.Background(), "", "")
	if path != "nomad/jobs" || err != nil {
		return nil, false
	}
	return map[string]string{"address": list[0].Address}, true
}

func (m *machine) preparation() *runner.Preparation {
	root := filepath.Join(m.dir, "allocs", "a")
	m.env = map[string]string{"NAME": "value"}
	alloc := fleet.Alloc{ID: "a", TaskGroup: "g", Job: &fleet.Job{TaskGroups: []fleet.TaskGroup{{Name: "g", Tasks: []fleet.Task{m.task}}}}}
	return &runner.Preparation{
		Alloc: alloc, Task: &m.task,
		Config: &drivers.TaskConfig{
			Env: m.env, Dir: filepath.Join(root, "web"), AllocDir: filepath.Join(root, "alloc"), LocalDir: filepath.Join(root, "web", "local"),
			SecretsDir: filepath.Join(root, "web", "secrets"), StateDir: filepath.Join(m.dir, "tasks", "a", "web", "1"),
		},
		RenderTemplates: m.renderAnew, Folders: taskenv.Place{Alloc: &alloc, Task: m.task.Name, AllocDir: "/alloc", TaskDir: "/local", SecretsDir: "/secrets"},
		Event:     func(kind, message string) error { return m.Event(context.Background(), kind, message) },
		MemoryDir: m.memoryDir,
	}
}

func (m *machine) memoryDir() (string, error) {
	if m.memory == "" {
		return "", fleet.Errorf(fleet.CodeUnsupported, "this edge has no memory")
	}
	return m.memory, nil
}

func (m *machine) prepare() error {
	m.log = nil
	return m.hook().Prepare(context.Background(), m.preparation())
}

// mustFail prepares the task, which must fail with an event.
func (m *machine) mustFail(tb testing.TB, want string, recoverable bool) {
	tb.Helper()
	err := m.prepare()
	if err == nil || !strings.Contains(err.Error(), want) || drivers.IsRecoverable(err) != recoverable {
		tb.Errorf("%+v: %v, recoverable %v; want %q", m.task.Templates[0], err, drivers.IsRecoverable(err), want)
	}
	m.mustLog(tb, fleet.TaskTemplate)
}

func (m *machine) Restart(_ context.Context, reason string) error {
	m.log = append(m.log, "restart: "+reason)
	return nil
}

func (m *machine) Signal(_ context.Context, signal, _ string) error {
	m.log = append(m.log, "signal "+signal)
	return nil
}

func (m *machine) Exec(ctx context.Context, x fleet.Exec) (int, error) {
	m.log = append(m.log, "exec "+strings.Join(x.Command, " "))
	fmt.Fprint(x.Stdout, "output")
	if m.code == hangs {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return m.code, nil
}

func (m *machine) Event(_ context.Context, kind, message string) error {
	m.log = append(m.log, kind+": "+message)
	return nil
}

func (*machine) Address(context.Context, string) error { return nil }

func (m *machine) mustHave(tb testing.TB, name, want string) {
	tb.Helper()
	got, err := os.ReadFile(filepath.Join(m.dir, "allocs", "a", name))
	if err != nil || string(got) != want {
		tb.Errorf("%s has %q, %v; want %q", name, got, err, want)
	}
}

// mustLog checks the events so far: each line begins with the wanted text.
func (m *machine) mustLog(tb testing.TB, want ...string) {
	tb.Helper()
	if !slices.EqualFunc(m.log, want, strings.HasPrefix) {
		tb.Errorf("it happened:\n%s\nwant\n%s", strings.Join(m.log, "\n"), strings.Join(want, "\n"))
	}
}

// watchFor lets the hook watch for a time, in virtual time.
func (m *machine) watchFor(d time.Duration, during ...func()) {
	m.log = nil
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		m.hook().Watch(ctx, m.preparation(), m)
		close(ended)
	}()
	for _, f := range during {
		time.Sleep(d)
		synctest.Wait()
		f()
	}
	time.Sleep(d)
	cancel()
	<-ended
}

const dbAddress = `{{ range nomadService "db" }}{{ .Address }}:{{ .Port }}{{ end }}`

func TestTemplateIsRendered(t *testing.T) {
	uid, gid := os.Getuid(), os.Getgid()
	m := newMachine(t,
		fleet.Template{EmbeddedTmpl: `{{ env "NAME" }} ` + dbAddress, DestPath: "local/sub/a.conf", Perms: "600", Uid: &uid, Gid: &gid},
		fleet.Template{EmbeddedTmpl: "# a comment\nexport A=[[ env \"NAME\" ]] # b\nB=\"x\\ty\"\nC='z'\n\n", DestPath: "/secrets/env", Envvars: true, LeftDelim: "[[", RightDelim: "]]"},
		fleet.Template{SourcePath: "${NOMAD_NONE}local/source.tpl", DestPath: "/alloc/data/out"},
	)
	m.task.Templates[2].SourcePath = "local/source.tpl"
	source := filepath.Join(m.dir, "allocs/a/web/local/source.tpl")
	if err := os.WriteFile(source, []byte(`{{ file "local/other" }}!`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.prepare(); !drivers.IsRecoverable(err) || !strings.Contains(err.Error(), "local/other") {
		t.Fatalf("a file that is missing: %v", err)
	}
	m.mustLog(t, fleet.TaskTemplate+": render template 3")
	if err := os.WriteFile(filepath.Join(filepath.Dir(source), "other"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.prepare(); err != nil {
		t.Fatal(err)
	}
	m.mustHave(t, "web/local/sub/a.conf", "value 10.0.0.1:5432")
	m.mustHave(t, "alloc/data/out", "other!")
	if want := map[string]string{"NAME": "value", "A": "value", "B": "x\ty", "C": "z"}; !maps.Equal(m.env, want) {
		t.Errorf("the environment is %q", m.env)
	}
	if info, err := os.Stat(filepath.Join(m.dir, "allocs/a/web/local/sub/a.conf")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
}

func TestTemplatesThatFail(t *testing.T) {
	for _, c := range []struct {
		template    fleet.Template
		want        string
		recoverable bool
	}{
		{fleet.Template{EmbeddedTmpl: "{{ if }}", DestPath: "x"}, "missing value for if", false},
		{fleet.Template{EmbeddedTmpl: `{{ safeLs "a" }}`, DestPath: "x"}, "keys of Consul alone", false},
		{fleet.Template{EmbeddedTmpl: "x", DestPath: "../../x"}, "outside of the allocation's folder", false},
		{fleet.Template{SourcePath: "../../../etc/passwd", DestPath: "x"}, "outside of the allocation's folder", false},
		{fleet.Template{EmbeddedTmpl: `{{ file "../../tasks" }}`, DestPath: "x"}, "outside of the allocation's folder", false},
		{fleet.Template{EmbeddedTmpl: `{{ range 999999999 }}{{ end }}`, DestPath: "x"}, "steps", false},
		{fleet.Template{EmbeddedTmpl: "no variable", DestPath: "x", Envvars: true}, "line 1 is not NAME=VALUE", false},
		{fleet.Template{SourcePath: "local/none", DestPath: "x"}, "read source local/none", true},
		{fleet.Template{EmbeddedTmpl: `{{ with parseJSON "{\"a\":1}" }}{{ .b }}{{ end }}`, DestPath: "x", ErrMissingKey: true}, "no entry for key", true},
	} {
		newMachine(t, c.template).mustFail(t, c.want, c.recoverable)
	}
}

// A link in the task's folder leads no template out of it.
func TestTemplateFollowsNoLinkOut(t *testing.T) {
	m := newMachine(t, fleet.Template{EmbeddedTmpl: `{{ file "local/link/secret" }}`, DestPath: "local/x"}, fleet.Template{EmbeddedTmpl: "x", DestPath: "local/link/y"})
	outside := t.TempDir()
	if err := errors.Join(os.WriteFile(outside+"/secret", []byte("secret"), 0o600), os.Symlink(outside, filepath.Join(m.dir, "allocs/a/web/local/link"))); err != nil {
		t.Fatal(err)
	}
	if err := m.prepare(); err == nil {
		t.Error("it read a file outside")
	}
	m.task.Templates = m.task.Templates[1:]
	if err := m.prepare(); err == nil {
		t.Error("it wrote a file outside")
	}
	if _, err := os.Lstat(outside + "/y"); err == nil {
		t.Error("it wrote a file outside")
	}
}

// TestSourceGoneForAWeek: the task starts again and runs on with its last rendering, and events show its age.
func TestSourceGoneForAWeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, fleet.Template{EmbeddedTmpl: dbAddress, DestPath: "local/db", ChangeMode: fleet.ChangeRestart})
		m.poll = time.Hour
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		m.mustLog(t)
		m.services.set(nil, errors.New("the link is down"))
		m.watchFor(7*24*time.Hour + 90*time.Minute)
		m.mustLog(t, slices.Repeat([]string{fleet.TaskTemplate + ": The rendering of "}, 8)...)
		if err := os.Remove(filepath.Join(m.dir, "allocs/a/web/local/db")); err != nil {
			t.Fatal(err)
		}
		if err := m.prepare(); err != nil {
			t.Errorf("a restart: %v", err)
		}
		m.mustHave(t, "web/local/db", "10.0.0.1:5432")
		m.mustLog(t, fleet.TaskTemplate+": The rendering of 2000-01-01T00:00:00Z is used, which is 169h30m0s old")
		m.watchFor(2*time.Hour, func() { m.setAddress("10.0.0.1") })
		m.mustLog(t, fleet.TaskTemplate+": The rendering of", fleet.TaskTemplate+": template 1 (local/db) can be rendered again")
	})
}

func TestTemplateChangeModes(t *testing.T) {
	for mode, want := range map[string][]string{
		fleet.ChangeNoop:    nil,
		fleet.ChangeRestart: {"restart: Rendered again: template 1 (local/db)"},
		fleet.ChangeSignal:  {"signal SIGUSR1"},
		fleet.ChangeScript:  {"exec reload value", fleet.TaskTemplate + ": template 1 (local/db): its script has run"},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(t, fleet.Template{
				EmbeddedTmpl: dbAddress, DestPath: "local/db", ChangeMode: mode, ChangeSignal: "SIGUSR1", Splay: 10 * time.Second,
				ChangeScript: &fleet.TemplateScript{Command: "reload", Args: []string{"${NAME}"}, Timeout: time.Second},
			})
			if err := m.prepare(); err != nil {
				t.Fatal(err)
			}
			m.watchFor(time.Minute, func() { m.setAddress("10.0.0.2") })
			m.mustHave(t, "web/local/db", "10.0.0.2:5432")
			m.mustLog(t, want...)
			m.watchFor(time.Minute)
			if mode == fleet.ChangeRestart { // no attempt has begun since
				m.mustLog(t, want...)
				return
			}
			m.mustLog(t)
		})
	}
}

// An agent that dies before it has told the task does it when it is back.
func TestTemplateChangeThatTheTaskWasNotToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, fleet.Template{EmbeddedTmpl: dbAddress, DestPath: "local/db", ChangeMode: fleet.ChangeSignal, ChangeSignal: "SIGHUP", Splay: time.Minute})
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		m.setAddress("10.0.0.2")
		m.watchFor(20 * time.Second) // it ends within the splay
		m.mustLog(t)
		m.watchFor(time.Hour)
		m.mustLog(t, "signal SIGHUP")
	})
}

func TestTemplateOnceAndFirstScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t,
			fleet.Template{EmbeddedTmpl: dbAddress, DestPath: "local/once", Once: true, ChangeMode: fleet.ChangeRestart},
			fleet.Template{EmbeddedTmpl: "x", DestPath: "local/x", ChangeMode: fleet.ChangeScript, ChangeScript: &fleet.TemplateScript{Command: "init", RunOnFirstRender: true}})
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		m.code = 3
		m.watchFor(time.Minute, func() { m.setAddress("10.0.0.2") })
		m.mustLog(t, "exec init", fleet.TaskTemplate+": template 2 (local/x): its script ended with exit code 3: output")
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		m.mustHave(t, "web/local/once", "10.0.0.1:5432")
		m.watchFor(time.Minute)
		m.mustLog(t)
	})
}

// TestRenderTemplates: with render_templates of its restart policy a restart renders what once has rendered. A source
// without an answer keeps no task from its restart then, either.
func TestRenderTemplates(t *testing.T) {
	m := newMachine(t, fleet.Template{EmbeddedTmpl: dbAddress, DestPath: "local/once", Once: true})
	for _, attempt := range []struct {
		render bool
		err    error
		want   string
	}{{false, nil, "10.0.0.1:5432"}, {false, nil, "10.0.0.1:5432"}, {true, nil, "10.0.0.2:5432"}, {true, errors.New("the link is down"), "10.0.0.2:5432"}} {
		m.renderAnew = attempt.render
		if attempt.err != nil {
			m.services.set(nil, attempt.err)
		}
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		m.mustHave(t, "web/local/once", attempt.want)
		m.setAddress("10.0.0.2")
	}
}

// A change waits until it has been there for the wait block's min.
func TestTemplateWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := time.Minute
		m := newMachine(t, fleet.Template{EmbeddedTmpl: dbAddress, DestPath: "local/db", ChangeMode: fleet.ChangeSignal, ChangeSignal: "SIGHUP", Wait: &fleet.TemplateWait{Min: &wait}})
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		m.watchFor(10*time.Second, func() { m.setAddress("10.0.0.2") }, func() { m.mustLog(t); m.setAddress("10.0.0.3") }, func() {}, func() {}, func() {}, func() {}, func() {}, func() {})
		m.mustLog(t, "signal SIGHUP")
		m.mustHave(t, "web/local/db", "10.0.0.3:5432")
	})
}

func FuzzParse(f *testing.F) {
	f.Add("A=b\nexport C=\"d\"", []byte(`{"Version":1,"Text":"x"}`))
	f.Fuzz(func(t *testing.T, env string, record []byte) {
		vars, err := templates.ParseEnv(env)
		for name := range vars {
			if err == nil && (name == "" || strings.ContainsAny(name, "=\n")) {
				t.Errorf("it read the name %q", name)
			}
		}
		_ = templates.DecodeRendering(record)
	})
}

func TestTemplateScriptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, fleet.Template{
			EmbeddedTmpl: dbAddress, DestPath: "local/db", ChangeMode: fleet.ChangeScript, ChangeScript: &fleet.TemplateScript{Command: "reload", Timeout: 7 * time.Second},
		})
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		m.code = hangs
		m.watchFor(time.Minute, func() { m.setAddress("10.0.0.2") })
		m.mustLog(t, "exec reload", fleet.TaskTemplate+": template 1 (local/db): its script was ended after 7s")
	})
}

// TestTemplateWithVariables: the rendering on the disk is encrypted, the task is told of a change, a variable that is gone
// leaves the last rendering, and the environment of a task, which is on the disk, gets none.
func TestTemplateWithVariables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = `{{ with nomadVar "nomad/jobs" }}{{ .address }}{{ end }}`
		m := newMachine(t, fleet.Template{EmbeddedTmpl: text, DestPath: "secrets/db", ChangeMode: fleet.ChangeSignal, ChangeSignal: "SIGHUP"})
		m.key, _ = machinekey.New()
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		m.mustHave(t, "web/secrets/db", "10.0.0.1")
		m.watchFor(time.Minute, func() { m.setAddress("10.0.0.2") })
		m.mustHave(t, "web/secrets/db", "10.0.0.2")
		m.mustLog(t, "signal SIGHUP")
		record, err := os.ReadFile(filepath.Join(m.dir, "tasks/a/web/template-0"))
		if err != nil || strings.Contains(string(record), "10.0.0") || !strings.Contains(string(record), "Sealed") {
			t.Fatalf("%s, %v", record, err)
		}
		m.services.set(nil, errors.New("no link"))
		if err := os.Remove(filepath.Join(m.dir, "allocs/a/web/secrets/db")); err != nil {
			t.Fatal(err)
		}
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		m.mustHave(t, "web/secrets/db", "10.0.0.2")
		m.setAddress("10.0.0.1")
		m.task.Templates[0].Envvars, m.task.Templates[0].EmbeddedTmpl = true, "A="+text
		m.mustFail(t, "env = true", false)
	})
}

// TestSecretVariables: a secret is in the environment if that can be off the disk, and remains one for a template that reads it
// there. A template without secrets needs no memory.
func TestSecretVariables(t *testing.T) {
	m := newMachine(t,
		fleet.Template{EmbeddedTmpl: "OPEN=1", DestPath: "secrets/open.env", Envvars: true},
		fleet.Template{EmbeddedTmpl: `PIN={{ with nomadVar "nomad/jobs" }}{{ .address }}{{ end }}`, DestPath: "secrets/pin.env", Envvars: true},
		fleet.Template{EmbeddedTmpl: `{{ env "OPEN" }}`, DestPath: "secrets/open"},
		fleet.Template{EmbeddedTmpl: `{{ env "PIN" }}`, DestPath: "secrets/pin"},
		fleet.Template{EmbeddedTmpl: `{{ envOrDefault "PIN" "" }}`, DestPath: "secrets/again"},
		fleet.Template{EmbeddedTmpl: `{{ mustEnv "PIN" }}`, DestPath: "secrets/must"},
		fleet.Template{EmbeddedTmpl: `ALSO={{ env "PIN" }}`, DestPath: "local/also.env", Envvars: true},
	)
	m.key, _ = machinekey.New()
	m.mustFail(t, "has env = true: this edge has no memory", false)
	m.memory = "/memory"
	p := m.preparation()
	if err := m.hook().Prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if p.Config.MemoryDir != "/memory" || p.Config.Env["PIN"] != "10.0.0.1" || p.Config.Env["OPEN"] != "1" {
		t.Errorf("%+v", p.Config)
	}
	m.mustHave(t, "web/secrets/pin.env", "PIN=10.0.0.1")
	if _, err := os.Stat(filepath.Join(m.dir, "allocs/a/web/local/also.env")); err == nil {
		t.Error("a secret of the environment is in a file on the disk")
	}
	later := m.preparation() // of another agent
	if m.hook().RestoreVars(later); later.Config.Env["ALSO"] != "10.0.0.1" || !later.IsSecretVar("ALSO") || later.IsSecretVar("OPEN") {
		t.Errorf("the variables again: %q", later.Config.Env)
	}
	for i, sealed := range []bool{false, true, false, true, true, true, true} {
		record, err := os.ReadFile(filepath.Join(m.dir, "tasks/a/web", fmt.Sprintf("template-%d", i)))
		if err != nil || strings.Contains(string(record), "10.0.0.1") || strings.Contains(string(record), "Sealed") != sealed {
			t.Errorf("template %d: %s, %v", i+1, record, err)
		}
	}
	m.task.Templates = m.task.Templates[:1]
	if p := m.preparation(); m.hook().Prepare(t.Context(), p) != nil || p.Config.MemoryDir != "" {
		t.Errorf("without a secret: %+v", p.Config)
	}
}

// TestTemplateWithSecrets: while Vault is away a task starts with the last rendering, which is encrypted, and is left alone. A
// first rendering waits, also if Vault answers too slowly, or only after another secret was read.
func TestTemplateWithSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, fleet.Template{EmbeddedTmpl: `{{ with secret "kv/db" }}{{ .Data.address }}{{ secret "kv/db" | len }}{{ end }}`, DestPath: "secrets/db"})
		m.key, _ = machinekey.New()
		m.mustFail(t, "no vault block", false)
		m.task.Vault = &fleet.Vault{}
		m.mustFail(t, "not shown", false) // what is wrong with the template is no outage
		m.task.Templates[0] = fleet.Template{EmbeddedTmpl: `{{ with secret "kv/db" }}{{ .Data.address }}{{ end }}`, DestPath: "secrets/db", ChangeMode: fleet.ChangeSignal, ChangeSignal: "SIGHUP"}
		for want, set := range map[string]func(away bool){
			"connection refused": func(away bool) {
				if m.setAddress("10.0.0.1"); away {
					m.services.set(nil, errors.New("connection refused"))
				}
			},
			"not answered in time": func(away bool) { m.slowVault.Store(away) },
		} {
			if err := os.RemoveAll(filepath.Join(m.dir, "tasks")); err != nil {
				t.Fatal(err)
			}
			set(true)
			done := make(chan error, 1)
			go func() { done <- m.prepare() }()
			time.Sleep(time.Hour)
			synctest.Wait()
			m.mustLog(t, fleet.TaskTemplate+": The task waits for Vault: render template 1 (secrets/db): ")
			if !strings.Contains(m.log[0], want) {
				t.Errorf("%s, want %s", m.log[0], want)
			}
			set(false)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		m.mustHave(t, "web/secrets/db", "10.0.0.1")
		record, err := os.ReadFile(filepath.Join(m.dir, "tasks/a/web/template-0"))
		if err != nil || strings.Contains(string(record), "10.0.0") {
			t.Fatalf("%s, %v", record, err)
		}
		m.watchFor(time.Minute, func() { m.setAddress("10.0.0.2") })
		m.mustLog(t, "signal SIGHUP")
		m.services.set(nil, errors.New("connection refused"))
		if err := os.Remove(filepath.Join(m.dir, "allocs/a/web/secrets/db")); err != nil {
			t.Fatal(err)
		}
		if err := m.prepare(); err != nil {
			t.Fatal(err)
		}
		m.mustHave(t, "web/secrets/db", "10.0.0.2")
	})
}

// secret is Vault: the address of the service is at one path, and a secret of the second version at another.
func (m *machine) secret(ctx context.Context, _ fleet.AllocID, _ *fleet.Task, path string, _ bool) (template.Secret, error) {
	if m.slowVault.Load() {
		<-ctx.Done()
		return template.Secret{}, context.Cause(ctx)
	}
	list, err := m.services.answerOf(ctx, "", "")
	if err == nil && path == "kv/data/db" {
		data := map[string]any{"number": json.Number("12345678901234567890"), "yes": true, "list": []any{"a", 1}, "none": nil, "my.key": "dotted"}
		return template.Secret{Data: map[string]any{"data": data}}, nil
	}
	if err != nil || path != "kv/db" {
		return template.Secret{}, errors.Join(err, errors.New("nothing else"))
	}
	return template.Secret{Data: map[string]any{"address": list[0].Address}}, nil
}
