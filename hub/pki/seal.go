package pki

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/internal/sealing"
)

// The replicated state has the CA's key and the gossip key sealed with a key that is in
// no state, no snapshot and no log: each hub keeps it in a file, and sends it to a hub that
// joins. So nobody can sign with a stolen snapshot or log.
//
// The sealed bytes are: one byte of version (1), a nonce of 12 bytes, and AES-256-GCM of the
// length of the CA's key (4 bytes, big endian), the CA's key and the gossip key. The
// additional data is "skerry-cluster-secrets/1", a zero byte, the cluster's id, a zero
// byte, and the CA's certificate (DER).
const (
	sealLabel = "skerry-cluster-secrets/1"

	stateKeyBytes = sealing.KeyBytes
)

// StateKey is the key that encrypts the secrets of a cluster in its state.
type StateKey [stateKeyBytes]byte

// NewStateKey draws a key.
func NewStateKey() StateKey {
	var k StateKey
	rand.Read(k[:]) // never fails
	return k
}

// ParseStateKey returns the state key, unencrypted, that another hub sent. Bytes of another length are an error.
func ParseStateKey(b []byte) (StateKey, error) {
	if len(b) != stateKeyBytes {
		return StateKey{}, fleet.Errorf(fleet.CodeInvalid, "read a state key: %d bytes, not %d", len(b), stateKeyBytes)
	}
	return StateKey(b), nil
}

// ID returns a name of the key, derived from it by a hash.
func (k StateKey) ID() string {
	sum := sha256.Sum256(append([]byte("skerry-state-key-id/1\x00"), k[:]...))
	return hex.EncodeToString(sum[:8])
}

// String returns the key's name, never the key.
func (k StateKey) String() string { return "state key " + k.ID() }

// LogValue logs the key's name, never the key.
func (k StateKey) LogValue() slog.Value { return slog.StringValue(k.ID()) }

// Seal returns the command that replaces the plain secrets of a cluster by encrypted ones.
func (k StateKey) Seal(c state.Cluster) (state.ClusterSeal, error) {
	plain := binary.BigEndian.AppendUint32(nil, uint32(len(c.CAKey)))
	plain = append(append(plain, c.CAKey...), c.GossipKey...)
	sealed, err := k.encryptBytes(plain, sealData(c))
	return state.ClusterSeal{ClusterID: c.ID, Sealed: sealed, SealKey: k.ID()}, err
}

// encryptBytes seals plain with the additional data.
func (k StateKey) encryptBytes(plain, additional []byte) ([]byte, error) {
	key, err := sealing.NewKey(k[:])
	if err != nil {
		return nil, err
	}
	return key.Seal(plain, additional), nil
}

// decryptBytes reverses encryptBytes. what names the sealed thing in errors. CodeVersion: a newer release sealed it.
// CodeInvalid: it is damaged.
func (k StateKey) decryptBytes(what string, sealed, additional []byte) ([]byte, error) {
	key, err := sealing.NewKey(k[:])
	if err != nil {
		return nil, err
	}
	plain, err := key.Open(sealed, additional)
	switch {
	case errors.Is(err, sealing.ErrVersion):
		return nil, fleet.Errorf(fleet.CodeVersion, "open %s: sealed in version %d", what, sealed[0]).
			WithHint("a newer release wrote it; upgrade this hub")
	case errors.Is(err, sealing.ErrChanged):
		return nil, fleet.Errorf(fleet.CodeInvalid, "open %s: changed, or sealed for another cluster or purpose", what)
	case err != nil:
		return nil, fleet.Errorf(fleet.CodeInvalid, "open %s: %v", what, err)
	}
	return plain, nil
}

// sealData is the additional data that binds the secrets to their cluster.
func sealData(c state.Cluster) []byte {
	return slices.Concat([]byte(sealLabel), []byte{0}, []byte(c.ID), []byte{0}, c.CACert)
}

// OpenCluster returns a cluster with decrypted secrets. CodeUnavailable: none of the keys is the one that sealed them.
// CodeInvalid: they are damaged.
func OpenCluster(c state.Cluster, keys []StateKey) (state.Cluster, error) {
	if len(c.Sealed) == 0 {
		return c, nil // an older release made it
	}
	i := slices.IndexFunc(keys, func(k StateKey) bool { return k.ID() == c.SealKey })
	if i < 0 {
		return state.Cluster{}, missingStateKey(fmt.Sprintf("open the secrets of cluster %s: they are", fleet.Short(c.ID)), c.SealKey, keys)
	}
	what := fmt.Sprintf("the secrets of cluster %s", fleet.Short(c.ID))
	plain, err := keys[i].decryptBytes(what, c.Sealed, sealData(c))
	if err != nil {
		return state.Cluster{}, err
	}
	if len(plain) < 4 || uint64(binary.BigEndian.Uint32(plain)) > uint64(len(plain)-4) {
		return state.Cluster{}, fleet.Errorf(fleet.CodeInvalid, "open %s: their length is wrong", what)
	}
	n := binary.BigEndian.Uint32(plain)
	c.CAKey, c.GossipKey = plain[4:4+n], plain[4+n:]
	c.Sealed, c.SealKey = nil, ""
	return c, nil
}

// missingStateKey returns the error for something that is sealed with the key named id, which this hub does not have.
// what begins the message, up to "they are" or "it is".
func missingStateKey(what, id string, keys []StateKey) error {
	has := "this hub has none"
	if len(keys) > 0 {
		var ids []string
		for _, k := range keys {
			ids = append(ids, k.ID())
		}
		has = "this hub has " + strings.Join(ids, ", ")
	}
	return fleet.Errorf(fleet.CodeUnavailable, "%s sealed with the state key %s, and %s", what, id, has).
		WithHint("this hub fetches the key when it reaches another hub; otherwise copy the file identity/state-key from another hub's data directory, or from a backup of this one, and restart this hub")
}
