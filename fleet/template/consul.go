package template

import (
	"strings"

	"skerry/fleet"
)

// KeyQuery is what a template reads from the key-value store of Consul.
type KeyQuery struct {
	Key    string // with @DATACENTER behind it for another one
	Below  bool   // all keys below it, and not itself
	Needed bool   // that there is no such key is an error
}

// Pair is a key of Consul with its value, as ls and tree return it.
type Pair struct {
	Path  string // the whole key
	Key   string // below the one that was asked for
	Value string
	Flags uint64
}

// askConsul reads keys.
func (r *renderer) askConsul(q KeyQuery) ([]Pair, error) {
	r.reads = true
	if r.sources.Pairs == nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "the task has no consul block").WithHint("add one: consul {}")
	}
	found, err := r.sources.Pairs(q)
	return found, sourceError(err)
}

// readKey returns the value of a key. One that does not exist has no answer.
func (r *renderer) readKey(key string) (string, error) {
	found, err := r.askConsul(KeyQuery{Key: key, Needed: true})
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[0].Value, nil
}

// keyExists reports whether there is a key.
func (r *renderer) keyExists(key string) (bool, error) {
	found, err := r.askConsul(KeyQuery{Key: key})
	return len(found) > 0, err
}

// keyOrDefault returns the value of a key, or another one if there is none or it is empty, as in consul-template.
func (r *renderer) keyOrDefault(key, other string) (string, error) {
	found, err := r.askConsul(KeyQuery{Key: key})
	if err != nil || len(found) == 0 || found[0].Value == "" {
		return other, err
	}
	return found[0].Value, nil
}

// listTree returns the keys below a key. Those that end with a slash are folders without a value.
func (r *renderer) listTree(key string) ([]Pair, error) {
	found, err := r.askConsul(KeyQuery{Key: key, Below: true})
	var out []Pair
	for _, p := range found {
		if p.Key != "" && !strings.HasSuffix(p.Key, "/") {
			out = append(out, p)
		}
	}
	return out, err
}

// listKeys returns the keys directly below a key.
func (r *renderer) listKeys(key string) ([]Pair, error) {
	found, err := r.listTree(key)
	var out []Pair
	for _, p := range found {
		if !strings.Contains(p.Key, "/") {
			out = append(out, p)
		}
	}
	return out, err
}
