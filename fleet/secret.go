package fleet

import (
	"slices"
	"strings"
)

// Providers of secrets that edges have.
const (
	SecretOfNomad = "nomad" // a variable
	SecretOfVault = "vault"
)

// Engines of Vault in the config block of a secret. SecretEngineV1 is the default.
const (
	SecretEngineV1 = "kv"
	SecretEngineV2 = "kv_v2"
)

// Secret is a variable, or a secret of Vault, whose items a task gets in its env and config blocks as ${secret.NAME.KEY}.
type Secret struct {
	Name     string
	Provider string // SecretOfNomad or SecretOfVault
	Path     string
	Config   map[string]any    // engine of SecretOfVault
	Env      map[string]string // of a plugin
}

// SecretPrefix begins a reference to an item of a secret: secret.NAME.KEY.
const SecretPrefix = "secret."

// References returns what stands in each ${…} of a text.
func References(text string) []string {
	var found []string
	for {
		_, rest, is := strings.Cut(text, "${")
		name, after, closed := strings.Cut(rest, "}")
		if !is || !closed {
			return found
		}
		found, text = append(found, strings.TrimSpace(name)), after
	}
}

// SecretReferences returns the references to items of secrets in a text, such as secret.NAME.KEY.
func SecretReferences(text string) []string {
	return slices.DeleteFunc(References(text), func(ref string) bool { return !strings.HasPrefix(ref, SecretPrefix) })
}

// ReferencesIn returns the references of a task's env block, or of a value of its config block, in order, each once.
func ReferencesIn(v any) []string {
	var found []string
	switch v := v.(type) {
	case string:
		found = References(v)
	case []string:
		for _, s := range v {
			found = append(found, References(s)...)
		}
	case map[string]string:
		for _, s := range v {
			found = append(found, References(s)...)
		}
	case map[string][]string:
		for _, list := range v {
			found = append(found, ReferencesIn(list)...)
		}
	case []any:
		for _, x := range v {
			found = append(found, ReferencesIn(x)...)
		}
	case map[string]any:
		for _, x := range v {
			found = append(found, ReferencesIn(x)...)
		}
	case map[any]any: // as CBOR gives a map inside any
		for _, x := range v {
			found = append(found, ReferencesIn(x)...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// SecretReferencesIn returns those of ReferencesIn to items of secrets.
func SecretReferencesIn(v any) []string {
	return slices.DeleteFunc(ReferencesIn(v), func(ref string) bool { return !strings.HasPrefix(ref, SecretPrefix) })
}

// ConfigAuth is the key of the config block with the password of an image's registry, which drivers use once and do not record.
const ConfigAuth = "auth"

// PassesSecrets reports whether the environment or the arguments of a task have items of secrets, and may not be on the disk.
func (t *Task) PassesSecrets() bool {
	for key, v := range t.Config {
		if key != ConfigAuth && len(SecretReferencesIn(v)) > 0 {
			return true
		}
	}
	return len(SecretReferencesIn(t.Env)) > 0
}

// NeedsEnvInMemory reports whether a task of the group has a token or an item of a secret in its environment or its arguments.
func (g *TaskGroup) NeedsEnvInMemory() bool {
	return slices.ContainsFunc(g.DeliveredIdentities(), func(w OwnedIdentity) bool { return w.Env }) ||
		slices.ContainsFunc(g.Tasks, func(t Task) bool { return t.PassesSecrets() })
}
