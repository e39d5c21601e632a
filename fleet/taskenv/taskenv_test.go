package taskenv_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/taskenv"
)

func sampleTaskPlace() taskenv.Place {
	job := &fleet.Job{
		ID: "shop", Name: "The Shop", Meta: map[string]string{"owner": "ops", "deep": "job"},
		TaskGroups: []fleet.TaskGroup{{
			Name: "web", Meta: map[string]string{"deep": "group"},
			Tasks: []fleet.Task{{
				Name: "serve", Resources: fleet.TaskResources{Resources: fleet.Resources{CPU: 250, MemoryMB: 64}}, Meta: map[string]string{"my-key": "v"},
				Env: map[string]string{
					"GREETING": "hello from ${node.unique.name}", "WHO": "${NOMAD_TASK_NAME}", "OTHER": "${GREETING}",
				},
			}},
		}},
	}
	return taskenv.Place{
		Alloc: &fleet.Alloc{
			ID: "11111111-2222-3333-4444-555555555555", Name: "shop.web[7]", Namespace: "default",
			JobID: "shop", Job: job, TaskGroup: "web",
		},
		Node: &fleet.Node{
			ID: "n1", Name: "ship-1", Datacenter: "dc1", NodeClass: "c", NodePool: "sea",
			Attributes: map[string]string{"kernel.name": "linux"}, Meta: map[string]string{"rack": "r1"},
		},
		Task: "serve", Region: "global", AllocDir: "/a", TaskDir: "/a/serve/local", SecretsDir: "/a/serve/secrets",
	}
}

func TestTaskEnv(t *testing.T) {
	got := taskenv.New(sampleTaskPlace()).Vars()
	want := map[string]string{
		"NOMAD_ALLOC_ID": "11111111-2222-3333-4444-555555555555", "NOMAD_SHORT_ALLOC_ID": "11111111",
		"NOMAD_ALLOC_NAME": "shop.web[7]", "NOMAD_ALLOC_INDEX": "7", "NOMAD_GROUP_NAME": "web", "NOMAD_TASK_NAME": "serve",
		"NOMAD_JOB_ID": "shop", "NOMAD_JOB_NAME": "The Shop", "NOMAD_NAMESPACE": "default", "NOMAD_REGION": "global",
		"NOMAD_DC": "dc1", "NOMAD_CPU_LIMIT": "250", "NOMAD_MEMORY_LIMIT": "64",
		"NOMAD_ALLOC_DIR": "/a", "NOMAD_TASK_DIR": "/a/serve/local", "NOMAD_SECRETS_DIR": "/a/serve/secrets",
		"NOMAD_META_owner": "ops", "NOMAD_META_OWNER": "ops", "NOMAD_META_deep": "group", "NOMAD_META_DEEP": "group",
		"NOMAD_META_my_key": "v", "NOMAD_META_MY_KEY": "v",
		"GREETING": "hello from ship-1", "WHO": "serve", "OTHER": "${GREETING}",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	environ := taskenv.New(sampleTaskPlace()).Environ()
	if !slices.IsSorted(environ) || !slices.Contains(environ, "NOMAD_DC=dc1") || len(environ) != len(want) {
		t.Errorf("environ %q", environ)
	}
}

func TestReplace(t *testing.T) {
	env := taskenv.New(sampleTaskPlace())
	for in, want := range map[string]string{
		"plain":                              "plain",
		"${attr.kernel.name}-${meta.rack}":   "linux-r1",
		"${node.class} ${node.pool} ${ WHO}": "c sea serve",
		`${env["GREETING"]}`:                 "hello from ship-1",
		"${env.NOMAD_DC}":                    "dc1",
		"${NOMAD_META_owner}":                "ops",
		"${attr.none} ${NONE} $${x} ${":      "${attr.none} ${NONE} $${x} ${",
		"${OTHER}":                           "${GREETING}", // what was put in is not looked at again
		"{{ env }} $HOME ${node.unique.id}}": "{{ env }} $HOME n1}",
	} {
		if got := env.Replace(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	config := map[string]any{
		"args": []any{"${NOMAD_DC}", 1, true}, "names": []string{"${NOMAD_DC}"},
		"deep": map[string]any{"k": "${NOMAD_DC}"}, "decoded": map[any]any{"k": []any{"${NOMAD_DC}"}},
	}
	want := map[string]any{
		"args": []any{"dc1", 1, true}, "names": []string{"dc1"},
		"deep": map[string]any{"k": "dc1"}, "decoded": map[string]any{"k": []any{"dc1"}},
	}
	if got := env.ReplaceAll(config); !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, want %#v", got, want)
	}
	if config["args"].([]any)[0] != "${NOMAD_DC}" {
		t.Error("the configuration itself was changed")
	}
	if env.ReplaceAll(nil) != nil {
		t.Error("no configuration became one")
	}
}

// TestTaskEnvWithoutJob is what an allocation gets whose job is not known, or no
// longer has the task.
// TestSecretsAreNoVariables: only ${secret.NAME.KEY} is an item of a secret.
func TestSecretsAreNoVariables(t *testing.T) {
	place := sampleTaskPlace()
	place.Secrets = map[string]string{"secret.db.pin": "4711"}
	env := taskenv.New(place)
	for text, want := range map[string]string{
		"${secret.db.pin}": "4711", "${env.secret.db.pin}": "${env.secret.db.pin}", `${env["secret.db.pin"]}`: `${env["secret.db.pin"]}`, "${secret.db.no}": "${secret.db.no}",
	} {
		if got := env.WithSecrets(place.Secrets).Replace(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		if got := env.Replace(text); got != text {
			t.Errorf("%s: %s without secrets", text, got)
		}
	}
	if strings.Contains(strings.Join(env.Environ(), " "), "4711") {
		t.Errorf("variables %q", env.Environ())
	}
}

func TestTaskEnvWithoutJob(t *testing.T) {
	p := sampleTaskPlace()
	p.Task = "gone"
	if vars := taskenv.New(p).Vars(); vars["NOMAD_TASK_NAME"] != "gone" || vars["NOMAD_META_deep"] != "group" || vars["GREETING"] != "" {
		t.Errorf("a task that is gone: %q", vars)
	}
	p.Alloc.Job, p.Node = nil, nil
	if vars := taskenv.New(p).Vars(); vars["NOMAD_JOB_NAME"] != "shop" || vars["NOMAD_DC"] != "" {
		t.Errorf("without a job and a node: %q", vars)
	}
}

func FuzzReplace(f *testing.F) {
	f.Add("${attr.kernel.name} ${meta.x} ${env[\"HOME\"]} ${NOMAD_ALLOC_INDEX}")
	f.Add("${${}}${")
	f.Add("$${env.\xff}")
	env := taskenv.New(sampleTaskPlace())
	f.Fuzz(func(t *testing.T, s string) {
		got := env.Replace(s)
		if !strings.Contains(s, "${") && got != s {
			t.Fatalf("%q became %q", s, got)
		}
		if env.Replace("x"+s) != "x"+got {
			t.Fatalf("what stands before %q changes it", s)
		}
	})
}

// The values that two allocations have in common are known before there is one; the rest is not guessed.
func TestEnvBeforeAnAllocation(t *testing.T) {
	p := sampleTaskPlace()
	p.Alloc.Job.TaskGroups[0].Tasks[0].Env["MINE"] = "${NOMAD_ALLOC_ID}"
	env := taskenv.NewBefore(p.Alloc.Job, "web", "serve", p.Node)
	for text, want := range map[string]string{
		"${node.datacenter}/${meta.rack}/${NOMAD_JOB_ID}/${NOMAD_GROUP_NAME}/${NOMAD_META_owner}": "dc1/r1/shop/web/ops",
		"${GREETING}":         "hello from ship-1",
		"${NOMAD_ALLOC_ID}":   "${NOMAD_ALLOC_ID}",
		"${NOMAD_ALLOC_NAME}": "${NOMAD_ALLOC_NAME}", "${NOMAD_ALLOC_INDEX}": "${NOMAD_ALLOC_INDEX}", "${NOMAD_SHORT_ALLOC_ID}": "${NOMAD_SHORT_ALLOC_ID}",
		"${NOMAD_TASK_DIR}": "${NOMAD_TASK_DIR}", "${NOMAD_ALLOC_DIR}": "${NOMAD_ALLOC_DIR}", "${NOMAD_SECRETS_DIR}": "${NOMAD_SECRETS_DIR}",
		"${NOMAD_PORT_http}": "${NOMAD_PORT_http}", "${MINE}": "${MINE}",
	} {
		if got := env.Replace(text); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}
