package acl

import (
	"fmt"
	"slices"

	"skerry/fleet"
)

// Explanation says why an ACL allows a requirement or not.
type Explanation struct {
	Allowed bool
	Reason  string
	Rules   []RuleMatch // those that decided first, then those of less specific names, which had no say
}

// RuleMatch is a rule whose name matches the object. Decides says that no rule is more specific.
type RuleMatch struct {
	Policy  string
	Rule    string
	Line    int
	Grants  []Capability
	Decides bool
}

// Explain says which rules of which policies decide on a requirement.
func (a *ACL) Explain(r Requirement) Explanation {
	if a.management {
		return Explanation{Allowed: true, Reason: "a management token may do everything"}
	}
	e := Explanation{Allowed: a.Allows(r)}
	if slices.Contains(a.implicit, r) {
		e.Reason = fmt.Sprintf("%s is granted to every workload, for what belongs to its own job", r)
		return e
	}
	if r.Kind == KindManagement {
		e.Reason = "this needs a management token: no policy can grant it"
		return e
	}
	denied := a.collectRules(r, &e)
	if r.Kind == KindSite {
		denied = a.collectRules(Requirement{Kind: KindNode, Capability: r.Capability}, &e) || denied
	}
	decided := 0
	for _, m := range e.Rules {
		if m.Decides {
			decided++
		}
	}
	switch {
	case e.Allowed:
		e.Reason = fmt.Sprintf("%s is granted", r)
	case denied:
		e.Reason = "a rule denies everything: deny takes precedence over what other policies grant"
	case decided > 0:
		e.Reason = fmt.Sprintf("the most specific rule does not grant %s", r)
	default:
		e.Reason = fmt.Sprintf("no rule of the token's policies is about what needs %s", r)
	}
	return e
}

// collectRules adds the rules that match, the deciding ones first, and tells whether one of these denies.
func (a *ACL) collectRules(r Requirement, e *Explanation) (denied bool) {
	key := ruleKey(r.Name, r.Path)
	every := r.Kind == KindNamespace && r.Name == "*"
	decides, granted, _ := a.kinds[r.Kind].findRule(key)
	var others []RuleMatch
	for _, p := range a.policies {
		for _, rule := range p.Rules {
			pattern := ruleKey(rule.Name, rule.Path)
			if rule.Kind != r.Kind || !every && !fleet.MatchGlob(pattern, key) {
				continue
			}
			m := RuleMatch{Policy: p.Name, Rule: rule.String(), Line: rule.Line, Grants: rule.Capabilities,
				Decides: pattern == decides || every}
			if m.Decides {
				e.Rules = append(e.Rules, m)
			} else {
				others = append(others, m)
			}
		}
	}
	e.Rules = append(e.Rules, others...)
	return granted.deniesAll() && !every
}

// Lines returns the explanation as text, a line for the reason and one a rule.
func (e Explanation) Lines() []string {
	lines := []string{e.Reason}
	for _, m := range e.Rules {
		state := "less specific: not considered"
		if m.Decides {
			state = "decides"
		}
		grants := "nothing"
		if len(m.Grants) > 0 {
			grants = JoinCapabilities(m.Grants)
		}
		lines = append(lines, fmt.Sprintf("policy %q, line %d: %s grants %s (%s)", m.Policy, m.Line, m.Rule, grants, state))
	}
	return lines
}
