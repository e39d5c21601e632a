package fleet

import (
	"slices"
	"strings"
	"time"
)

// Consul is which Consul a group or a task talks to. A task with such a block logs in there.
type Consul struct {
	Namespace string
	Cluster   string // default DefaultCluster
	Partition string
	// Env puts the task's token into its environment.
	Env bool `json:",omitempty"`
}

// ConsulIdentity is the name of the identity with which an edge logs in to Consul for a task. A task with a consul block has it
// without an identity block, with these defaults.
const (
	ConsulIdentity        = "consul_default"
	DefaultConsulAudience = "consul.io"
	DefaultConsulTTL      = time.Hour
)

// consulServiceIdentity begins the names of the identities of services, as in Nomad.
const consulServiceIdentity = "consul-service_"

// IsServiceIdentity reports whether an identity has the name of one of a service.
func IsServiceIdentity(name string) bool { return strings.HasPrefix(name, consulServiceIdentity) }

// ConsulTokenFile is the file with the token below the task's folder.
const ConsulTokenFile = "secrets/consul_token"

// AttributeConsulLogin is the attribute of a node at whose Consul agent tasks and services can log in.
const AttributeConsulLogin = "skerry.consul_login"

// AttributeConsulVersion is the attribute of a node that has a Consul agent beside it: the agent's version.
const AttributeConsulVersion = "consul.version"

// HasConsul reports whether services can be registered with a Consul agent beside the node.
func (n *Node) HasConsul() bool { return n.Attributes[AttributeConsulVersion] != "" }

// HasConsulLogin reports whether tasks and services can log in at a Consul agent beside the node.
func (n *Node) HasConsulLogin() bool { return n.Attributes[AttributeConsulLogin] != "" }

// LogsInToConsul reports whether the edge logs in to Consul for the task.
func (t *Task) LogsInToConsul() bool {
	return t.Consul != nil || slices.ContainsFunc(t.Identities, func(w WorkloadIdentity) bool { return w.Name == ConsulIdentity })
}

// LogsInToConsul reports whether a task or a service of the group logs in to Consul.
func (g *TaskGroup) LogsInToConsul() bool {
	return slices.ContainsFunc(g.Tasks, func(t Task) bool { return t.LogsInToConsul() }) ||
		slices.ContainsFunc(g.DeliveredIdentities(), func(d OwnedIdentity) bool { return d.Service != "" })
}

// IdentityName is the name of the identity with which an edge logs in to Consul for the service, as in Nomad.
func (s *Service) IdentityName() string {
	name := s.Name + "-" + s.PortLabel
	if s.TaskName != "" {
		name = s.TaskName + "-" + name
	}
	return consulServiceIdentity + name
}
