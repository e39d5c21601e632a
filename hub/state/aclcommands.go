package state

import (
	"slices"
	"time"

	"skerry/fleet"
)

// ACLBootstrap makes the first management token, which turns access control on. It is refused (conflict) where it was
// done, unless Reset is the index that the refusal names.
type ACLBootstrap struct {
	command
	Token ACLTokenRecord
	Reset fleet.Index
}

// ACLPolicyStore creates or replaces a policy. The caller has parsed its rules.
type ACLPolicyStore struct {
	command
	Policy fleet.ACLPolicy
}

// ACLTokenStore creates a token, or changes the name, the type, the policies and the roles of a known one.
type ACLTokenStore struct {
	command
	Token ACLTokenRecord // Hash: of a new token alone
}

// ACLRoleStore creates or replaces a role. It is refused where a policy of it does not exist, or another role has the
// name.
type ACLRoleStore struct {
	command
	Role fleet.ACLRole
}

// ACLDelete removes policies by name, tokens by accessor and roles by id. It is refused (not found) as a whole if one
// of them does not exist.
type ACLDelete struct {
	command
	Policies []string
	Tokens   []string
	Roles    []string
}

// ACLOneTimeStore stores a one-time token.
type ACLOneTimeStore struct {
	command
	Token OneTimeToken
}

// ACLOneTimeUse removes a one-time token, whose bearer gets the secret that is sealed in it. It is refused (forbidden) if
// somebody was there before, or it has ended.
type ACLOneTimeUse struct {
	command
	Hash []byte
	Now  time.Time
}

// ACLExpire removes tokens that have ended at Now.
type ACLExpire struct {
	command
	Tokens  []string // accessors
	OneTime [][]byte // hashes
	Now     time.Time
}

// aclBootstrap applies the command ACLBootstrap.
func (t *tx) aclBootstrap(c ACLBootstrap) Result {
	if row := aclTable.currentRow(t, onlyKey); row != nil && row.Index != c.Reset {
		return Result{Err: ErrBootstrapped(row.Index)}
	}
	if res := t.storeNewToken(c.Token); res.Err != nil {
		return res
	}
	aclTable.putRow(t, &aclRow{Index: t.index})
	aclTable.markChanged(t)
	return Result{}
}

// ErrBootstrapped returns the refusal of a bootstrap that does not name the reset index.
func ErrBootstrapped(reset fleet.Index) *fleet.Error {
	return fleet.Errorf(fleet.CodeConflict, "ACL bootstrap already done (reset index: %d)", reset).
		WithHint("to do it again, write %d into the file acl-bootstrap-reset in the data directory of the hub that you ask", reset)
}

// storeNewToken stores a token that nobody knows yet.
func (t *tx) storeNewToken(next ACLTokenRecord) Result {
	if len(next.Hash) == 0 || next.AccessorID == "" {
		return refusal(fleet.CodeInvalid, "store ACL token %q: it has no secret", next.Name)
	}
	for other := range aclTokenTable.scanPrefix(t.base, indexSecret, key(string(next.Hash))) {
		return refusal(fleet.CodeConflict, "store ACL token %q: the token %s has the same secret", next.Name, other.AccessorID)
	}
	next.SecretID, next.CreateIndex, next.ModifyIndex = "", t.index, t.index
	aclTokenTable.putRow(t, &next)
	aclTokenTable.markChanged(t)
	return Result{}
}

// aclPolicyStore applies the command ACLPolicyStore. It does not parse the rules: hubs of two releases would differ.
func (t *tx) aclPolicyStore(c ACLPolicyStore) Result {
	next := c.Policy
	if next.Name == "" {
		return refusal(fleet.CodeInvalid, "store ACL policy: it has no name")
	}
	next.CreateIndex, next.ModifyIndex = t.index, t.index
	if old := aclPolicyTable.currentRow(t, key(next.Name)); old != nil {
		next.CreateIndex = old.CreateIndex
	}
	aclPolicyTable.putRow(t, &next)
	aclPolicyTable.markChanged(t)
	return Result{}
}

// aclTokenStore applies the command ACLTokenStore.
func (t *tx) aclTokenStore(c ACLTokenStore) Result {
	next := c.Token
	for _, link := range next.Roles {
		if aclRoleTable.currentRow(t, key(link.ID)) == nil {
			return refusal(fleet.CodeInvalid, "store ACL token %q: there is no role %s", next.Name, link.ID)
		}
	}
	old := aclTokenTable.currentRow(t, key(next.AccessorID))
	switch {
	case len(next.Hash) > 0 && old != nil:
		return refusal(fleet.CodeConflict, "store ACL token %q: there is a token %s", next.Name, next.AccessorID)
	case len(next.Hash) > 0:
		return t.storeNewToken(next)
	case old == nil:
		return refusal(fleet.CodeNotFound, "change ACL token %s: there is no such token", next.AccessorID)
	}
	changed := *old
	changed.Name, changed.Type, changed.Policies, changed.Roles, changed.ModifyIndex = next.Name, next.Type, next.Policies, next.Roles, t.index
	aclTokenTable.putRow(t, &changed)
	aclTokenTable.markChanged(t)
	return Result{}
}

// aclRoleStore applies the command ACLRoleStore.
func (t *tx) aclRoleStore(c ACLRoleStore) Result {
	next := c.Role
	if next.ID == "" || next.Name == "" {
		return refusal(fleet.CodeInvalid, "store ACL role %q: it has no id or no name", next.Name)
	}
	for _, link := range next.Policies {
		if aclPolicyTable.currentRow(t, key(link.Name)) == nil {
			return refusal(fleet.CodeInvalid, "store ACL role %q: there is no policy %q", next.Name, link.Name)
		}
	}
	for other := range aclRoleTable.scanPrefix(t.base, indexName, key(next.Name)) {
		if other.ID != next.ID {
			return refusal(fleet.CodeConflict, "store ACL role %q: the role %s has this name", next.Name, other.ID)
		}
	}
	next.CreateIndex, next.ModifyIndex = t.index, t.index
	if old := aclRoleTable.currentRow(t, key(next.ID)); old != nil {
		next.CreateIndex = old.CreateIndex
	}
	aclRoleTable.putRow(t, &next)
	aclRoleTable.markChanged(t)
	return Result{}
}

// aclDelete applies the command ACLDelete.
func (t *tx) aclDelete(c ACLDelete) Result {
	for _, err := range []*fleet.Error{
		missingRow(t, &aclPolicyTable, "policy", c.Policies),
		missingRow(t, &aclTokenTable, "token", c.Tokens),
		missingRow(t, &aclRoleTable, "role", c.Roles),
	} {
		if err != nil {
			return Result{Err: err}
		}
	}
	removeNamed(t, &aclPolicyTable, c.Policies)
	removeNamed(t, &aclTokenTable, c.Tokens)
	removeNamed(t, &aclRoleTable, c.Roles)
	return Result{}
}

// missingRow returns an error that names the first key without a row.
func missingRow[R any](t *tx, tb *table[R], what string, names []string) *fleet.Error {
	i := slices.IndexFunc(names, func(name string) bool { return tb.currentRow(t, key(name)) == nil })
	if i < 0 {
		return nil
	}
	return fleet.Errorf(fleet.CodeNotFound, "delete ACL %s %s: there is no such %s", what, names[i], what)
}

func removeNamed[R any](t *tx, tb *table[R], names []string) {
	for _, name := range names {
		tb.removeRow(t, key(name))
		tb.markChanged(t)
	}
}

// aclOneTimeStore applies the command ACLOneTimeStore.
func (t *tx) aclOneTimeStore(c ACLOneTimeStore) Result {
	if aclTokenTable.currentRow(t, key(c.Token.AccessorID)) == nil {
		return refusal(fleet.CodeNotFound, "make a one-time token: there is no token %s", c.Token.AccessorID)
	}
	oneTimeTable.putRow(t, &c.Token)
	oneTimeTable.markChanged(t)
	return Result{}
}

// aclOneTimeUse applies the command ACLOneTimeUse.
func (t *tx) aclOneTimeUse(c ACLOneTimeUse) Result {
	row := oneTimeTable.currentRow(t, key(string(c.Hash)))
	if row == nil || !c.Now.Before(row.ExpiresAt) {
		return refusal(fleet.CodeForbidden, "exchange a one-time token: it is unknown, was used or has ended")
	}
	oneTimeTable.removeRow(t, key(string(c.Hash)))
	oneTimeTable.markChanged(t)
	return Result{}
}

// aclExpire applies the command ACLExpire: it removes the named tokens that have ended.
func (t *tx) aclExpire(c ACLExpire) Result {
	for _, accessor := range c.Tokens {
		if r := aclTokenTable.currentRow(t, key(accessor)); r != nil && r.IsExpired(c.Now) {
			removeNamed(t, &aclTokenTable, []string{accessor})
		}
	}
	for _, hash := range c.OneTime {
		if r := oneTimeTable.currentRow(t, key(string(hash))); r != nil && !c.Now.Before(r.ExpiresAt) {
			removeNamed(t, &oneTimeTable, []string{string(hash)})
		}
	}
	return Result{}
}
