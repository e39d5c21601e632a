package state

import (
	"iter"

	"skerry/fleet"
)

// ACLAuthMethodRecord is an auth method as the state has it: without its OIDCClientSecret, which is in Secret.
type ACLAuthMethodRecord struct {
	fleet.ACLAuthMethod
	Secret WrappedSecret
}

// WrappedSecret is a secret that is encrypted with the state key By (see package pki). None has no Data.
type WrappedSecret struct {
	Data []byte
	By   string
}

// ACLAuthMethodStore creates or replaces an auth method. It is refused (conflict) where another one is the default of
// its type.
type ACLAuthMethodStore struct {
	command
	Method ACLAuthMethodRecord
}

// ACLBindingRuleStore creates or replaces a binding rule. It is refused (invalid) where its auth method does not exist.
type ACLBindingRuleStore struct {
	command
	Rule fleet.ACLBindingRule
}

// ACLAuthDelete removes auth methods by name and binding rules by id. It is refused (not found) as a whole if one of them
// does not exist. Tokens of logins stay until they end, and so do the rules of a method, as in Nomad.
type ACLAuthDelete struct {
	command
	Methods []string
	Rules   []string
}

var (
	authMethodTable = table[ACLAuthMethodRecord]{
		name: "acl_auth_methods", key: func(r *ACLAuthMethodRecord) []byte { return key(r.Name) }, announced: true,
		records: []record[ACLAuthMethodRecord]{rowRecord[ACLAuthMethodRecord](170)},
	}
	bindingRuleTable = table[fleet.ACLBindingRule]{
		name: "acl_binding_rules", key: func(r *fleet.ACLBindingRule) []byte { return key(r.ID) }, announced: true,
		records: []record[fleet.ACLBindingRule]{rowRecord[fleet.ACLBindingRule](171)},
	}
)

// ACLAuthMethod returns an auth method; ok is false if there is none.
func (v *View) ACLAuthMethod(name string) (*ACLAuthMethodRecord, bool) {
	return authMethodTable.watchRow(v, key(name))
}

// ACLAuthMethods iterates over the auth methods by name.
func (v *View) ACLAuthMethods() iter.Seq[*ACLAuthMethodRecord] { return authMethodTable.watchRows(v) }

// ACLBindingRule returns a binding rule; ok is false if there is none.
func (v *View) ACLBindingRule(id string) (*fleet.ACLBindingRule, bool) {
	return bindingRuleTable.watchRow(v, key(id))
}

// ACLBindingRules iterates over the binding rules by id.
func (v *View) ACLBindingRules() iter.Seq[*fleet.ACLBindingRule] {
	return bindingRuleTable.watchRows(v)
}

// ShownMethod returns the auth method as people see it: RedactedSecret stands for the secret.
func (r *ACLAuthMethodRecord) ShownMethod() fleet.ACLAuthMethod {
	shown := r.ACLAuthMethod
	if shown.Config != nil && len(r.Secret.Data) > 0 {
		config := *shown.Config
		config.OIDCClientSecret = fleet.RedactedSecret
		shown.Config = &config
	}
	return shown
}

// aclAuthMethodStore applies the command ACLAuthMethodStore.
func (t *tx) aclAuthMethodStore(c ACLAuthMethodStore) Result {
	next := c.Method
	if next.Name == "" || next.Config == nil || next.Config.OIDCClientSecret != "" {
		return refusal(fleet.CodeInvalid, "store ACL auth method %q: it has no name, no configuration, or a secret in clear", next.Name)
	}
	if err := t.checkStateKey(next.Secret.By); err != nil {
		return Result{Err: err}
	}
	if next.Default {
		for other := range authMethodTable.scanRows(t.base) {
			if other.Default && other.Type == next.Type && other.Name != next.Name {
				return refusal(fleet.CodeConflict, "store ACL auth method %q: the method %q is the default of the type %s", next.Name, other.Name, next.Type)
			}
		}
	}
	next.CreateIndex, next.ModifyIndex = t.index, t.index
	if old := authMethodTable.currentRow(t, key(next.Name)); old != nil {
		next.CreateIndex, next.CreateTime = old.CreateIndex, old.CreateTime
	}
	authMethodTable.putRow(t, &next)
	authMethodTable.markChanged(t)
	return Result{}
}

// aclBindingRuleStore applies the command ACLBindingRuleStore.
func (t *tx) aclBindingRuleStore(c ACLBindingRuleStore) Result {
	next := c.Rule
	if next.ID == "" {
		return refusal(fleet.CodeInvalid, "store ACL binding rule: it has no id")
	}
	if authMethodTable.currentRow(t, key(next.AuthMethod)) == nil {
		return refusal(fleet.CodeInvalid, "store ACL binding rule %s: there is no auth method %q", next.ID, next.AuthMethod)
	}
	next.CreateIndex, next.ModifyIndex = t.index, t.index
	if old := bindingRuleTable.currentRow(t, key(next.ID)); old != nil {
		next.CreateIndex, next.CreateTime = old.CreateIndex, old.CreateTime
	}
	bindingRuleTable.putRow(t, &next)
	bindingRuleTable.markChanged(t)
	return Result{}
}

// aclAuthDelete applies the command ACLAuthDelete.
func (t *tx) aclAuthDelete(c ACLAuthDelete) Result {
	for _, err := range []*fleet.Error{
		missingRow(t, &authMethodTable, "auth method", c.Methods),
		missingRow(t, &bindingRuleTable, "binding rule", c.Rules),
	} {
		if err != nil {
			return Result{Err: err}
		}
	}
	removeNamed(t, &authMethodTable, c.Methods)
	removeNamed(t, &bindingRuleTable, c.Rules)
	return Result{}
}
