package login

import (
	"cmp"
	"slices"
	"strings"

	"github.com/hashicorp/go-bexpr"

	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/state"
)

const (
	maxSelector      = 4096    // bytes
	maxSelectorSteps = 200_000 // of the parser
)

// compileSelector compiles the selector of a binding rule; nil: it selects everybody.
func compileSelector(s string) (*bexpr.Evaluator, error) {
	if s == "" {
		return nil, nil
	}
	if len(s) > maxSelector {
		return nil, fleet.Errorf(fleet.CodeInvalid, "its selector has %d bytes: at most %d are allowed", len(s), maxSelector)
	}
	e, err := bexpr.CreateEvaluator(s, bexpr.WithMaxExpressions(maxSelectorSteps))
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "its selector cannot be read: %w", err).
			WithHint(`write it like "engineers" in list.groups and value.mail matches ".*@example.com"`)
	}
	return e, nil
}

// selectsClaims reports whether a rule is for somebody with these claims. A selector that this release cannot read selects
// nobody, as in Nomad. A claim that is missing equals nothing.
func selectsClaims(rule *fleet.ACLBindingRule, mapped claims) bool {
	e, err := compileSelector(rule.Selector)
	if err != nil {
		return false
	}
	if e == nil {
		return true
	}
	selected, err := e.Evaluate(mapped)
	return err == nil && selected
}

// bindToken returns a token with what the binding rules of an auth method give to somebody with these claims, and the ids
// of the rules that matched. Roles and policies that do not exist give nothing.
func bindToken(v *state.View, method string, mapped claims) (token fleet.ACLToken, matched []string, err error) {
	token.Type = fleet.ACLTokenClient
	for rule := range v.ACLBindingRules() {
		if rule.AuthMethod != method || !selectsClaims(rule, mapped) {
			continue
		}
		matched = append(matched, rule.ID)
		if rule.BindType == fleet.ACLBindManagement {
			return fleet.ACLToken{Type: fleet.ACLTokenManagement}, matched, nil
		}
		name, err := bindName(rule, mapped)
		if err != nil {
			return token, matched, err
		}
		switch rule.BindType {
		case fleet.ACLBindRole:
			if role, ok := v.ACLRoleByName(name); ok {
				token.Roles = append(token.Roles, fleet.ACLTokenRole{ID: role.ID, Name: role.Name})
			}
		case fleet.ACLBindPolicy:
			if _, ok := v.ACLPolicy(name); ok {
				token.Policies = append(token.Policies, name)
			}
		}
	}
	slices.Sort(token.Policies)
	token.Policies = slices.Compact(token.Policies)
	slices.SortFunc(token.Roles, func(x, y fleet.ACLTokenRole) int { return cmp.Compare(x.ID, y.ID) })
	token.Roles = slices.Compact(token.Roles)
	if len(token.Policies)+len(token.Roles) == 0 {
		return token, matched, fleet.Errorf(fleet.CodeInvalid, "no role or policy bindings matched").
			WithHint("skerry acl binding-rule list shows the rules: each needs a selector that matches the claims, and the role or policy that it names")
	}
	return token, matched, nil
}

// bindName returns the name of the role or policy that a rule gives. Claims in it are in lower case, as in Nomad.
func bindName(rule *fleet.ACLBindingRule, mapped claims) (string, error) {
	values := map[string]string{}
	for name, value := range mapped.Value {
		values["value."+name] = strings.ToLower(value)
	}
	name, err := expandTemplate(rule.BindName, values)
	if err != nil {
		return "", fleet.Errorf(fleet.CodeForbidden, "the binding rule %s: %w", rule.ID, err)
	}
	if !acl.IsName(name) {
		return "", fleet.Errorf(fleet.CodeForbidden, "the binding rule %s gives the %s %q, which cannot be a name", rule.ID, rule.BindType, name)
	}
	return name, nil
}

// tokenName returns the name of the token of a login.
func tokenName(m *fleet.ACLAuthMethod, mapped claims) (string, error) {
	values := map[string]string{"auth_method_type": m.Type, "auth_method_name": m.Name}
	for _, target := range m.Config.ClaimMappings {
		values["value."+target] = mapped.Value[target]
	}
	return expandTemplate(cmp.Or(m.TokenNameFormat, "${auth_method_type}-${auth_method_name}"), values)
}
