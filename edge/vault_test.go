package edge_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/edge"
	"skerry/edge/contract"
	"skerry/edge/logins/loginstest"
	"skerry/edge/logins/tokens"
	"skerry/edge/runner"
	"skerry/edge/templates"
	"skerry/edge/vault"
	"skerry/edge/vault/vaulttest"
	"skerry/fleet"
	"skerry/fleet/template"
	"skerry/syncproto"
)

// TestVaultWithoutALink: a task that has logged in to Vault once starts with its token and its secrets after each reboot, from
// nothing but the disk, while neither Vault nor a hub can be reached. Nothing on the disk has them in clear but the task's
// own files, and no log has them at all.
func TestVaultWithoutALink(t *testing.T) {
	issuer := loginstest.NewIssuer()
	server := vaulttest.New(issuer.Keys)
	server.SetRole("shop", vaulttest.Role{Audience: "vault.io", TTL: time.Hour})
	server.MountKV("kv", 2)
	server.Put("kv", "db", map[string]any{"password": "marked-password"})
	dir := mustEnrolled(t, shop)
	mustDeliverIdentity(t, dir, syncproto.DeliveredIdentity{Alloc: shop, Task: "t", Name: fleet.VaultIdentity, Token: issuer.Sign("vault.io", time.Hour, nil), KeyID: "k1", Issued: 1, Expires: 2})
	task := &fleet.Task{Name: "t", Vault: &fleet.Vault{Role: "shop"}, Templates: []fleet.Template{{EmbeddedTmpl: `{{ with secret "kv/db" }}p={{ .Data.data.password }}{{ end }}`, DestPath: "secrets/p"}}}
	token := ""
	for i, boot := range []fleet.BootID{boot1, boot2, boot1} {
		m, logs := &runnerRecorder{}, &logBuffer{}
		cfg := config(dir, m, logs)
		client, err := vault.NewClient(vault.ClientConfig{Address: "https://vault.example.com:8200", Transport: server})
		if err != nil {
			t.Fatal(err)
		}
		cfg.BootID, cfg.Vault = boot, client
		var machine edge.Machine
		makeRunners := cfg.Runners
		cfg.Runners = func(given edge.Machine) (contract.New, error) { machine = given; return makeRunners(given) }
		l := mustStart(t, cfg)
		mustRecover(t, l)
		p := vaultPreparation(t, dir, task)
		hooks := []runner.Hook{
			tokens.ForVault(machine.Vault, machine.Identities, slog.New(slog.DiscardHandler)),
			templates.NewHook(templates.Config{Key: machine.Key, Now: time.Now, Jitter: func() float64 { return 0 }, Log: slog.New(slog.DiscardHandler), Secret: func(ctx context.Context, alloc fleet.AllocID, task *fleet.Task, path string, list bool) (template.Secret, error) {
				return machine.Vault.Secret(ctx, machine.Vault.Client().Task(alloc, task.Name, task.Vault), path, list)
			}}),
		}
		for _, h := range hooks {
			if err := h.Prepare(t.Context(), p); err != nil {
				t.Fatalf("boot %d: %v", i, err)
			}
		}
		files := map[string]string{filepath.Join(p.Config.SecretsDir, "p"): "p=marked-password", filepath.Join(p.Config.SecretsDir, "vault_token"): token}
		for file, want := range files {
			b, err := os.ReadFile(file)
			if err != nil || want != "" && string(b) != want || !strings.Contains(string(b), "marked") {
				t.Errorf("boot %d: %s has %q, %v, want %q", i, file, b, err, want)
			}
			if filepath.Base(file) == "vault_token" {
				token = string(b)
			}
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.stop(); err != nil {
			t.Fatal(err)
		}
		mustHaveNowhere(t, dir, "marked", "")
		if strings.Contains(logs.String(), "marked") {
			t.Errorf("boot %d: the log: %s", i, logs.String())
		}
		server.FailNetwork(errors.New("no route to host"))
	}
}

// vaultPreparation is an attempt of a task of the allocation shop, with its folders.
func vaultPreparation(t *testing.T, dir string, task *fleet.Task) *runner.Preparation {
	t.Helper()
	root := filepath.Join(dir, "allocs", string(shop))
	p := &runner.Preparation{
		Alloc: fleet.Alloc{ID: shop, JobID: "shop", TaskGroup: "g"}, Task: task,
		Config: &drivers.TaskConfig{
			Dir: filepath.Join(root, "t"), AllocDir: filepath.Join(root, "alloc"), LocalDir: filepath.Join(root, "t", "local"), SecretsDir: filepath.Join(root, "t", "secrets"),
			StateDir: filepath.Join(dir, "tasks", string(shop), "t", "1"),
		},
		Event: func(_, message string) error {
			if strings.Contains(message, "marked") || !strings.Contains(message, "Vault token that it had") {
				t.Errorf("event: %s", message)
			}
			return nil
		},
	}
	for _, folder := range []string{p.Config.SecretsDir, p.Config.LocalDir, p.Config.AllocDir} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return p
}
