package state

import (
	"iter"
	"slices"
	"time"

	"skerry/fleet"
)

// ACLTokenRecord is a token as the state has it: with the SHA-256 of its secret, and an empty SecretID.
type ACLTokenRecord struct {
	fleet.ACLToken
	Hash []byte
}

// aclRow says that access control was bootstrapped. A reset of the bootstrap must name Index.
type aclRow struct{ Index fleet.Index }

// OneTimeToken lets its bearer have the secret of a token once. Secret is that secret, encrypted with a key that is
// derived from the one-time secret, of which only the hash is here.
type OneTimeToken struct {
	Hash       []byte // SHA-256 of the one-time secret
	AccessorID string
	Secret     []byte
	ExpiresAt  time.Time
}

var (
	aclTable = table[aclRow]{
		name: "acl", key: onlyRow[aclRow], announced: true, records: []record[aclRow]{rowRecord[aclRow](150)},
	}
	aclPolicyTable = table[fleet.ACLPolicy]{
		name: "acl_policies", key: func(r *fleet.ACLPolicy) []byte { return key(r.Name) }, announced: true,
		records: []record[fleet.ACLPolicy]{rowRecord[fleet.ACLPolicy](151)},
	}
	aclRoleTable = table[fleet.ACLRole]{
		name: "acl_roles", key: func(r *fleet.ACLRole) []byte { return key(r.ID) }, announced: true,
		indexes: []tableIndex[fleet.ACLRole]{{indexName, func(r *fleet.ACLRole) []byte { return key(r.Name) }, nil}},
		records: []record[fleet.ACLRole]{rowRecord[fleet.ACLRole](152)},
	}
	aclTokenTable = table[ACLTokenRecord]{
		name: "acl_tokens", key: func(r *ACLTokenRecord) []byte { return key(r.AccessorID) }, announced: true,
		indexes: []tableIndex[ACLTokenRecord]{{indexSecret, func(r *ACLTokenRecord) []byte { return key(string(r.Hash)) }, nil}},
		records: []record[ACLTokenRecord]{rowRecord[ACLTokenRecord](153)},
	}
	oneTimeTable = table[OneTimeToken]{
		name: "one_time_tokens", key: func(r *OneTimeToken) []byte { return key(string(r.Hash)) }, announced: true,
		records: []record[OneTimeToken]{rowRecord[OneTimeToken](154)},
	}
)

const (
	indexName   = "name"
	indexSecret = "secret"
)

// keepAccess keeps who may do what as it was before a restore, so that a revoked token does not come back. A cluster
// without access control gets that of the snapshot.
func (t *tx) keepAccess(old *View) {
	if _, on := old.ACLBootstrap(); !on {
		return
	}
	aclTable.replaceRows(t, old)
	aclPolicyTable.replaceRows(t, old)
	aclRoleTable.replaceRows(t, old)
	aclTokenTable.replaceRows(t, old)
	oneTimeTable.replaceRows(t, old)
	authMethodTable.replaceRows(t, old)
	bindingRuleTable.replaceRows(t, old)
	siteCodeTable.replaceRows(t, old)
}

// ACLBootstrap returns the index that a reset of the bootstrap must name; ok is false before the bootstrap.
func (v *View) ACLBootstrap() (reset fleet.Index, ok bool) {
	row, ok := aclTable.watchRow(v, onlyKey)
	if !ok {
		return 0, false
	}
	return row.Index, true
}

// ACLPolicy returns a policy; ok is false if there is none.
func (v *View) ACLPolicy(name string) (*fleet.ACLPolicy, bool) {
	return aclPolicyTable.watchRow(v, key(name))
}

// ACLPolicies iterates over the policies by name.
func (v *View) ACLPolicies() iter.Seq[*fleet.ACLPolicy] { return aclPolicyTable.watchRows(v) }

// ACLRole returns a role by its id; ok is false if there is none.
func (v *View) ACLRole(id string) (*fleet.ACLRole, bool) { return aclRoleTable.watchRow(v, key(id)) }

// ACLRoleByName returns a role by its name; ok is false if there is none.
func (v *View) ACLRoleByName(name string) (*fleet.ACLRole, bool) {
	for r := range aclRoleTable.watchTable(v, indexName, key(name)) {
		return r, true
	}
	return nil, false
}

// ACLRoles iterates over the roles by id.
func (v *View) ACLRoles() iter.Seq[*fleet.ACLRole] { return aclRoleTable.watchRows(v) }

// ACLToken returns a token by its accessor; ok is false if there is none. Expired ones are there until they are
// collected.
func (v *View) ACLToken(accessor string) (*ACLTokenRecord, bool) {
	return aclTokenTable.watchRow(v, key(accessor))
}

// ACLTokenByHash returns a token by the SHA-256 of its secret; ok is false if there is none.
func (v *View) ACLTokenByHash(hash []byte) (*ACLTokenRecord, bool) {
	r := aclTokenTable.indexedRow(v.txn, indexSecret, key(string(hash)))
	return r, r != nil
}

// ACLTokens iterates over the tokens by accessor.
func (v *View) ACLTokens() iter.Seq[*ACLTokenRecord] { return aclTokenTable.watchRows(v) }

// OneTimeToken returns a one-time token by the SHA-256 of its secret; ok is false if there is none.
func (v *View) OneTimeToken(hash []byte) (*OneTimeToken, bool) {
	return oneTimeTable.watchRow(v, key(string(hash)))
}

// ExpiredACLTokens returns the accessors of tokens that have ended, and the hashes of one-time tokens that have.
func (v *View) ExpiredACLTokens(now time.Time) (accessors []string, oneTime [][]byte) {
	for r := range aclTokenTable.scanRows(v.txn) {
		if r.IsExpired(now) {
			accessors = append(accessors, r.AccessorID)
		}
	}
	for r := range oneTimeTable.scanRows(v.txn) {
		if !now.Before(r.ExpiresAt) {
			oneTime = append(oneTime, r.Hash)
		}
	}
	return accessors, oneTime
}

// ACLTokenShown returns a token as people see it: with the names of its roles, and without those that are gone.
func (v *View) ACLTokenShown(r *ACLTokenRecord) fleet.ACLToken {
	shown := r.ACLToken
	shown.Policies = slices.Clone(shown.Policies)
	shown.Roles = nil
	for _, link := range r.Roles {
		if role, ok := v.ACLRole(link.ID); ok {
			shown.Roles = append(shown.Roles, fleet.ACLTokenRole{ID: role.ID, Name: role.Name})
		}
	}
	return shown
}
