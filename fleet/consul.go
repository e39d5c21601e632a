package fleet

// Consul is which Consul a group or a task talks to.
type Consul struct {
	Namespace string
	Cluster   string // default DefaultCluster
	Partition string
}
