package validate_test

import (
	"strings"
	"testing"

	"skerry/fleet/validate"
)

// problemsOf returns what is wrong with a job of one task, and what is not supported in it.
func problemsOf(task string) string {
	job, problems := validate.DecodeJob([]byte(identityJob(task)))
	if len(problems) == 0 {
		validate.FillDefaults(job)
		problems = append(validate.Job(job), validate.Unsupported(job)...)
	}
	return strings.Join(problems.Lines(), "\n")
}

// secretBlocks returns the field Secrets with blocks of the names a and b.
func secretBlocks(a, b string) string {
	return `"Secrets": [{"Name": "a", ` + a + `}, {"Name": "b", ` + b + `}]`
}

const ofNomad = `"Provider": "nomad", "Path": "nomad/jobs/a"`

// TestSecretBlocks: what is wrong, or cannot be done, is named.
func TestSecretBlocks(t *testing.T) {
	for task, want := range map[string]string{
		secretBlocks(ofNomad, ofNomad): "",
		secretBlocks(ofNomad, `"Provider": "vault", "Path": "kv/a", "Config": {"engine": "kv_v2"}`) + `, "Vault": {}`: "",
		secretBlocks(ofNomad, `"Provider": "vault", "Path": "kv/a"`):                                                  "has no vault block",
		secretBlocks(ofNomad, `"Provider": "vault", "Path": "kv/a", "Config": {"engine": "v3"}`) + `, "Vault": {}`:    "unknown engine",
		secretBlocks(ofNomad, `"Path": "nomad/jobs"`):                                                                 "needs a provider",
		secretBlocks(ofNomad, `"Provider": "nomad"`):                                                                  "needs a path",
		secretBlocks(ofNomad, `"Provider": "nomad", "Path": "`+strings.Repeat("x", 2000)+`"`):                         "at most 1024",
		secretBlocks(ofNomad, `"Provider": "aws", "Path": "a"`):                                                       "provider \"aws\" of a secret is not supported",
		secretBlocks(ofNomad, ofNomad+`, "Env": {"A": "b"}`):                                                          "env of a secret is not supported",
		`"Secrets": [{"Name": "a", ` + ofNomad + `}, {"Name": "a", ` + ofNomad + `}]`:                                 "defined twice",
		`"Secrets": [{"Name": "a.b", ` + ofNomad + `}]`:                                                               "cannot name a secret",
	} {
		if text := problemsOf(task); want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", task, text, want)
		}
	}
}

// TestSecretConfig: a secret has the config of its provider, and a variable the namespace of the job.
func TestSecretConfig(t *testing.T) {
	for config, want := range map[string]string{
		`{"namespace": "default"}`: "",
		`{"namespace": "other"}`:   "namespace \"other\" of a secret is not supported",
		`{"engine": "kv"}`:         "engine in the config of a secret is not supported",
	} {
		if text := problemsOf(secretBlocks(ofNomad, ofNomad+`, "Config": `+config)); want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", config, text, want)
		}
	}
}

// TestSecretPath: a variable that the task may not read is refused, with those that it may.
func TestSecretPath(t *testing.T) {
	for path, allowed := range map[string]bool{
		"nomad/jobs": true, "nomad/jobs/a": true, "/nomad/jobs/a/g/": true, "nomad/jobs/a/g/t": true, "nomad/jobs/${NOMAD_JOB_ID}": true,
		"nomad/jobs/b": false, "nomad/jobs/a/g/u": false, "other": false,
	} {
		text := problemsOf(`"Secrets": [{"Name": "a", "Provider": "nomad", "Path": "` + path + `"}]`)
		if (text == "") != allowed || !allowed && !strings.Contains(text, "may not read it") {
			t.Errorf("%s: %q", path, text)
		}
	}
}

// TestWhereSecretsAreUsed: a reference to a secret that is not there, or where it would stay text or be on the disk, is refused.
func TestWhereSecretsAreUsed(t *testing.T) {
	for task, want := range map[string]string{
		`"Env": {"A": "${secret.a.key}"}`:                                                                               "",
		`"Env": {"A": "${secret.c.key}"}`:                                                                               "is no item of a secret",
		`"Env": {"A": "${secret.a}"}`:                                                                                   "is no item of a secret",
		`"Driver": "raw_exec", "Config": {"command": "a", "args": ["${secret.a.k}"]}`:                                   "",
		`"Driver": "raw_exec", "Config": {"command": "${secret.a.k}"}`:                                                  "in command is not supported",
		`"Driver": "docker", "Config": {"image": "a", "auth": {"password": "${secret.a.k}"}}`:                           "",
		`"Driver": "docker", "Config": {"image": "a", "args": ["${secret.a.k}"]}`:                                       "in args is not supported",
		`"Driver": "podman", "Env": {"A": "${secret.a.k}"}`:                                                             "in env is not supported with the driver podman",
		`"Driver": "raw_exec", "Env": {"D": "${secret.a.k}"}, "Config": {"command": "a", "work_dir": "${D}"}`:           "in work_dir is not supported",
		`"Driver": "raw_exec", "Env": {"D": "${secret.a.k}"}, "Config": {"command": "${env[\"D\"]}"}`:                   "in command is not supported",
		`"Driver": "raw_exec", "Env": {"D": "${secret.a.k}"}, "Config": {"command": "${attr.d}", "args": ["${env.D}"]}`: "",
		`"User": "${secret.a.k}"`:                                                                                       "is not supported here",
		`"Meta": {"k": "${secret.a.k}"}`:                                                                                "is not supported here",
		`"Services": [{"Name": "s", "Provider": "nomad", "Tags": ["${secret.a.k}"]}]`:                                   "is not supported here",
		`"Services": [{"Name": "s", "Provider": "nomad", "PortLabel": "80", "Checks": [{"Type": "http", "Path": "/", "Interval": 1000000000, "Timeout": 1000000000, "Header": {"A": ["${secret.a.k}"]}}]}]`: "is not supported here",
		`"Templates": [{"DestPath": "local/a", "EmbeddedTmpl": "echo ${secret.a.k}"}]`: "",
	} {
		text := problemsOf(secretBlocks(ofNomad, ofNomad) + ", " + task)
		if want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", task, text, want)
		}
	}
}
