package validate_test

import (
	"slices"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/validate"
)

// TestVaultBlocks: what is wrong, or cannot be done, is named.
func TestVaultBlocks(t *testing.T) {
	secret := `"Templates": [{"DestPath": "secrets/a", "EmbeddedTmpl": "{{ secret \"kv/a\" }}"}]`
	for task, want := range map[string]string{
		`"Vault": {}`: "",
		`"Vault": {"Role": "r", "Namespace": "n", "Env": false, "DisableFile": true, "ChangeMode": "signal", "AllowTokenExpiration": true, "Cluster": "default"}`: "",
		`"Vault": {}, ` + secret:                                                "",
		`"Vault": {"ChangeMode": "script"}`:                                     "unknown change_mode",
		`"Vault": {"ChangeMode": "signal", "ChangeSignal": "rm -rf"}`:           "not the name of a signal",
		`"Vault": {"Role": "` + strings.Repeat("x", 513) + `"}`:                 "cannot be one of Vault",
		`"Vault": {"Namespace": "a\nb"}`:                                        "cannot be one of Vault",
		`"Vault": {"Cluster": "second"}`:                                        "cluster of a vault block is not supported",
		`"Vault": {"Policies": ["db"]}`:                                         "policies of a vault block is not supported",
		secret:                                                                  "no vault block",
		`"Vault": {}, ` + strings.Replace(secret, "{", `{"Envvars": true, `, 1): "",
		`"Driver": "docker", "Vault": {}, ` + strings.Replace(secret, "{", `{"Envvars": true, `, 1): "env of a template that reads a secret of Vault is not supported with the driver docker",
	} {
		job, problems := validate.DecodeJob([]byte(identityJob(task)))
		if len(problems) == 0 {
			validate.FillDefaults(job)
			problems = append(validate.Job(job), validate.Unsupported(job)...)
		}
		text := strings.Join(problems.Lines(), "\n")
		if want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", task, text, want)
		}
	}
}

// TestVaultIdentity: a task with a vault block has the identity for it, with Nomad's defaults, of which a block may say
// otherwise; other tasks have none.
func TestVaultIdentity(t *testing.T) {
	for task, want := range map[string]string{
		`"Meta": {}`:  "",
		`"Vault": {}`: "vault_default [vault.io] 1h0m0s",
		`"Vault": {}, "Identities": [{"Name": "vault_default"}]`:                                                            "vault_default [vault.io] 1h0m0s",
		`"Vault": {}, "Identities": [{"Name": "vault_default", "Audience": ["a"], "TTL": 60000000000}, {"Name": "hidden"}]`: "vault_default [a] 1m0s",
		`"Vault": {}, "Identities": [{"Name": "vault_default", "Audience": ["a"], "TTL": 60000000000, "File": true}]`:       "vault_default [a] 1m0s",
		`"Identities": [{"Name": "vault_default", "Audience": ["a"], "TTL": 60000000000}]`:                                  "",
	} {
		job, problems := validate.DecodeJob([]byte(identityJob(task)))
		if len(problems) > 0 {
			t.Fatal(problems.Lines())
		}
		validate.FillDefaults(job)
		var got []string
		for _, w := range job.TaskGroups[0].Tasks[0].DeliveredIdentities() {
			got = append(got, w.Name+" ["+strings.Join(w.Audience, " ")+"] "+w.TTL.String())
		}
		if text := strings.Join(got, "; "); text != want || job.TaskGroups[0].HasIdentities() != (want != "") {
			t.Errorf("%s: %q, want %q", task, text, want)
		}
		if strings.Contains(task, "Vault") {
			if lines := validate.HiddenIdentities(job); slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "vault_default") }) {
				t.Errorf("%s: %q", task, lines)
			}
		}
	}
}

// TestVaultWarnings: a job that waits for a Vault says so, and so does one whose token is in the environment.
func TestVaultWarnings(t *testing.T) {
	j := &fleet.Job{TaskGroups: []fleet.TaskGroup{{Name: "a"}, {Name: "b", Tasks: []fleet.Task{{Name: "t", Driver: "docker", Vault: &fleet.Vault{Env: true}}, {Name: "hides", Driver: "exec", Vault: &fleet.Vault{Env: true}}, {Name: "u", Vault: &fleet.Vault{}}}}}}
	got := validate.VaultWarnings(j, func() bool { return false })
	if len(got) != 2 || !strings.Contains(got[0], `group "b" waits`) || !strings.Contains(got[1], `task "t": VAULT_TOKEN is in its environment`) {
		t.Errorf("%q", got)
	}
	if got := validate.VaultWarnings(j, func() bool { return true }); len(got) != 1 {
		t.Errorf("with a node: %q", got)
	}
}
