package pki

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/internal/datadir"
	"skerry/syncproto/identity"
)

// Names below a hub's data directory.
const (
	Folder           = "identity"       // of the identity
	JoinTokenFile    = "join-token"     // admits edges
	HubJoinTokenFile = "hub-join-token" // admits hubs
)

// Files of the identity, beside those of files.go.
const (
	gossipKeyFile = "gossip-key"
	// pendingFile holds the steps of a bootstrap or a join that are not committed yet.
	pendingFile = "pending.json"
)

// Pending has the steps of a bootstrap or a join that are not committed yet. A crash may interrupt
// them, and each one can be repeated.
type Pending struct {
	// Bootstrap: to be committed.
	Cluster     *state.Cluster     `json:",omitempty"`
	Token       *state.JoinToken   `json:",omitempty"` // of older releases: the only one, for both roles
	Tokens      []state.JoinToken  `json:",omitempty"`
	Certificate *state.Certificate `json:",omitempty"`

	Hubs []string `json:",omitempty"` // join: addresses of hubs to ask
}

// Credentials are the certificates and keys of a hub.
type Credentials struct {
	Identity  *identity.Identity
	GossipKey []byte
	Pending   *Pending // nil: the cluster knows this hub
}

// LoadCredentials reads the credentials of an earlier start from a folder. ok is false if it has no
// identity: a bootstrap that was interrupted before it wrote the identity starts over, since no other
// machine can know its CA.
func LoadCredentials(base string) (c Credentials, ok bool, err error) {
	c.Identity, ok, err = Load(base)
	if err == nil && !ok {
		return Credentials{}, false, nil
	}
	if err == nil {
		c.GossipKey, err = os.ReadFile(filepath.Join(base, gossipKeyFile))
	}
	if err == nil && len(c.GossipKey) != GossipKeyBytes {
		err = fmt.Errorf("read %s: %d bytes, not %d", filepath.Join(base, gossipKeyFile), len(c.GossipKey), GossipKeyBytes)
	}
	if err != nil {
		return Credentials{}, false, damaged(err)
	}
	b, err := os.ReadFile(filepath.Join(base, pendingFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, true, nil
	case err != nil:
		return Credentials{}, false, damaged(err)
	}
	c.Pending = new(Pending)
	if err := json.Unmarshal(b, c.Pending); err != nil {
		return Credentials{}, false, damaged(fmt.Errorf("read %s: %w", filepath.Join(base, pendingFile), err))
	}
	return c, true, nil
}

// damaged is the error for an identity that cannot be read. The hub makes no new one by itself, as the
// cluster knows it by the old one.
func damaged(err error) error {
	return fleet.Errorf(fleet.CodeInvalid, "read the hub's identity: %w", err).
		WithHint("restore the folder from a backup, or join the cluster under another name with another data directory")
}

// saveCredentials writes the credentials durably, the identity last: without it the other files do
// not count.
func (c *Credentials) saveCredentials(dir *datadir.Dir) error {
	b, err := json.Marshal(c.Pending)
	if err != nil {
		return fmt.Errorf("write the hub's identity: %w", err)
	}
	if err := os.MkdirAll(dir.File(Folder), 0o700); err != nil {
		return datadir.DiskError("write the hub's identity", err)
	}
	if err := dir.Write(filepath.Join(Folder, pendingFile), b, 0o600); err != nil {
		return err
	}
	if err := dir.Write(filepath.Join(Folder, gossipKeyFile), c.GossipKey, 0o600); err != nil {
		return err
	}
	if err := Save(dir.File(Folder), c.Identity); err != nil {
		return datadir.DiskError("write the hub's identity", err)
	}
	return nil
}

// SaveGossipKey stores the key with which this hub's gossip begins at its next start.
func SaveGossipKey(dir *datadir.Dir, key []byte) error {
	return dir.Write(filepath.Join(Folder, gossipKeyFile), key, 0o600)
}

// DropPending removes the pending steps from disk, after the cluster has committed them.
func DropPending(dir *datadir.Dir) error {
	err := os.Remove(dir.File(filepath.Join(Folder, pendingFile)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("finish joining the cluster: %w", err)
	}
	return nil
}
