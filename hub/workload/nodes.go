package workload

import (
	"slices"
	"sync"

	jose "github.com/go-jose/go-jose/v4"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto/nodekey"
)

// An edge signs tokens of its own tasks while no hub is in reach, where the job allows it. Its key is published from when the
// node has told it until the node is revoked or removed, tells another, or has no unfinished allocation with such a task.
// The owner of the key can sign anything with it: a hub takes a token only for a task that it has placed on that node itself,
// with what the job says of the identity.

// announcedKey returns the public key with this id that a node has told. CodeForbidden: it counts no longer.
func announcedKey(v *state.View, node fleet.NodeID, keyID string) (any, error) {
	n, ok := v.Node(node)
	switch {
	case !ok:
		return nil, refusal("its key %.100q is of a node that is unknown", keyID)
	case isRevoked(v, node):
		return nil, refusal("node %s, whose edge has signed it, is revoked", node)
	case nodekey.ID(node, n.Attributes[nodekey.Attribute]) != keyID:
		return nil, refusal("its key %.100q was removed, or is not the one of node %s", keyID, node)
	}
	public, err := nodekey.ParsePublic(n.Attributes[nodekey.Attribute])
	if err != nil {
		return nil, refusal("the key of node %s cannot be read", node)
	}
	return public, nil
}

// checkOffline returns why a token that the edge of the allocation's node has signed does not count; nil: it does. Everything
// else that it says was checked before.
func (c *Claims) checkOffline(a *fleet.Alloc) error {
	w := c.offlineIdentity(a)
	switch {
	case a.NodeID != c.SignedBy:
		return refusal("node %s has signed it, and allocation %s is on node %s", c.SignedBy, a.ID, a.NodeID)
	case c.Node != c.SignedBy || !c.Offline:
		return refusal("it does not say that node %s has signed it without a hub", c.SignedBy)
	case w == nil:
		return refusal("no identity of task %.64q with the subject %.200q lets the edge sign it", c.Task, c.Subject).
			WithHint("offline = true in the identity block of the job allows it")
	case !slices.Equal(c.Audience, w.Audience):
		return refusal("its audience is not that of identity %s", w.Name)
	case c.Expires == 0 || c.Expires-c.IssuedAt > seconds(w.TTL) || c.NotBefore != c.IssuedAt:
		return refusal("it lasts longer than identity %s", w.Name)
	}
	return nil
}

// offlineIdentity returns the identity of an allocation's task that a token is of; nil: none that an edge may sign.
func (c *Claims) offlineIdentity(a *fleet.Alloc) *fleet.WorkloadIdentity {
	all := a.Group().Task(c.Task).DeliveredIdentities()
	i := slices.IndexFunc(all, func(w fleet.WorkloadIdentity) bool {
		return w.Offline && a.IdentitySubject(c.Task, w.Name) == c.Subject
	})
	if i < 0 {
		return nil
	}
	return &all[i]
}

// NodeKeys returns the public key of a node, if hubs publish it; else no key.
func NodeKeys(v *state.View, node fleet.NodeID) jose.JSONWebKeySet {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	n, ok := v.Node(node)
	if !ok || n.Attributes[nodekey.Attribute] == "" {
		return set
	}
	id := nodekey.ID(node, n.Attributes[nodekey.Attribute])
	public, err := announcedKey(v, node, id)
	if err != nil || !hasOfflineIdentity(v, node) {
		return set
	}
	set.Keys = append(set.Keys, jose.JSONWebKey{Key: public, KeyID: id, Algorithm: nodekey.Algorithm, Use: "sig"})
	return set
}

// NodeKeyID returns the id of the key that NodeKeys returns; "": there is none.
func NodeKeyID(v *state.View, node fleet.NodeID) string {
	if set := NodeKeys(v, node); len(set.Keys) > 0 {
		return set.Keys[0].KeyID
	}
	return ""
}

// hasOfflineIdentity reports whether a node has an unfinished allocation with an identity that its edge may sign.
func hasOfflineIdentity(v *state.View, node fleet.NodeID) bool {
	for a := range v.AllocsByNode(node) {
		if g := a.Group(); g != nil && !a.Terminal() && g.HasOfflineIdentities() {
			return true
		}
	}
	return false
}

// KeySets returns the public keys of all tokens that may be valid. It computes them anew when a table that they depend on has
// changed: anybody may ask. It is safe for concurrent use.
type KeySets struct {
	mu   sync.Mutex
	made [4]fleet.Index // of the tables
	set  jose.JSONWebKeySet
}

// AllKeys returns the keys of the hubs, and of the edges that may sign.
func (k *KeySets) AllKeys(v *state.View) jose.JSONWebKeySet {
	made := [4]fleet.Index{v.TableIndex("root_keys"), v.TableIndex("nodes"), v.TableIndex("allocs"), v.TableIndex("revocations")}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.set.Keys != nil && k.made == made {
		return k.set
	}
	set := HubKeys(v)
	for n := range v.Nodes("") {
		set.Keys = append(set.Keys, NodeKeys(v, n.ID).Keys...)
	}
	k.made, k.set = made, set
	return set
}
