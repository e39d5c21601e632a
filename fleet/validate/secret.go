package validate

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"skerry/fleet"
)

// maxSecretName bounds the name of a secret, in characters, and maxSecretPath its path, in bytes.
const (
	maxSecretName = 128
	maxSecretPath = 1 << 10
)

// validateSecrets checks the secret blocks of a task, and that ${secret.NAME.KEY} names one of them.
func validateSecrets(t *fleet.Task, ps *fleet.Problems, at string) {
	names := map[string]bool{}
	for i := range t.Secrets {
		s, path := &t.Secrets[i], fmt.Sprintf("%s.Secrets[%d]", at, i)
		if !fleet.IsName(s.Name, maxSecretName, "_-") {
			ps.Add(path+".Name", "%.64q cannot name a secret: letters, digits, dashes and underscores, at most %d", s.Name, maxSecretName)
		}
		if names[s.Name] {
			ps.Add(path+".Name", "secret %q is defined twice", s.Name)
		}
		names[s.Name] = true
		validateSecret(t, s, ps, path)
	}
	for _, ref := range append(fleet.SecretReferencesIn(t.Env), fleet.SecretReferencesIn(t.Config)...) {
		name, key, _ := strings.Cut(strings.TrimPrefix(ref, fleet.SecretPrefix), ".")
		hint := "write ${secret.NAME.KEY}, with the name of a secret block of the task"
		if !names[name] {
			hint = Suggest(name, slices.Sorted(maps.Keys(names)), hint)
		}
		if !names[name] || key == "" {
			ps.AddHint(at, hint, "${%.128s} is no item of a secret of task %q", ref, t.Name)
		}
	}
}

// validateSecret checks one secret block. refuseSecrets refuses other providers.
func validateSecret(t *fleet.Task, s *fleet.Secret, ps *fleet.Problems, path string) {
	if s.Provider == "" {
		ps.AddHint(path+".Provider", "it is nomad or vault", "a secret needs a provider")
	}
	switch {
	case strings.Trim(s.Path, "/") == "":
		ps.AddHint(path+".Path", "it is the path of a variable, or of a secret of Vault", "a secret needs a path")
	case len(s.Path) > maxSecretPath:
		ps.Add(path+".Path", "it has %d bytes: at most %d are allowed", len(s.Path), maxSecretPath)
	}
	if s.Provider != fleet.SecretOfVault {
		return
	}
	if t.Vault == nil {
		ps.AddHint(path+".Provider", "add one: vault {}", "it is a secret of Vault, and task %q has no vault block", t.Name)
	}
	if engine, is := s.Config["engine"]; is && engine != fleet.SecretEngineV1 && engine != fleet.SecretEngineV2 {
		ps.AddHint(path+".Config.engine", "it is kv or kv_v2", "unknown engine %.64q", fmt.Sprint(engine))
	}
}

// refuseSecrets refuses secret blocks that no edge can read.
func refuseSecrets(j *fleet.Job, ps *fleet.Problems) {
	for i := range j.TaskGroups {
		g := &j.TaskGroups[i]
		for k := range g.Tasks {
			for n := range g.Tasks[k].Secrets {
				refuseSecret(j, g, &g.Tasks[k], n, ps, fmt.Sprintf("TaskGroups[%d].Tasks[%d].Secrets[%d]", i, k, n))
			}
		}
	}
}

func refuseSecret(j *fleet.Job, g *fleet.TaskGroup, t *fleet.Task, n int, ps *fleet.Problems, path string) {
	s := &t.Secrets[n]
	known := []string{"engine"}
	switch s.Provider {
	case fleet.SecretOfVault, "":
	case fleet.SecretOfNomad:
		known = []string{"namespace"}
		own := cmp.Or(j.Namespace, fleet.DefaultNamespace)
		if v, is := s.Config["namespace"]; is && v != own {
			ps.AddHint(path+".Config.namespace", "leave it out: a task reads variables of its own namespace, "+own, "namespace %.64q of a secret is not supported", fmt.Sprint(v))
		}
		refuseSecretPath(j, g, t, s, ps, path)
	default:
		ps.AddHint(path+".Provider", "it is nomad or vault", "provider %.64q of a secret is not supported: there are no plugins", s.Provider)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(s.Config)) {
		if !slices.Contains(known, key) {
			ps.AddHint(path+".Config."+key, "leave it out, or write "+strings.Join(known, ", "), "%s in the config of a secret is not supported", key)
		}
	}
}

// refuseSecretPath refuses the path of a variable that the task may not read. One with ${…} is checked on the node.
func refuseSecretPath(j *fleet.Job, g *fleet.TaskGroup, t *fleet.Task, s *fleet.Secret, ps *fleet.Problems, path string) {
	of := fleet.Alloc{JobID: j.ID, Job: j, TaskGroup: g.Name}
	mine := of.VariablePaths(t.Name)
	if own := strings.Trim(s.Path, "/"); own != "" && !strings.Contains(own, "${") && !slices.Contains(mine, own) {
		ps.AddHint(path+".Path", "write one of "+strings.Join(mine, ", "), "the variable %.64q is not supported: task %q may not read it", s.Path, t.Name)
	}
}

// secretPlaces are the fields in which ${secret.NAME.KEY} is replaced, or is text for somebody else.
var secretPlaces = []string{"TaskGroups.Tasks.Env", "TaskGroups.Tasks.Config", "TaskGroups.Tasks.Templates.EmbeddedTmpl"}

// refuseSecretReferences refuses ${secret.NAME.KEY} in a field in which it would stay text.
func refuseSecretReferences(v reflect.Value, ps *fleet.Problems, field, path string) {
	if slices.Contains(secretPlaces, field) || !v.CanInterface() {
		return
	}
	if refs := fleet.SecretReferencesIn(v.Interface()); len(refs) > 0 {
		ps.AddHint(path, "use it in the env or the config block of the task", "${%.128s} is not supported here", refs[0])
	}
}

// secretKeys are the keys of a config block whose values drivers with HidesEnv keep off the disk.
var secretKeys = []string{"args", "jvm_options"}

// refuseSecretConfig refuses secrets in keys of the config block that the driver records on the disk.
func refuseSecretConfig(t *fleet.Task, can Abilities, ps *fleet.Problems, path string) {
	allowed := secretKeys
	if !can.HidesEnv {
		allowed = []string{fleet.ConfigAuth}
	}
	for _, key := range slices.Sorted(maps.Keys(t.Config)) {
		if refs := secretsIn(t, key); len(refs) > 0 && !slices.Contains(allowed, key) {
			ps.AddHint(path+".Config."+key, "write it into "+strings.Join(allowed, ", ")+", or let a template write a file of the secrets folder",
				"${%.128s} in %s is not supported: the driver %s keeps it on the edge's disk", refs[0], key, t.Driver)
		}
	}
}

// secretsIn returns the references in a value of the config block to items of secrets, and to variables of the env block that have one.
func secretsIn(t *fleet.Task, key string) []string {
	return slices.DeleteFunc(fleet.ReferencesIn(t.Config[key]), func(ref string) bool {
		name := strings.TrimPrefix(ref, "env.")
		if rest, is := strings.CutPrefix(ref, "env["); is {
			name = strings.Trim(rest, `"]`)
		}
		return !strings.HasPrefix(ref, fleet.SecretPrefix) && len(fleet.SecretReferences(t.Env[name])) == 0
	})
}
