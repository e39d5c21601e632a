// Package admission says what is wrong with the objects of a cluster that are no jobs: namespaces, node pools, variables and
// volumes; and what of a job its namespace does not allow. Package validate checks jobs themselves.
//
// The HTTP API and the commands call it before something is sent or committed, hub/state when it is applied, and edges for
// the variables that they get. It is pure.
package admission

import (
	"fmt"
	"slices"

	"skerry/fleet"
)

// Bounds of what people say of a namespace or a node pool.
const (
	maxClusterText  = 256 // bytes of the description
	maxClusterMeta  = 64  // pairs
	maxClusterValue = 512 // bytes of a key or a value
	maxCapabilities = 64  // names in a list of capabilities
)

// checkClusterText checks what people say of a namespace or a node pool.
func checkClusterText(what, description string, meta map[string]string) error {
	switch {
	case len(description) > maxClusterText:
		return fleet.Errorf(fleet.CodeInvalid, "%s: the description has %d bytes, at most %d are kept", what, len(description), maxClusterText)
	case len(meta) > maxClusterMeta:
		return fleet.Errorf(fleet.CodeInvalid, "%s: it has %d pairs of meta, at most %d are kept", what, len(meta), maxClusterMeta)
	}
	for k, v := range meta {
		if k == "" || len(k) > maxClusterValue || len(v) > maxClusterValue {
			return fleet.Errorf(fleet.CodeInvalid, "%s: keys and values of meta have at most %d bytes, and a key at least one", what, maxClusterValue)
		}
	}
	return nil
}

// CheckNamespace returns what is wrong with a namespace.
func CheckNamespace(n *fleet.Namespace) error {
	if !fleet.IsName(n.Name, 128, "-") {
		return fleet.Errorf(fleet.CodeInvalid, "namespace %.140q: a name has 1 to 128 letters, digits and '-'", n.Name)
	}
	if err := checkClusterText("namespace "+n.Name, n.Description, n.Meta); err != nil || n.Capabilities == nil {
		return err
	}
	c := n.Capabilities
	for _, list := range [][]string{c.EnabledTaskDrivers, c.DisabledTaskDrivers, c.EnabledNetworkModes, c.DisabledNetworkModes} {
		if len(list) > maxCapabilities || slices.ContainsFunc(list, func(s string) bool { return s == "" || len(s) > maxClusterText }) {
			return fleet.Errorf(fleet.CodeInvalid, "namespace %s: a list of capabilities has at most %d names of 1 to %d bytes", n.Name, maxCapabilities, maxClusterText)
		}
	}
	return nil
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

// CheckPool returns what is wrong with a node pool's rules.
func CheckPool(p *fleet.Pool) error {
	switch {
	case !fleet.IsName(p.Name, 128, "-_"):
		return fleet.Errorf(fleet.CodeInvalid, "node pool %.140q: a name has 1 to 128 letters, digits, '-' and '_'", p.Name)
	case p.Name == fleet.AllPools:
		return fleet.Errorf(fleet.CodeInvalid, "node pool %q: it contains all nodes, and has no rules of its own", p.Name)
	case p.DefaultDisconnect != "" && p.DefaultDisconnect != fleet.DisconnectKeep && p.DefaultDisconnect != fleet.DisconnectNomad:
		return fleet.Errorf(fleet.CodeInvalid, "node pool %q: DefaultDisconnect is %q or %q, not %q",
			p.Name, fleet.DisconnectKeep, fleet.DisconnectNomad, p.DefaultDisconnect)
	case p.SchedulerConfiguration != nil && !validAlgorithm(p.SchedulerConfiguration.SchedulerAlgorithm):
		return fleet.Errorf(fleet.CodeInvalid, "node pool %q: the scheduler algorithm is %q or %q, not %q",
			p.Name, fleet.AlgorithmBinpack, fleet.AlgorithmSpread, p.SchedulerConfiguration.SchedulerAlgorithm)
	case p.HeartbeatTTL != 0 && (p.HeartbeatTTL < fleet.MinPoolTTL || p.HeartbeatTTL > fleet.MaxPoolTTL):
		return fleet.Errorf(fleet.CodeInvalid, "node pool %q: HeartbeatTTL is 0 or from %s to %s, not %s", p.Name, fleet.MinPoolTTL, fleet.MaxPoolTTL, p.HeartbeatTTL)
	}
	return checkClusterText(fmt.Sprintf("node pool %q", p.Name), p.Description, p.Meta)
}

// CheckScheduling returns what is wrong with a scheduler configuration.
func CheckScheduling(c *fleet.SchedulerConfiguration) error {
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
