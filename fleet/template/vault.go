package template

import (
	"slices"

	"skerry/fleet"
)

// Secret is an answer of Vault, as secret returns it.
type Secret struct {
	LeaseID       string         `json:"lease_id"`
	LeaseDuration int64          `json:"lease_duration"` // seconds
	Renewable     bool           `json:"renewable"`
	Data          map[string]any `json:"data"`
}

// Keys returns the keys of an answer to a list, in order.
func (s Secret) Keys() []string {
	all, _ := s.Data["keys"].([]any)
	var out []string
	for _, key := range all {
		if text, ok := key.(string); ok {
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// readSecret returns what Vault has at a path.
func (r *renderer) readSecret(path string, values ...string) (*Secret, error) {
	if len(values) > 0 {
		return nil, fleet.Errorf(fleet.CodeUnsupported, "secret with values would write to Vault, which is not supported").
			WithHint("let the task do it, with its token")
	}
	s, err := r.askVault(path, false)
	return &s, err
}

// listSecrets returns the keys at a path of Vault. A path without any has no answer.
func (r *renderer) listSecrets(path string) ([]string, error) {
	s, err := r.askVault(path, true)
	return s.Keys(), err
}

// askVault reads from Vault. What it returns is secret from then on, also the names of keys.
func (r *renderer) askVault(path string, list bool) (Secret, error) {
	r.reads = true
	if r.sources.Secret == nil {
		return Secret{}, fleet.Errorf(fleet.CodeInvalid, "the task has no vault block").WithHint("add one: vault {}")
	}
	s, err := r.sources.Secret(path, list)
	if err != nil {
		return Secret{}, sourceError(err)
	}
	r.secret = true
	return s, nil
}
