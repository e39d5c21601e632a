package api

import (
	"sync"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/hub/workload"
)

// hubKeys returns the public keys of the hubs, by their ids.
func hubKeys(v *state.View) (keys []workload.PublicKey) {
	for row := range v.RootKeys() {
		if public, err := v.IdentityKey(row.KeyID); err == nil {
			keys = append(keys, workload.PublicKey{ID: row.KeyID, Key: public})
		}
	}
	return keys
}

// nodeKeys returns the public key of a node's edge, if it may sign.
func nodeKeys(v *state.View, node fleet.NodeID) []workload.PublicKey {
	id, public := v.PublishedIdentityKey(node)
	if id == "" {
		return nil
	}
	return []workload.PublicKey{{ID: id, Key: public}}
}

// nodeKeysIndex returns the entry that last changed a table on which the keys of edges depend.
func nodeKeysIndex(v *state.View) fleet.Index {
	return max(v.TableIndex("nodes"), v.TableIndex("allocs"), v.TableIndex("revocations"))
}

// keyCache has the public keys of all tokens that may be valid. It collects them anew when a table that they depend on has
// changed: anybody may ask. It is safe for concurrent use.
type keyCache struct {
	mu   sync.Mutex
	made fleet.Index // of the tables
	keys []workload.PublicKey
}

// allKeys returns the keys of the hubs, and of the edges that may sign, and the entry that last changed a table on which
// they depend.
func (k *keyCache) allKeys(v *state.View) ([]workload.PublicKey, fleet.Index) {
	made := max(v.TableIndex("root_keys"), nodeKeysIndex(v))
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.made == made {
		return k.keys, made
	}
	keys := hubKeys(v)
	for n := range v.Nodes("") {
		keys = append(keys, nodeKeys(v, n.ID)...)
	}
	k.made, k.keys = made, keys
	return keys, made
}
