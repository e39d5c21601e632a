package validate

import (
	"fmt"
	"regexp"
	"slices"

	"skerry/fleet"
)

// Bounds of a namespace.
const (
	maxNamespaceText    = 256 // bytes of the description
	maxNamespaceMeta    = 64  // pairs
	maxNamespaceValue   = 512 // bytes of a key or a value
	maxNamespaceAllowed = 64  // names in a list of capabilities
)

var validNamespace = regexp.MustCompile(`^[a-zA-Z0-9-]{1,128}$`)

// Namespace returns what is wrong with a namespace.
func Namespace(n *fleet.Namespace) error {
	switch {
	case !validNamespace.MatchString(n.Name):
		return fleet.Errorf(fleet.CodeInvalid, "namespace %.140q: a name has 1 to 128 letters, digits and '-'", n.Name)
	case len(n.Description) > maxNamespaceText:
		return fleet.Errorf(fleet.CodeInvalid, "namespace %s: the description has %d bytes, at most %d are kept", n.Name, len(n.Description), maxNamespaceText)
	case len(n.Meta) > maxNamespaceMeta:
		return fleet.Errorf(fleet.CodeInvalid, "namespace %s: it has %d pairs of meta, at most %d are kept", n.Name, len(n.Meta), maxNamespaceMeta)
	}
	for k, v := range n.Meta {
		if k == "" || len(k) > maxNamespaceValue || len(v) > maxNamespaceValue {
			return fleet.Errorf(fleet.CodeInvalid, "namespace %s: keys and values of meta have at most %d bytes, and a key at least one", n.Name, maxNamespaceValue)
		}
	}
	if n.Capabilities == nil {
		return nil
	}
	for _, list := range capabilityLists(n.Capabilities) {
		if len(list) > maxNamespaceAllowed || slices.ContainsFunc(list, func(s string) bool { return s == "" || len(s) > maxNamespaceText }) {
			return fleet.Errorf(fleet.CodeInvalid, "namespace %s: a list of capabilities has at most %d names of 1 to %d bytes", n.Name, maxNamespaceAllowed, maxNamespaceText)
		}
	}
	return nil
}

func capabilityLists(c *fleet.NamespaceCapabilities) [][]string {
	return [][]string{c.EnabledTaskDrivers, c.DisabledTaskDrivers, c.EnabledNetworkModes, c.DisabledNetworkModes}
}

// NamespaceAdmits returns the parts of a job that the namespace does not allow.
func NamespaceAdmits(n *fleet.Namespace, j *fleet.Job) fleet.Problems {
	var ps fleet.Problems
	c := n.Capabilities
	if c == nil {
		return nil
	}
	for i, g := range j.TaskGroups {
		for k, net := range g.Networks {
			mode := net.Mode
			if mode == "" {
				mode = fleet.NetworkHost
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

// Bounds of what people say of a pool.
const (
	maxPoolText  = 256 // bytes of the description
	maxPoolMeta  = 64  // pairs
	maxPoolValue = 512 // bytes of a key or a value
)

var validPool = regexp.MustCompile(`^[a-zA-Z0-9-_]{1,128}$`)

// Pool returns what is wrong with a node pool's rules.
func Pool(p *fleet.Pool) error {
	switch {
	case !validPool.MatchString(p.Name):
		return fleet.Errorf(fleet.CodeInvalid, "node pool %.140q: a name has 1 to 128 letters, digits, '-' and '_'", p.Name)
	case p.Name == fleet.AllPools:
		return fleet.Errorf(fleet.CodeInvalid, "node pool %q: that is all of them, and has no rules of its own", p.Name)
	case p.DefaultDisconnect != "" && p.DefaultDisconnect != fleet.DisconnectKeep && p.DefaultDisconnect != fleet.DisconnectNomad:
		return fleet.Errorf(fleet.CodeInvalid, "node pool %q: DefaultDisconnect is %q or %q, not %q",
			p.Name, fleet.DisconnectKeep, fleet.DisconnectNomad, p.DefaultDisconnect)
	case p.SchedulerConfiguration != nil && !validAlgorithm(p.SchedulerConfiguration.SchedulerAlgorithm):
		return fleet.Errorf(fleet.CodeInvalid, "node pool %q: the scheduler algorithm is %q or %q, not %q",
			p.Name, fleet.AlgorithmBinpack, fleet.AlgorithmSpread, p.SchedulerConfiguration.SchedulerAlgorithm)
	case p.HeartbeatTTL != 0 && (p.HeartbeatTTL < fleet.MinPoolTTL || p.HeartbeatTTL > fleet.MaxPoolTTL):
		return fleet.Errorf(fleet.CodeInvalid, "node pool %q: HeartbeatTTL is 0 or from %s to %s, not %s", p.Name, fleet.MinPoolTTL, fleet.MaxPoolTTL, p.HeartbeatTTL)
	case len(p.Description) > maxPoolText:
		return fleet.Errorf(fleet.CodeInvalid, "node pool %q: the description has %d bytes, at most %d are kept", p.Name, len(p.Description), maxPoolText)
	case len(p.Meta) > maxPoolMeta:
		return fleet.Errorf(fleet.CodeInvalid, "node pool %q: it has %d pairs of meta, at most %d are kept", p.Name, len(p.Meta), maxPoolMeta)
	}
	for k, v := range p.Meta {
		if k == "" || len(k) > maxPoolValue || len(v) > maxPoolValue {
			return fleet.Errorf(fleet.CodeInvalid, "node pool %q: keys and values of meta have at most %d bytes, and a key at least one", p.Name, maxPoolValue)
		}
	}
	return nil
}

// Scheduling returns what is wrong with a scheduler configuration.
func Scheduling(c *fleet.SchedulerConfiguration) error {
	switch {
	case !validAlgorithm(c.SchedulerAlgorithm):
		return fleet.Errorf(fleet.CodeInvalid, "scheduler configuration: the algorithm is %q or %q, not %q", fleet.AlgorithmBinpack, fleet.AlgorithmSpread, c.SchedulerAlgorithm)
	case c.PauseEvalBroker:
		return fleet.Errorf(fleet.CodeInvalid, "scheduler configuration: pausing the evaluation broker is not supported").
			WithHint("to keep work off the nodes, make them ineligible")
	}
	return nil
}

func validAlgorithm(name string) bool {
	return name == "" || name == fleet.AlgorithmBinpack || name == fleet.AlgorithmSpread
}
