package fleet

// Consul is which Consul a group or a task talks to.
type Consul struct {
	Namespace string
	Cluster   string // default DefaultCluster
	Partition string
}

// AttributeConsulVersion is the attribute of a node that has a Consul agent beside it: the agent's version.
const AttributeConsulVersion = "consul.version"

// HasConsul reports whether services can be registered with a Consul agent beside the node.
func (n *Node) HasConsul() bool { return n.Attributes[AttributeConsulVersion] != "" }
