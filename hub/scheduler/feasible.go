package scheduler

import (
	"fmt"

	"skerry/fleet"
	"skerry/fleet/placement"
)

// feasibility decides on which nodes a group of a job may run, apart from their resources. It checks
// properties that a node class has in common once for each class. Only one goroutine may use it.
type feasibility struct {
	cluster    volumeReader
	job        *fleet.Job
	conds      []placement.Condition // constraints that hold for all nodes of a class or for none
	perNode    []placement.Condition // constraints that refer to unique properties of a node
	drivers    []string
	network    string                   // mode of the group's network; "": the host's
	consul     bool                     // a service is registered with a Consul agent
	vault      bool                     // a task has a vault block
	login      bool                     // a task or a service logs in to Consul
	identities bool                     // a task gets the token of an identity
	offline    bool                     // the edge may sign such a token itself
	inMemory   bool                     // a task has such a token, or a secret, in its environment or its arguments
	devices    []*fleet.RequestedDevice // requested by tasks
	ports      []fleet.Port             // ports of a named host network
	volumes    []fleet.VolumeRequest    // host volumes
	classes    map[string]verdict       // results of checkClass, by class
}

// verdict says whether nodes of a class suit.
type verdict struct {
	reason string // why they do not; "": they do
	// passing is set if a driver is all that is missing, and each node has it, but it is unhealthy now.
	passing bool
}

// Reasons why a node does not suit, as in Nomad.
const (
	missingDrivers = "missing drivers"
	missingVolumes = "missing compatible host volumes"
	missingNetwork = "missing network"
	missingConsul  = "missing Consul agent" // Nomad adds a constraint of attr.consul.version
	missingLogin   = "missing Consul in which tasks log in"
	missingVault   = "missing Vault" // Nomad adds a constraint of attr.vault.version
	missingTokens  = "missing identities of tasks: the edge's release is too old"
	missingOffline = "missing offline identities of tasks: the edge's release is too old"
	missingMemory  = "missing environments of tasks in memory: the edge is not root on Linux, or its release is too old"
)

// volumeReader is the part of state.View that knows dynamic host volumes.
type volumeReader interface {
	Volume(id fleet.VolumeID) (*fleet.Volume, bool)
}

// newFeasibility compiles the constraints of a group and its tasks. It fails if one of them is invalid.
func newFeasibility(c volumeReader, job *fleet.Job, g *fleet.TaskGroup) (*feasibility, error) {
	f := &feasibility{cluster: c, job: job, classes: map[string]verdict{}}
	all := append([]fleet.Constraint{}, job.Constraints...)
	all = append(all, g.Constraints...)
	seen := map[string]bool{}
	for i := range g.Tasks {
		all = append(all, g.Tasks[i].Constraints...)
		if d := g.Tasks[i].Driver; !seen[d] {
			seen[d] = true
			f.drivers = append(f.drivers, d)
		}
		for k := range g.Tasks[i].Resources.Devices {
			f.devices = append(f.devices, &g.Tasks[i].Resources.Devices[k])
		}
	}
	for _, p := range g.Ports() {
		if p.HostNetwork != "" && p.HostNetwork != fleet.DefaultHostNetwork {
			f.ports = append(f.ports, p)
		}
	}
	f.network, f.consul, f.vault = g.NetworkMode(), g.UsesConsul(), g.UsesVault()
	f.login = g.LogsInToConsul()
	f.identities, f.offline, f.inMemory = g.HasIdentities(), g.HasOfflineIdentities(), g.NeedsEnvInMemory()
	for _, v := range g.Volumes {
		if v.Type == fleet.VolumeHost {
			f.volumes = append(f.volumes, v)
		}
	}
	conds, err := placement.Conditions(all)
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", g.Name, err)
	}
	for _, c := range conds {
		switch {
		case c.Constraint().Operand == fleet.OpDistinctHosts, c.Constraint().Operand == fleet.OpDistinctProp:
		case c.PerNode():
			f.perNode = append(f.perNode, c)
		default:
			f.conds = append(f.conds, c)
		}
	}
	return f, nil
}

// inScope reports whether a node is in the job's node pool and datacenters.
func (f *feasibility) inScope(n *fleet.Node) bool {
	return f.job.InPool(n.NodePool) && f.job.InDatacenter(n.Datacenter)
}

// whyInfeasible returns the reason why a node does not suit; "": it does.
func (f *feasibility) whyInfeasible(n *fleet.Node) string { return f.checkNode(n).reason }

// checkNode says whether a node suits.
func (f *feasibility) checkNode(n *fleet.Node) verdict {
	v, ok := f.classes[n.ComputedClass]
	if !ok || n.ComputedClass == "" {
		v = f.checkClass(n)
		f.classes[n.ComputedClass] = v
	}
	if v.reason != "" {
		return v
	}
	for _, c := range f.perNode {
		if !c.Holds(n) {
			return verdict{reason: c.Constraint().String()}
		}
	}
	for _, d := range f.devices {
		if !placement.OffersDevice(n, d) {
			return verdict{reason: "missing devices"}
		}
	}
	if !f.hasVolumes(n) {
		return verdict{reason: missingVolumes}
	}
	for _, p := range f.ports {
		if !n.HasHostNetwork(p.HostNetwork) {
			return verdict{reason: fmt.Sprintf("missing host network %q for port %q", p.HostNetwork, p.Label)}
		}
	}
	return verdict{}
}

// hasVolumes reports whether a node has the host volumes that the group asks for. Volumes that are per_alloc do
// not count, until groupOfIndex says which of them.
func (f *feasibility) hasVolumes(n *fleet.Node) bool {
	for i := range f.volumes {
		v := &f.volumes[i]
		if v.PerAlloc {
			continue
		}
		h, ok := n.HostVolumes[v.Source]
		if !ok || !v.MayMount(h) {
			return false
		}
		if h.ID == "" {
			continue
		}
		if dynamic, ok := f.cluster.Volume(h.ID); !ok || !dynamic.Admits(f.job.Namespace, v) {
			return false
		}
	}
	return true
}

// checkClass says whether the nodes of this node's class suit.
func (f *feasibility) checkClass(n *fleet.Node) verdict {
	if !f.job.InPool(n.NodePool) {
		return verdict{reason: "node pool " + n.NodePool}
	}
	if !f.job.InDatacenter(n.Datacenter) {
		return verdict{reason: "datacenter " + n.Datacenter}
	}
	unhealthy := false
	for _, d := range f.drivers {
		if n.HasDriver(d) {
			continue
		}
		if !n.Drivers[d].Detected {
			return verdict{reason: missingDrivers}
		}
		unhealthy = true
	}
	if !n.HasNetworkMode(f.network) {
		return verdict{reason: missingNetwork}
	}
	if f.consul && !n.HasConsul() {
		return verdict{reason: missingConsul}
	}
	if f.login && !n.HasConsulLogin() {
		return verdict{reason: missingLogin}
	}
	if f.vault && !n.HasVault() {
		return verdict{reason: missingVault}
	}
	if f.identities && n.Attributes[fleet.AttributeIdentities] == "" {
		return verdict{reason: missingTokens}
	}
	if f.offline && n.Attributes[fleet.AttributeIdentities] != fleet.OfflineIdentities {
		return verdict{reason: missingOffline}
	}
	if f.inMemory && n.Attributes[fleet.AttributeEnvInMemory] == "" {
		return verdict{reason: missingMemory}
	}
	for _, c := range f.conds {
		if !c.Holds(n) {
			return verdict{reason: c.Constraint().String()}
		}
	}
	if unhealthy {
		return verdict{reason: missingDrivers, passing: true}
	}
	return verdict{}
}

// mergeClassEligibility adds the known classes to a blocked evaluation's: a class is eligible if one of
// the waiting groups can run there. escaped says that classes alone do not decide, because the group needs
// properties of single nodes.
func (f *feasibility) mergeClassEligibility(classes map[string]bool) (escaped bool) {
	for class, v := range f.classes {
		if class != "" {
			classes[class] = classes[class] || v.reason == ""
		}
	}
	return len(f.perNode)+len(f.devices)+len(f.ports)+len(f.volumes) > 0
}
