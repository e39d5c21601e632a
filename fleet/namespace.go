package fleet

import (
	"fmt"
	"regexp"
	"slices"
)

// Namespace is a name for jobs that belong together: two jobs of the same id in
// different namespaces are different jobs. DefaultNamespace always exists.
type Namespace struct {
	Name         string
	Description  string
	Capabilities *NamespaceCapabilities // nil: whatever there is
	Meta         map[string]string
	CreateIndex  Index
	ModifyIndex  Index
}

// NamespaceCapabilities says what jobs of a namespace may use. Where a list of what
// is enabled is not empty, nothing else is; what is disabled is not in any case.
type NamespaceCapabilities struct {
	EnabledTaskDrivers   []string
	DisabledTaskDrivers  []string
	EnabledNetworkModes  []string
	DisabledNetworkModes []string
}

// Bounds of a namespace.
const (
	maxNamespaceText    = 256 // bytes of the description
	maxNamespaceMeta    = 64  // pairs
	maxNamespaceValue   = 512 // bytes of a key or a value
	maxNamespaceAllowed = 64  // names in a list of capabilities
)

var validNamespace = regexp.MustCompile(`^[a-zA-Z0-9-]{1,128}$`)

// BuiltinNamespace is DefaultNamespace as long as nobody has said more of it.
func BuiltinNamespace() Namespace {
	return Namespace{Name: DefaultNamespace, Description: "Default shared namespace"}
}

// Validate reports what is wrong with a namespace.
func (n *Namespace) Validate() error {
	switch {
	case !validNamespace.MatchString(n.Name):
		return Errorf(CodeInvalid, "namespace %.140q: a name has 1 to 128 letters, digits and '-'", n.Name)
	case len(n.Description) > maxNamespaceText:
		return Errorf(CodeInvalid, "namespace %s: the description has %d bytes, at most %d are kept", n.Name, len(n.Description), maxNamespaceText)
	case len(n.Meta) > maxNamespaceMeta:
		return Errorf(CodeInvalid, "namespace %s: it has %d pairs of meta, at most %d are kept", n.Name, len(n.Meta), maxNamespaceMeta)
	}
	for k, v := range n.Meta {
		if k == "" || len(k) > maxNamespaceValue || len(v) > maxNamespaceValue {
			return Errorf(CodeInvalid, "namespace %s: keys and values of meta have at most %d bytes, and a key at least one", n.Name, maxNamespaceValue)
		}
	}
	if n.Capabilities == nil {
		return nil
	}
	for _, list := range n.Capabilities.capabilityLists() {
		if len(list) > maxNamespaceAllowed || slices.ContainsFunc(list, func(s string) bool { return s == "" || len(s) > maxNamespaceText }) {
			return Errorf(CodeInvalid, "namespace %s: a list of capabilities has at most %d names of 1 to %d bytes", n.Name, maxNamespaceAllowed, maxNamespaceText)
		}
	}
	return nil
}

func (c *NamespaceCapabilities) capabilityLists() [][]string {
	return [][]string{c.EnabledTaskDrivers, c.DisabledTaskDrivers, c.EnabledNetworkModes, c.DisabledNetworkModes}
}

// Admits returns what of a job the namespace does not allow.
func (n *Namespace) Admits(j *Job) Problems {
	var ps Problems
	c := n.Capabilities
	if c == nil {
		return nil
	}
	for i, g := range j.TaskGroups {
		for k, net := range g.Networks {
			mode := net.Mode
			if mode == "" {
				mode = NetworkHost
			}
			if !isNameAllowed(mode, c.EnabledNetworkModes, c.DisabledNetworkModes) {
				ps.Add(fmt.Sprintf("TaskGroups[%d].Networks[%d].Mode", i, k), "namespace %s does not allow the network mode %q", n.Name, mode)
			}
		}
		for k, t := range g.Tasks {
			if !isNameAllowed(t.Driver, c.EnabledTaskDrivers, c.DisabledTaskDrivers) {
				ps.Add(fmt.Sprintf("TaskGroups[%d].Tasks[%d].Driver", i, k), "namespace %s does not allow the driver %q", n.Name, t.Driver)
			}
		}
	}
	return ps
}

func isNameAllowed(name string, enabled, disabled []string) bool {
	return (len(enabled) == 0 || slices.Contains(enabled, name)) && !slices.Contains(disabled, name)
}
