package api

import "skerry/fleet"

// EventBatch has the events of one log entry, in Nomad's shape. A stream that cannot continue ends with a batch that
// has only Error.
type EventBatch struct {
	Index  fleet.Index
	Events []Event
	Error  string `json:",omitempty"`
}

// Event is one event of a stream.
type Event struct {
	Topic      string
	Type       string
	Key        string
	Namespace  string
	FilterKeys []string
	Index      fleet.Index
	Payload    EventPayload
}

// EventPayload has the object of an event, as the log entry left it. Only one of the pointers is set.
type EventPayload struct {
	Job        *fleet.Job                 `json:",omitempty"`
	Deleted    bool                       `json:",omitempty"`
	Node       *fleet.Node                `json:",omitempty"`
	Deployment *fleet.Deployment          `json:",omitempty"`
	Evaluation *fleet.Evaluation          `json:",omitempty"`
	Allocation *fleet.Alloc               `json:",omitempty"`
	NodePool   *fleet.Pool                `json:",omitempty"`
	Service    *fleet.ServiceRegistration `json:",omitempty"`
	Variable   *fleet.VariableMeta        `json:",omitempty"`
	ACLPolicy  *fleet.ACLPolicy           `json:",omitempty"`
	ACLRole    *fleet.ACLRole             `json:",omitempty"`
	ACLToken   *fleet.ACLToken            `json:",omitempty"` // without its secret

	AuthMethod     *fleet.ACLAuthMethod  `json:",omitempty"` // without its secret
	ACLBindingRule *fleet.ACLBindingRule `json:",omitempty"`
}
