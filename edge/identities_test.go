package edge_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/edge"
	"skerry/edge/contract"
	"skerry/edge/identities"
	"skerry/edge/identities/files"
	"skerry/edge/journal"
	"skerry/edge/machinekey"
	"skerry/edge/runner"
	"skerry/fleet"
	"skerry/syncproto"
)

// mustDeliverIdentity leaves in a data directory what a hub's delivery of a token leaves.
func mustDeliverIdentity(t testing.TB, dir string, d syncproto.DeliveredIdentity) {
	t.Helper()
	key, text := machinekey.New()
	mustWriteFile(t, filepath.Join(dir, "identity", "machine-key"), text)
	j, err := journal.Open(journal.Config{Path: filepath.Join(dir, "journal.db"), BootID: boot1, Mono: func() time.Duration { return time.Minute }})
	if err != nil {
		t.Fatal(err)
	}
	k, err := identities.Open(identities.Config{Journal: j, Sealer: key, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Accept(t.Context(), []syncproto.DeliveredIdentity{d}, ""); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestIdentitiesWithoutALink: after each reboot without a link a task gets its token, though it has expired, from nothing
// but the disk. Nothing on the disk has it in clear but the task's own file. The status on site says when it ended.
func TestIdentitiesWithoutALink(t *testing.T) {
	const token = "marked.token.value"
	dir := mustEnrolled(t, shop)
	mustDeliverIdentity(t, dir, syncproto.DeliveredIdentity{Alloc: shop, Task: "t", Name: "default", Token: token, KeyID: "k1", Issued: 1000, Expires: 4600})
	for i, boot := range []fleet.BootID{boot1, boot2} {
		m, logs := &runnerRecorder{}, &logBuffer{}
		cfg := config(dir, m, logs)
		cfg.BootID = boot
		var machine edge.Machine
		makeRunners := cfg.Runners
		cfg.Runners = func(given edge.Machine) (contract.New, error) { machine = given; return makeRunners(given) }
		l := mustStart(t, cfg)
		mustRecover(t, l)
		root := filepath.Join(dir, "allocs", string(shop))
		p := &runner.Preparation{
			Alloc: fleet.Alloc{ID: shop, JobID: "shop", TaskGroup: "g"}, Task: &fleet.Task{Name: "t", Identity: &fleet.WorkloadIdentity{Name: "default", File: true}},
			Config: &drivers.TaskConfig{Dir: filepath.Join(root, "t"), AllocDir: filepath.Join(root, "alloc"), LocalDir: filepath.Join(root, "t", "local"), SecretsDir: filepath.Join(root, "t", "secrets")},
			Event:  func(_, message string) error { t.Errorf("event: %s", message); return nil },
		}
		if err := os.MkdirAll(p.Config.SecretsDir, 0o700); err != nil {
			t.Fatal(err)
		}
		hook := &files.Hook{Keeper: machine.Identities, Log: slog.New(slog.DiscardHandler)}
		if err := hook.Prepare(t.Context(), p); err != nil {
			t.Fatalf("boot %d: %v", i, err)
		}
		file := filepath.Join(p.Config.SecretsDir, "nomad_token")
		if b, err := os.ReadFile(file); err != nil || string(b) != token {
			t.Fatalf("boot %d: %q, %v", i, b, err)
		}
		s, err := l.Client.Status(context.Background())
		if err != nil || len(s.Allocs) != 1 || len(s.Allocs[0].Identities) != 1 || s.Allocs[0].Identities[0].Expires.Unix() != 4600 {
			t.Fatalf("boot %d: status %+v, %v", i, s.Allocs, err)
		}
		if err := l.stop(); err != nil {
			t.Fatal(err)
		}
		mustHaveNowhere(t, dir, token, file)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}
