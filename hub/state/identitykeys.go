package state

import (
	"crypto"
	"crypto/x509"

	"skerry/fleet"
	"skerry/syncproto/nodekey"
)

// Hubs sign identities of workloads with the signing keys of root keys. An edge signs those of its own tasks while no hub is
// in reach, where the job allows it. Its key is published from when the node has told it until the node is revoked or removed,
// tells another, or has no unfinished allocation with such a task. The owner of the key can sign anything with it: a hub takes
// a token only for a task that it has placed on that node itself, with what the job says of the identity.

// identityRefusal returns the error for an identity whose key does not count.
func identityRefusal(format string, args ...any) *fleet.Error {
	return fleet.Errorf(fleet.CodeForbidden, "workload identity refused: "+format, args...)
}

// IdentityKey returns the public key with an id, which verifies identities of workloads. CodeForbidden: no hub and no edge
// signs with it, or its node is revoked.
func (v *View) IdentityKey(keyID string) (crypto.PublicKey, error) {
	if node, ok := nodekey.NodeOf(keyID); ok {
		return v.nodeIdentityKey(node, keyID)
	}
	row, ok := v.RootKey(keyID)
	if !ok || row.Signing == nil {
		return nil, identityRefusal("its key %.64q is unknown: it is another cluster's, or was removed", keyID)
	}
	public, err := x509.ParsePKIXPublicKey(row.Signing.Public)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the signing key of root key %s: %w", keyID, err)
	}
	return public, nil
}

// nodeIdentityKey returns the public key with an id that a node has told.
func (v *View) nodeIdentityKey(node fleet.NodeID, keyID string) (crypto.PublicKey, error) {
	n, ok := v.Node(node)
	if !ok {
		return nil, identityRefusal("its key %.100q is of a node that is unknown", keyID)
	}
	if _, revoked := v.Revocation(node); revoked {
		return nil, identityRefusal("node %s, whose edge has signed it, is revoked", node)
	}
	if nodekey.ID(node, n.Attributes[nodekey.Attribute]) != keyID {
		return nil, identityRefusal("its key %.100q was removed, or is not the one of node %s", keyID, node)
	}
	public, err := nodekey.ParsePublic(n.Attributes[nodekey.Attribute])
	if err != nil {
		return nil, identityRefusal("the key of node %s cannot be read", node)
	}
	return public, nil
}

// PublishedIdentityKey returns the id of the key with which a node's edge may sign, and the key; "": it may not.
func (v *View) PublishedIdentityKey(node fleet.NodeID) (keyID string, public crypto.PublicKey) {
	n, ok := v.Node(node)
	if !ok || n.Attributes[nodekey.Attribute] == "" {
		return "", nil
	}
	keyID = nodekey.ID(node, n.Attributes[nodekey.Attribute])
	public, err := v.nodeIdentityKey(node, keyID)
	if err != nil || !v.hasOfflineIdentity(node) {
		return "", nil
	}
	return keyID, public
}

// hasOfflineIdentity reports whether a node has an unfinished allocation with an identity that its edge may sign.
func (v *View) hasOfflineIdentity(node fleet.NodeID) bool {
	for a := range v.AllocsByNode(node) {
		if g := a.Group(); g != nil && !a.Terminal() && g.HasOfflineIdentities() {
			return true
		}
	}
	return false
}
