package validate_test

import (
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/validate"
)

// identityJob is a job whose task has identities, in JSON.
func identityJob(identities string) string {
	if !strings.Contains(identities, `"Driver":`) {
		identities = `"Driver": "sim", ` + identities
	}
	if !strings.Contains(identities, `"Config":`) {
		identities = `"Config": {}, ` + identities
	}
	return `{"ID": "a", "Name": "a", "Type": "service", "Datacenters": ["dc1"], "TaskGroups": [{"Name": "g", "Count": 1, "Tasks": [{"Name": "t", ` + identities + `}]}]}`
}

func TestIdentities(t *testing.T) {
	for identities, want := range map[string]string{
		`"Identity": {"File": true}`: "",
		`"Identities": [{"Name": "aws", "Audience": ["a", "b"], "TTL": 5000000000, "File": true}]`:                     "",
		`"Identities": [{"Name": "a", "File": true, "ChangeMode": "signal"}]`:                                          "",
		`"Identities": [{"Name": "a", "File": true, "TTL": 3600000000000, "Offline": true}]`:                           "",
		`"Identities": [{"Name": "a", "File": true, "Offline": true}]`:                                                 "an offline identity needs a ttl",
		`"Identity": {"File": true, "Offline": true}`:                                                                  "TaskGroups[0].Tasks[0].Identity.TTL",
		`"Identity": {"Env": true}, "Identities": [{"Name": "a", "Env": true}]`:                                        "",
		`"Driver": "podman", "Identity": {"Env": true}`:                                                                "Identity.Env: env of an identity is not supported with the driver podman",
		`"Driver": "docker", "Identities": [{"Name": "a", "Env": true}]`:                                               "Identities[0].Env",
		`"Identities": [{"Name": "a.b"}]`:                                                                              "cannot name an identity",
		`"Identities": [{"Name": "a"}, {"Name": "a"}]`:                                                                 "defined twice",
		`"Identity": {"File": true}, "Identities": [{"Name": "default"}]`:                                              "defined twice",
		`"Identities": [{"Name": "a", "TTL": 4999999999}]`:                                                             "too short: at least 5s",
		`"Identities": [{"Name": "a", "TTL": -1}]`:                                                                     "TTL",
		`"Identities": [{"Name": "a", "ChangeMode": "script"}]`:                                                        "change_mode",
		`"Identities": [{"Name": "a", "ChangeMode": "signal", "ChangeSignal": "rm -rf"}]`:                              "not the name of a signal",
		`"Identities": [{"Name": "a", "File": true, "Filepath": "../../x"}]`:                                           "outside of the allocation's folder",
		`"Identities": [{"Name": "a", "File": true, "Filepath": "x"}, {"Name": "b", "File": true, "Filepath": "./x"}]`: "write the same file x",
		`"Identities": [{"Name": "a", "File": true}, {"Name": "b", "File": true, "Filepath": "secrets/nomad_a.jwt"}]`:  "write the same file",
		`"Identities": [{"Name": "a", "Audience": ["` + strings.Repeat("x", 2049) + `"]}]`:                             "at most 2048",
	} {
		job, problems := validate.DecodeJob([]byte(identityJob(identities)))
		if len(problems) == 0 {
			validate.FillDefaults(job)
			problems = append(validate.Job(job), validate.Unsupported(job)...)
		}
		text := strings.Join(problems.Lines(), "\n")
		if want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", identities, text, want)
		}
	}
}

// Identities get Nomad's defaults.
func TestIdentityDefaults(t *testing.T) {
	job, problems := validate.DecodeJob([]byte(identityJob(`"Identity": {"File": true}, "Identities": [{"Name": "a", "ChangeMode": "signal", "File": true}]`)))
	if len(problems) > 0 {
		t.Fatal(problems.Lines())
	}
	validate.FillDefaults(job)
	all := job.TaskGroups[0].Tasks[0].ExposedIdentities()
	if len(all) != 2 || all[0].Name != fleet.DefaultIdentity || len(all[0].Audience) != 1 || all[0].Audience[0] != fleet.DefaultAudience || len(all[1].Audience) != 0 || all[1].ChangeSignal != "SIGHUP" {
		t.Errorf("%+v", all)
	}
}
