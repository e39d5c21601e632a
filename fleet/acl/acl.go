package acl

import (
	"cmp"
	"slices"
	"strings"

	"skerry/fleet"
)

// ACL is what the bearer of a token may do. It does not change.
type ACL struct {
	management bool
	kinds      map[Kind]*ruleSet
	policies   []*Policy
	implicit   []Requirement // that no policy can deny; nil: not of a workload
}

// ruleSet has the rules of a kind. exact is by name; globs are in the order in which they decide.
type ruleSet struct {
	exact map[string]capabilitySet
	globs []globRule
}

type globRule struct {
	pattern string
	set     capabilitySet
}

// Management is the ACL of a management token: it allows everything.
var Management = &ACL{management: true}

// New compiles policies into one ACL. Without any it allows nothing.
func New(policies ...*Policy) *ACL {
	a := &ACL{kinds: map[Kind]*ruleSet{}, policies: policies}
	globs := map[Kind]map[string]capabilitySet{}
	for _, p := range policies {
		for _, r := range p.Rules {
			set := a.kinds[r.Kind]
			if set == nil {
				set = &ruleSet{exact: map[string]capabilitySet{}}
				a.kinds[r.Kind], globs[r.Kind] = set, map[string]capabilitySet{}
			}
			key := ruleKey(r.Name, r.Path)
			into := set.exact
			if strings.Contains(key, "*") {
				into = globs[r.Kind]
			}
			into[key] = into[key].addCapabilities(r.Capabilities)
		}
	}
	for kind, set := range a.kinds {
		for pattern, granted := range globs[kind] {
			set.globs = append(set.globs, globRule{pattern, granted})
		}
		slices.SortFunc(set.globs, func(a, b globRule) int { return compareGlobs(a.pattern, b.pattern) })
	}
	return a
}

// NewOfWorkload compiles the policies that are attached to a workload, and what each workload may do besides: read the
// variables of its own job, by their paths, and the services of its namespace.
func NewOfWorkload(namespace string, variables []string, policies ...*Policy) *ACL {
	a := New(policies...)
	a.implicit = append(a.implicit, Requirement{Kind: KindNamespace, Name: namespace, Capability: ListServices})
	for _, path := range variables {
		for _, c := range []Capability{List, Read} {
			a.implicit = append(a.implicit, Requirement{KindVariables, namespace, c, path})
		}
	}
	return a
}

// grantsImplicitly tells whether a workload may do something on an object of a kind without a policy. A zero name or
// capability stands for any.
func (a *ACL) grantsImplicitly(kind Kind, name string, c Capability) bool {
	return slices.ContainsFunc(a.implicit, func(r Requirement) bool {
		return r.Kind == kind && (name == "" || name == r.Name) && (c == "" || c == r.Capability)
	})
}

// ruleKey joins the namespace and the path of a variable. No name has the separator in it.
func ruleKey(name, path string) string {
	if path == "" {
		return name
	}
	return name + "\x00" + path
}

// compareGlobs orders globs: the more characters besides "*", the less it leaves open. Nomad gives the later one in the
// order of the alphabet the precedence where both leave as much open.
func compareGlobs(a, b string) int {
	literal := func(s string) int { return len(s) - strings.Count(s, "*") }
	return cmp.Or(cmp.Compare(literal(b), literal(a)), cmp.Compare(b, a))
}

// findRule returns the pattern that decides on a name, and what it grants.
func (s *ruleSet) findRule(key string) (pattern string, granted capabilitySet, found bool) {
	if s == nil {
		return "", 0, false
	}
	if granted, found = s.exact[key]; found {
		return key, granted, true
	}
	for _, g := range s.globs {
		if fleet.MatchGlob(g.pattern, key) {
			return g.pattern, g.set, true
		}
	}
	return "", 0, false
}

// anyRule tells whether a rule of the set grants a capability.
func (s *ruleSet) anyRule(c Capability) bool {
	if s == nil {
		return false
	}
	for _, granted := range s.exact {
		if granted.grantsCapability(c) {
			return true
		}
	}
	return slices.ContainsFunc(s.globs, func(g globRule) bool { return g.set.grantsCapability(c) })
}

// anyVariable tells whether a rule grants anything on variables of a namespace.
func (s *ruleSet) anyVariable(namespace string) bool {
	if s == nil {
		return false
	}
	matches := func(key string, granted capabilitySet) bool {
		pattern, _, _ := strings.Cut(key, "\x00")
		return granted.grantsAny() && fleet.MatchGlob(pattern, namespace)
	}
	for key, granted := range s.exact {
		if matches(key, granted) {
			return true
		}
	}
	return slices.ContainsFunc(s.globs, func(g globRule) bool { return matches(g.pattern, g.set) })
}

// Allows tells whether the ACL allows what a request needs.
func (a *ACL) Allows(r Requirement) bool {
	switch {
	case a.management:
		return true
	case r.Kind == KindNamespace && r.Name == "*":
		return a.AllowsAny(KindNamespace, r.Capability)
	case slices.Contains(a.implicit, r):
		return true
	}
	_, granted, _ := a.kinds[r.Kind].findRule(ruleKey(r.Name, r.Path))
	if r.Kind != KindSite {
		return granted.grantsCapability(r.Capability)
	}
	_, nodes, _ := a.kinds[KindNode].findRule("")
	return !granted.deniesAll() && !nodes.deniesAll() && (granted.grantsCapability(r.Capability) || nodes.grantsCapability(r.Capability))
}

// AllowsAny tells whether there is an object of a kind on which the ACL allows a capability.
func (a *ACL) AllowsAny(kind Kind, c Capability) bool {
	if a.management || a.grantsImplicitly(kind, "", c) {
		return true
	}
	if kind != KindSite {
		return a.kinds[kind].anyRule(c)
	}
	_, nodes, _ := a.kinds[KindNode].findRule("")
	return nodes.grantsCapability(c) || !nodes.deniesAll() && a.kinds[KindSite].anyRule(c)
}

// AllowsSome tells whether the ACL allows any capability on an object, so that its bearer may know that the object
// exists. The name for KindVariables is a namespace: is there any variable in it?
func (a *ACL) AllowsSome(kind Kind, name string) bool {
	if a.management || name != "" && a.grantsImplicitly(kind, name, "") {
		return true
	}
	if kind == KindVariables {
		return a.kinds[kind].anyVariable(name)
	}
	_, granted, _ := a.kinds[kind].findRule(name)
	if kind != KindSite {
		return granted.grantsAny()
	}
	_, nodes, _ := a.kinds[KindNode].findRule("")
	return !granted.deniesAll() && !nodes.deniesAll() && (granted.grantsAny() || nodes.grantsAny())
}

// IsManagement tells whether the ACL is that of a management token.
func (a *ACL) IsManagement() bool { return a.management }

// Denies tells whether the rule that decides on an object takes away everything on it.
func (a *ACL) Denies(kind Kind, name string) bool {
	if a.management {
		return false
	}
	_, granted, _ := a.kinds[kind].findRule(name)
	return granted.deniesAll()
}

// AllowsNothing tells whether no rule grants anything, as without a token and without an anonymous policy.
func (a *ACL) AllowsNothing() bool {
	if a.management || len(a.implicit) > 0 {
		return false
	}
	for _, set := range a.kinds {
		for _, granted := range set.exact {
			if granted.grantsAny() {
				return false
			}
		}
		if slices.ContainsFunc(set.globs, func(g globRule) bool { return g.set.grantsAny() }) {
			return false
		}
	}
	return true
}
