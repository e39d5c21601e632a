package acl

import (
	"fmt"
	"slices"
	"strings"

	"skerry/fleet"
)

// Requirement is one thing that a request needs: a capability on an object. Name is a namespace, a node pool, a host
// volume or a site, by its kind; "*" as a namespace stands for any that allows it. Path is that of a variable in Name.
type Requirement struct {
	Kind       Kind
	Name       string
	Capability Capability
	Path       string
}

// String returns the requirement for an error: capability "read-job" in namespace "default".
func (r Requirement) String() string {
	switch r.Kind {
	case KindManagement:
		return "a management token"
	case KindNamespace:
		return fmt.Sprintf("capability %q in namespace %q", r.Capability, r.Name)
	case KindVariables:
		return fmt.Sprintf("capability %q on variable %q in namespace %q", r.Capability, r.Path, r.Name)
	case KindNodePool, KindHostVolume, KindSite:
		return fmt.Sprintf("capability %q on %s %q", r.Capability, r.Kind, r.Name)
	}
	return fmt.Sprintf("capability %q on %s", r.Capability, r.Kind)
}

// Rule returns the rule that would grant the requirement, as it is written in a policy; "" where no rule can.
func (r Requirement) Rule() string {
	g, ok := blocks[r.Kind]
	if !ok {
		return ""
	}
	grant := fmt.Sprintf("policy = %q", r.Capability)
	if _, coarse := g.Policies[string(r.Capability)]; !coarse || len(g.Capabilities) > 0 && g.Labelled {
		grant = fmt.Sprintf("capabilities = [%q]", r.Capability)
	}
	switch {
	case r.Kind == KindVariables:
		return fmt.Sprintf("namespace %q { variables { path %q { %s } } }", r.Name, r.Path, grant)
	case g.Labelled:
		return fmt.Sprintf("%s %q { %s }", r.Kind, r.Name, grant)
	}
	return fmt.Sprintf("%s { %s }", r.Kind, grant)
}

// Check returns what is wrong with a requirement that a user names.
func (r Requirement) Check() error {
	if r.Kind == KindManagement {
		return nil
	}
	g, ok := blocks[r.Kind]
	switch {
	case !ok:
		return fleet.Errorf(fleet.CodeInvalid, "there is no kind %q of objects", r.Kind).
			WithHint("the kinds are %s, %s", strings.Join(BlockNames(), ", "), KindVariables)
	case g.Labelled != (r.Name != "") || (r.Kind == KindVariables) != (r.Path != ""):
		return fleet.Errorf(fleet.CodeInvalid, "%q with the name %q and the path %q is no object", r.Kind, r.Name, r.Path).
			WithHint("write it like namespace/default, variables/default/nomad/jobs, node_pool/gpu, site/shop-1, or node alone")
	}
	known := slices.Clone(g.Capabilities)
	for _, expanded := range g.Policies {
		known = append(known, expanded...)
	}
	slices.Sort(known)
	if known = slices.Compact(known); !slices.Contains(known, r.Capability) {
		return fleet.Errorf(fleet.CodeInvalid, "there is no capability %q of %s", r.Capability, r.Kind).WithHint("they are %s", JoinCapabilities(known))
	}
	return nil
}
