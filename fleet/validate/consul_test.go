package validate_test

import (
	"fmt"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/validate"
)

// consulProblems returns what is wrong with a job, or cannot be done.
func consulProblems(tb testing.TB, task, service string) (*fleet.Job, string) {
	tb.Helper()
	src := identityJob(task)
	if service != "" {
		if !strings.HasPrefix(service, `"Name"`) {
			service = `"Name": "web", ` + service
		}
		src = strings.Replace(src, `"Tasks"`, `"Services": [{"PortLabel": "80", `+service+`}], "Tasks"`, 1)
	}
	job, problems := validate.DecodeJob([]byte(src))
	if len(problems) == 0 {
		validate.FillDefaults(job)
		problems = append(validate.Job(job), validate.Unsupported(job)...)
	}
	return job, strings.Join(problems.Lines(), "\n")
}

// TestConsulBlocks: what is wrong, or cannot be done, is named.
func TestConsulBlocks(t *testing.T) {
	const key = `"Templates": [{"EmbeddedTmpl": "{{ key \"a\" }}", "DestPath": "local/a", "Envvars": true}]`
	for task, want := range map[string]string{
		`"Consul": {}`: "",
		`"Consul": {"Cluster": "default", "Namespace": "default", "Partition": "default", "Env": true}`: "",
		`"Consul": {"Cluster": "second"}`:                    "cluster of a consul block is not supported",
		`"Consul": {"Namespace": "n"}`:                       "namespace of a consul block is not supported",
		`"Consul": {"Partition": "p"}`:                       "partition of a consul block is not supported",
		`"Consul": {}, ` + key:                               "",
		`"Identities": [{"Name": "consul_default"}], ` + key: "",
		key: "no consul block",
		`"Identities": [{"Name": "consul-service_web-80"}]`: "the name of an identity of a service",
	} {
		if _, text := consulProblems(t, task, ""); want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", task, text, want)
		}
	}
	for service, want := range map[string]string{
		`"Identity": {}`: "",
		`"Identity": {"Name": "consul-service_web-80", "Audience": ["a"], "TTL": 60000000000, "Offline": true}`: "",
		`"Identity": {"Name": "x"}`:                        "has the name consul-service_web-80",
		`"Identity": {"TTL": 1000000000}`:                  "too short",
		`"Identity": {"File": true}`:                       "file of an identity of a service",
		`"Identity": {"ChangeMode": "restart"}`:            "change_mode of an identity of a service",
		`"Provider": "nomad", "Identity": {}`:              "of provider nomad is not supported",
		`"Name": "a-${NOMAD_ALLOC_INDEX}", "Identity": {}`: "with ${…} in its name",
	} {
		if _, text := consulProblems(t, `"Meta": {}`, service); want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", service, text, want)
		}
	}
}

// TestConsulIdentities: tasks that log in, and services with an identity, have it with Nomad's names and defaults.
func TestConsulIdentities(t *testing.T) {
	for _, tc := range []struct{ task, service, want string }{
		{`"Meta": {}`, "", ""},
		{`"Consul": {}`, "", "t//consul_default [consul.io] 1h0m0s"},
		{`"Identities": [{"Name": "consul_default", "Audience": ["a"], "TTL": 60000000000}]`, "", "t//consul_default [a] 1m0s"},
		{`"Consul": {}, "Identities": [{"Name": "consul_default", "File": true}]`, "", "t//consul_default [consul.io] 1h0m0s"},
		{`"Meta": {}`, `"Identity": {}`, "/web/consul-service_web-80 [consul.io] 1h0m0s"},
		{`"Meta": {}`, `"TaskName": "t", "Identity": {"Audience": ["b"]}`, "/web/consul-service_t-web-80 [b] 1h0m0s"},
		{`"Services": [{"Name": "api", "PortLabel": "81", "Identity": {}}]`, "", "t/api/consul-service_t-api-81 [consul.io] 1h0m0s"},
	} {
		job, problems := consulProblems(t, tc.task, tc.service)
		if problems != "" {
			t.Errorf("%+v: %s", tc, problems)
		}
		g := &job.TaskGroups[0]
		var got []string
		for _, w := range g.DeliveredIdentities() {
			got = append(got, fmt.Sprintf("%s/%s/%s %v %v", w.Task, w.Service, w.Name, w.Audience, w.TTL))
		}
		if text := strings.Join(got, "; "); text != tc.want || g.HasIdentities() != (tc.want != "") || g.LogsInToConsul() != (tc.want != "") {
			t.Errorf("%+v: %q", tc, text)
		}
		if lines := validate.HiddenIdentities(job); len(lines) != 0 {
			t.Errorf("%+v: %q", tc, lines)
		}
	}
}

// TestConsulLoginWarnings: a job that waits for a Consul says so, and so does one whose token is in the environment.
func TestConsulLoginWarnings(t *testing.T) {
	j := &fleet.Job{TaskGroups: []fleet.TaskGroup{{Name: "a"}, {Name: "b", Tasks: []fleet.Task{{Name: "t", Driver: "docker", Consul: &fleet.Consul{Env: true}}, {Name: "hides", Driver: "exec", Consul: &fleet.Consul{Env: true}}, {Name: "u", Consul: &fleet.Consul{}}}}}}
	got := validate.ConsulLoginWarnings(j, func() bool { return false })
	if len(got) != 2 || !strings.Contains(got[0], `group "b" waits`) || !strings.Contains(got[1], `task "t": CONSUL_HTTP_TOKEN is in its environment`) {
		t.Errorf("%q", got)
	}
	if got := validate.ConsulLoginWarnings(j, func() bool { return true }); len(got) != 1 {
		t.Errorf("with a node: %q", got)
	}
}
