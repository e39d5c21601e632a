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
// with. The cluster's own gossip key belongs to its first state key, and each later state key has one: so a rotation replaces
// it. stored is the key that this hub used last; it counts alone while this hub knows no other.
func (k *Keyring) GossipKeys(v *state.View, stored []byte) ([][]byte, error) {
	cluster, ok := v.Cluster()
	if !ok {
		return [][]byte{stored}, nil
	}
	rows := v.StateKeys()
	if len(rows) == 0 { // before the first rotation
		rows = []*state.StateKey{{ID: cluster.SealKey, Number: 1}}
	}
	var keys [][]byte
	for _, row := range rows {
		key, err := k.gossipKeyOf(cluster, row)
		switch {
		case err != nil:
			return nil, err
		case key == nil:
		case row.ID == cluster.SealKey:
			keys = slices.Insert(keys, 0, key)
		case row.ForgottenAt == 0:
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return [][]byte{stored}, nil
	}
	return keys, nil
}

// gossipKeyOf returns the gossip key that belongs to a state key, or nil if this hub cannot know it yet.
func (k *Keyring) gossipKeyOf(cluster *state.Cluster, row *state.StateKey) ([]byte, error) {
	if row.Number == 1 {
		if opened, err := k.Open(*cluster); err == nil {
			return opened.GossipKey, nil
		}
		return nil, nil
	}
	if key, known := k.cfg.Keys.findKey(row.ID); known {
		return key.gossipKey()
	}
	return nil, nil
}
