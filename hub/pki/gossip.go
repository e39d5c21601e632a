package pki

import (
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"slices"

	"skerry/hub/state"
)

// gossipLabel is what a gossip key is derived for.
const gossipLabel = "skerry-gossip-key/1"

// gossipKey derives the key of the hubs' gossip from a state key.
func (k StateKey) gossipKey() ([]byte, error) {
	key, err := hkdf.Key(sha256.New, k[:], nil, gossipLabel, GossipKeyBytes)
	if err != nil {
		return nil, fmt.Errorf("derive the gossip key: %w", err)
	}
	return key, nil
}

// GossipKeys returns the keys of the hubs' gossip: first the one to encrypt with, then others that hubs may still encrypt
// with. stored is the key from the beginning of the cluster, or of this hub's membership. It goes with the cluster's first
// state key: each later state key has a gossip key, so that a rotation replaces this one, too.
func (k *Keyring) GossipKeys(v *state.View, stored []byte) ([][]byte, error) {
	rows := v.StateKeys()
	cluster, ok := v.Cluster()
	if !ok || len(rows) == 0 {
		return [][]byte{stored}, nil
	}
	var keys [][]byte
	for _, row := range rows {
		key := stored
		if row.Number > 1 {
			stateKey, known := k.cfg.Keys.findKey(row.ID)
			if !known {
				continue
			}
			var err error
			if key, err = stateKey.gossipKey(); err != nil {
				return nil, err
			}
		}
		switch {
		case row.ID == cluster.SealKey:
			keys = slices.Insert(keys, 0, key)
		case row.ForgottenAt == 0:
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 { // this hub knows none of them yet: without a key it would gossip in clear
		keys = append(keys, stored)
	}
	return keys, nil
}
