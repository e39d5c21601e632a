package acl

import "fmt"

// Policy is a policy that was read. Name is for explanations alone.
type Policy struct {
	Name  string
	Rules []Rule // in the order of the text
}

// Rule is one block of a policy. Name is the name of an object or a glob, "" for a kind without names. Path is that of
// the variables in the namespaces of Name. Capabilities has all that policy and capabilities stand for.
type Rule struct {
	Kind         Kind
	Name         string
	Path         string
	Capabilities []Capability
	Line         int
}

// String returns the head of the rule's block, as it is in a policy.
func (r Rule) String() string {
	switch {
	case r.Kind == KindVariables:
		return fmt.Sprintf("namespace %q variables path %q", r.Name, r.Path)
	case blocks[r.Kind].Labelled:
		return fmt.Sprintf("%s %q", r.Kind, r.Name)
	}
	return string(r.Kind)
}
