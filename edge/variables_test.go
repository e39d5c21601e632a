package edge_test

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/edge"
	"skerry/edge/contract"
	"skerry/edge/journal"
	"skerry/edge/machinekey"
	"skerry/edge/runner"
	"skerry/edge/templates"
	"skerry/edge/variables"
	"skerry/fleet"
	"skerry/syncproto"
)

// storedAt is when a hub stored the delivered variables.
const storedAt = 1_700_000_000_000_000_000

// mustDeliverVariable leaves in a data directory what a hub's delivery of a variable leaves.
func mustDeliverVariable(t testing.TB, dir, path string, items map[string]string) {
	t.Helper()
	key, text := machinekey.New()
	mustWriteFile(t, filepath.Join(dir, "identity", "machine-key"), text)
	j, err := journal.Open(journal.Config{Path: filepath.Join(dir, "journal.db"), BootID: boot1, Mono: func() time.Duration { return time.Minute }})
	if err != nil {
		t.Fatal(err)
	}
	k, err := variables.Open(variables.Config{Journal: j, Sealer: key, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := syncproto.EncodeItems(items)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Accept(t.Context(), []syncproto.DeliveredVariable{{Path: path, ModifyIndex: 7, ModifyTime: storedAt, Items: encoded}}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestVariablesWithoutALink: after each reboot without a link a template with a variable is rendered again, by another
// agent and from nothing but the disk. Nothing on the disk has the value in clear but the task's own file.
func TestVariablesWithoutALink(t *testing.T) {
	const secret = "marked-secret-value"
	dir := mustEnrolled(t, shop)
	mustDeliverVariable(t, dir, "nomad/jobs/shop", map[string]string{"password": secret})
	task := &fleet.Task{Name: "t", Templates: []fleet.Template{{EmbeddedTmpl: `{{ with nomadVar "nomad/jobs/shop" }}p={{ .password }}{{ end }}`, DestPath: "secrets/p"}}}
	for i, boot := range []fleet.BootID{boot1, boot2} {
		m, logs := &runnerRecorder{}, &logBuffer{}
		cfg := config(dir, m, logs)
		cfg.BootID = boot
		var machine edge.Machine
		makeRunners := cfg.Runners
		cfg.Runners = func(given edge.Machine) (contract.New, error) { machine = given; return makeRunners(given) }
		kept := fleet.KeptTemplate{Task: "t", Name: "template 1", Rendered: time.Unix(int64(i), 0).UTC()}
		cfg.KeptTemplates = func(of string, g *fleet.TaskGroup) []fleet.KeptTemplate {
			if of != filepath.Join(dir, "tasks", string(shop)) || g == nil || g.Name != "g" {
				t.Errorf("asked for the templates of group %v in %s", g, of)
			}
			return []fleet.KeptTemplate{kept}
		}
		l := mustStart(t, cfg)
		mustRecover(t, l)
		hook := templates.NewHook(templates.Config{
			Variable: machine.Variable, Key: machine.Key, Now: time.Now, Jitter: func() float64 { return 0 }, Log: slog.New(slog.DiscardHandler),
		})
		root := filepath.Join(dir, "allocs", string(shop))
		p := &runner.Preparation{
			Alloc: fleet.Alloc{ID: shop, JobID: "shop", TaskGroup: "g"}, Task: task,
			Config: &drivers.TaskConfig{
				Dir: filepath.Join(root, "t"), AllocDir: filepath.Join(root, "alloc"), LocalDir: filepath.Join(root, "t", "local"), SecretsDir: filepath.Join(root, "t", "secrets"),
				StateDir: filepath.Join(dir, "tasks", string(shop), "t", "1"),
			},
			Event: func(_, message string) error { t.Errorf("event: %s", message); return nil },
		}
		for _, folder := range []string{p.Config.SecretsDir, p.Config.LocalDir, p.Config.AllocDir} {
			if err := os.MkdirAll(folder, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := hook.Prepare(t.Context(), p); err != nil {
			t.Fatalf("boot %d: %v", i, err)
		}
		file := filepath.Join(p.Config.SecretsDir, "p")
		if b, err := os.ReadFile(file); err != nil || string(b) != "p="+secret {
			t.Fatalf("boot %d: %q, %v", i, b, err)
		}
		s, err := l.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := s.Allocs[0].Variables, []fleet.VariableMeta{{Path: "nomad/jobs/shop", ModifyIndex: 7, ModifyTime: storedAt}}; !slices.Equal(got, want) {
			t.Errorf("boot %d: the status has the variables %+v, want %+v", i, got, want)
		}
		if got := s.Allocs[0].Templates; !slices.Equal(got, []fleet.KeptTemplate{kept}) {
			t.Errorf("boot %d: the status has the templates %+v, want %+v", i, got, kept)
		}
		if err := l.stop(); err != nil {
			t.Fatal(err)
		}
		mustHaveNowhere(t, dir, secret, file)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}

// mustHaveNowhere fails for a file below dir, apart from one, that has the text.
func mustHaveNowhere(t testing.TB, dir, text, except string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || path == except {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(text)) {
			t.Errorf("%s has the value in clear", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
