package fleet_test

import (
	"slices"
	"testing"

	"skerry/fleet"
)

// TestSecretReferences: references are found in all values of a config block, each once, and nothing else is one.
func TestSecretReferences(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                   nil,
		"${secret.db.password}":              {"secret.db.password"},
		"a ${ secret.db.user } ${secret.a.b": {"secret.db.user"},
		"${secret.db.a}:${secret.db.b.c}":    {"secret.db.a", "secret.db.b.c"},
		"$secret.db.a {secret.a} ${secrets.a.b} ${env.secret.a}": nil,
		"${\u00a0secret.db.a\v} ${a ${secret.b.c}":               {"secret.db.a"},
	} {
		if got := fleet.SecretReferences(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	config := map[string]any{
		"args": []any{"${secret.a.x}", 1, map[any]any{"k": "${secret.b.x}"}}, "env": map[string]any{"k": "${secret.a.x}"}, "names": []string{"${secret.c.x}"},
	}
	if got, want := fleet.SecretReferencesIn(config), []string{"secret.a.x", "secret.b.x", "secret.c.x"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPassesSecrets: only a secret in the environment or the arguments needs memory on the edge. The password of a registry does not.
func TestPassesSecrets(t *testing.T) {
	for _, try := range []struct {
		task fleet.Task
		want bool
	}{
		{fleet.Task{Secrets: []fleet.Secret{{Name: "a"}}, Env: map[string]string{"A": "${NOMAD_ALLOC_ID}"}}, false},
		{fleet.Task{Env: map[string]string{"A": "x ${secret.a.b}"}}, true},
		{fleet.Task{Config: map[string]any{"args": []any{"${secret.a.b}"}}}, true},
		{fleet.Task{Config: map[string]any{"auth": []any{map[string]any{"password": "${secret.a.b}"}}}}, false},
	} {
		g := fleet.TaskGroup{Tasks: []fleet.Task{{Name: "other"}, try.task}}
		if got := try.task.PassesSecrets(); got != try.want || g.NeedsEnvInMemory() != try.want {
			t.Errorf("%+v: %v, and its group %v; want %v", try.task, got, g.NeedsEnvInMemory(), try.want)
		}
	}
}
