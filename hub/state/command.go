package state

import "skerry/fleet"

// Kind is a command's first byte in the log. Numbers are never used again.
type Kind uint8

// Command is an entry of the replicated log. Applying one is pure: everything
// it needs (times, ids, seeds) is in it.
type Command interface{ isCommand() }

// command marks a type as a Command. It encodes to nothing.
type command struct{}

func (command) isCommand() {}

// JobRegister stores a job, as a new version where its specification changed,
// and an evaluation of it. Job has its defaults and is valid.
type JobRegister struct {
	command
	Job  *fleet.Job
	Eval *fleet.Evaluation // ID, times set; nil: none (tests)
	// EnforceIndex refuses with CodeConflict unless the stored job's
	// JobModifyIndex is CheckIndex (0: there is no such job).
	EnforceIndex bool
	CheckIndex   fleet.Index
	Now          int64 // UnixNano
	// Submission is the file that Job was made of; nil: not known.
	Submission *fleet.Submission
	// PreserveCounts and PreserveResources keep those of the stored job, in groups and
	// tasks of the same name.
	PreserveCounts    bool
	PreserveResources bool
}

// JobDeregister stops a job, or with Purge removes its record; a tombstone makes
// its allocations stop also on edges that are away.
type JobDeregister struct {
	command
	Namespace string
	ID        fleet.JobID
	Purge     bool
	Eval      *fleet.Evaluation
	Now       int64
	// NoShutdownDelay is for what runs of the job now.
	NoShutdownDelay bool `json:",omitempty"`
}

// NodeRegister stores what an edge says of itself. It never changes a status,
// session or journal field; a node that is not known becomes initializing. Where a
// ready node offers something else than before, the jobs that it concerns are evaluated.
type NodeRegister struct {
	command
	Node     fleet.Node
	Now      int64
	EvalSeed string `cbor:",omitempty"` // evaluation ids derive from it; "": none are made
}

// SessionOpen commits a session of a node: a higher epoch, which fences the one
// before it. The node becomes initializing where it was away (or its announced
// head is not applied), and stays ready on a blip. Refused: stale_session where
// Session is not above the node's, not_found where the node is not registered
// and Node is nil, conflict where Follows is set and the node has meanwhile got a
// session of yet another instance.
type SessionOpen struct {
	command
	NodeID   fleet.NodeID
	Session  uint64
	Instance fleet.InstanceID
	BootID   fleet.BootID
	Hub      fleet.HubID
	Addr     string
	Head     fleet.Seq   // Hello.Last
	Node     *fleet.Node // the description, where it travelled with the beat
	// Lost is Hello.Lost: the node is not ready before the edge comes back with a
	// journal that goes on from what is applied.
	Lost     string
	EvalSeed string // evaluation ids derive from it
	// Follows is the epoch of the session that was found to be over, where that was of
	// another instance; 0: it was not.
	Follows fleet.Epoch `cbor:",omitempty"`
	Now     int64
}

// NodeStatus moves nodes that missed their deadline: ready to disconnected or
// down by what lives there, disconnected to down; with one evaluation a job. It
// does nothing to a node whose epoch is not Epoch.
type NodeStatus struct {
	command
	Nodes    []NodeMissed
	EvalSeed string
	Now      int64
}

// NodeMissed is one node of a NodeStatus.
type NodeMissed struct {
	NodeID fleet.NodeID
	Epoch  fleet.Epoch
	Reason string
	// LastHeard is when the node was last heard of (UnixNano); 0: not known.
	LastHeard int64 `cbor:",omitempty"`
	// SessionOver says that the leader that decides this had the session itself, and ends it.
	SessionOver bool `cbor:",omitempty"`
}

// AllocUpdates applies journal rows of several nodes, each batch under its
// node's session epoch. The answer has a code for each batch (Result.Updates).
type AllocUpdates struct {
	command
	Batches  []NodeRows
	EvalSeed string
	Now      int64
}

// NodeRows is one node's part of an AllocUpdates: rows as syncproto.EncodeRow
// made them, First being the number of the first. Received is the newest desired
// index that the edge journaled (0: nothing new).
type NodeRows struct {
	NodeID   fleet.NodeID
	Epoch    fleet.Epoch
	First    fleet.Seq
	Prev     []byte
	Rows     [][]byte
	Received fleet.Index
	Base     bool // syncproto.Updates.Base, checked against the session's Hello
}

// Plan commits a plan that the planner checked. The planner is the only writer of plans, so
// only the job is checked again: its registration does not pass the planner.
type Plan struct {
	command
	Result     fleet.PlanResult
	Jobs       []*fleet.Job // bodies that the allocations name
	Evals      []fleet.Evaluation
	EvalID     fleet.EvalID
	Deployment fleet.DeploymentID
	// Namespace, JobID and JobModifyIndex say for which job this was planned: where it
	// was registered anew since, or stopped, the plan is refused (conflict).
	Namespace      string
	JobID          fleet.JobID
	JobModifyIndex fleet.Index
	// NewDeployment is one that the plan begins, DeploymentUpdates what it decides of
	// others. An update of one that is over does nothing.
	NewDeployment     *fleet.Deployment
	DeploymentUpdates []fleet.DeploymentUpdate
	Now               int64
}

// Evals stores evaluations (new ones, or a change of status).
type Evals struct {
	command
	Evals []fleet.Evaluation
	Now   int64
}

// EvalDelete removes evaluations that are over, and allocations whose end their
// edge has confirmed, with their history. It is refused (conflict) as a whole
// where one of them is not.
type EvalDelete struct {
	command
	IDs    []fleet.EvalID
	Allocs []fleet.AllocID
}

// AllocStop asks for allocations to be stopped and replaced, with one
// evaluation a job.
type AllocStop struct {
	command
	Allocs   []fleet.AllocID
	EvalSeed string
	Now      int64
	// NoShutdownDelay is for what is stopping already, too.
	NoShutdownDelay bool `json:",omitempty"`
	// Reschedule has them replaced also where they fail before they are stopped, whatever their
	// reschedule policy says.
	Reschedule bool `json:",omitempty"`
}

// Pool stores a node pool's rules.
type Pool struct {
	command
	Pool fleet.Pool
}

// ClusterInit makes the cluster: it is refused where there is one.
type ClusterInit struct {
	command
	Cluster Cluster
}

// Cluster is the identity of a cluster and its certificate authority.
type Cluster struct {
	ID        string
	Region    string
	CACert    []byte // DER
	CAKey     []byte // PKCS #8 DER, in clear: what an older release made, until it is sealed
	GossipKey []byte // likewise
	CreatedAt int64
	// Sealed are the CA's key and the gossip key, encrypted (see package pki) with the
	// key that SealKey names. That key is in no state.
	Sealed  []byte
	SealKey string
}

// ClusterSeal takes the secrets of a cluster, which are in clear, out of its state. It
// is refused (conflict) where they are sealed with another key.
type ClusterSeal struct {
	command
	ClusterID string
	Sealed    []byte
	SealKey   string
}

// WithSeal is the cluster with its secrets sealed.
func (c Cluster) WithSeal(s ClusterSeal) Cluster {
	c.CAKey, c.GossipKey, c.Sealed, c.SealKey = nil, nil, s.Sealed, s.SealKey
	return c
}

// Token stores a join token; a zero Token.Hash removes it.
type Token struct {
	command
	Token JoinToken
}

// Fence records a session that was refused for having another machine's
// identity, and keeps apart what it said. With code former_session it notes a newcomer
// that waits, and nothing else.
type Fence struct {
	command
	NodeID  fleet.NodeID
	Session fleet.FencedSession
	Rows    [][]byte
}

// NodeResync records for people what is wrong with a connected node: the Orphans that it
// keeps and the cluster does not know, or why its history does not arrive.
type NodeResync struct {
	command
	NodeID  fleet.NodeID
	Epoch   fleet.Epoch
	Reason  string
	Orphans []fleet.AllocID
	Now     int64
}

// NodeEligibility lets new work onto a node, or keeps it off.
type NodeEligibility struct {
	command
	NodeID      fleet.NodeID
	Eligibility string
	EvalSeed    string
	Now         int64
}

// Hub stores where a hub is reached; Removed forgets it.
type Hub struct {
	command
	Hub     HubAddr
	Removed bool
}

// HubAddr is where a hub listens.
type HubAddr struct {
	ID     fleet.HubID
	QUIC   string
	HTTP   string
	Gossip string
}

// HubPeer is a hub in a Raft configuration: a voter, or a hub that only receives the log.
type HubPeer struct {
	ID    fleet.HubID
	Addr  string
	Voter bool
}

// Certificate records a certificate that was issued. The record of the certificate that
// it renews is removed, so that records do not pile up.
type Certificate struct {
	command
	Serial   string
	Subject  string
	NotAfter int64
	Replaces string `cbor:",omitempty"` // serial
	Token    string `cbor:",omitempty"` // id of the join token that admitted its subject; "": none was needed
	Key      []byte `cbor:",omitempty"` // with Token: SHA-256 of the public key
}

// DeploymentStatus changes the status of a deployment: refused with CodeConflict
// where it is over. Rollback is the version that the job goes back to with it.
type DeploymentStatus struct {
	command
	Update   fleet.DeploymentUpdate
	Rollback *fleet.Job
	Eval     *fleet.Evaluation // of the deployment's job; nil: none
	Now      int64
}

// DeploymentPromote promotes a deployment's canaries. It is refused where a named group has
// too few healthy ones. No names mean all groups with canaries.
type DeploymentPromote struct {
	command
	DeploymentID fleet.DeploymentID
	Groups       []string
	Eval         *fleet.Evaluation
	Now          int64
}

// AllocHealth stores an operator's word on the health of a deployment's allocations;
// Update and Rollback are the consequences for the deployment and its job.
type AllocHealth struct {
	command
	DeploymentID fleet.DeploymentID
	Healthy      []fleet.AllocID
	Unhealthy    []fleet.AllocID
	// Reschedule are allocations that failed and that another attempt may follow.
	Reschedule []fleet.AllocID
	Update     *fleet.DeploymentUpdate
	Rollback   *fleet.Job
	Eval       *fleet.Evaluation
	Now        int64
}

// DeploymentDelete removes deployments that are over. It is refused (conflict) as
// a whole where one of them is not.
type DeploymentDelete struct {
	command
	IDs []fleet.DeploymentID
}

// Result is what applying a command gives. It crosses from hub to hub, so it is
// one encodable type.
type Result struct {
	Index   fleet.Index    `cbor:"1,keyasint"`
	Err     *fleet.Error   `cbor:"2,keyasint,omitempty"`
	Eval    fleet.EvalID   `cbor:"3,keyasint,omitempty"`
	Version uint64         `cbor:"4,keyasint,omitempty"` // JobRegister
	Session *SessionResult `cbor:"5,keyasint,omitempty"`
	Updates []BatchResult  `cbor:"6,keyasint,omitempty"` // as AllocUpdates.Batches
	Moved   []fleet.NodeID `cbor:"7,keyasint,omitempty"` // NodeStatus
	Modify  fleet.Index    `cbor:"8,keyasint,omitempty"` // JobRegister, JobDeregister: the job's modify index after it
	// Evals are the evaluations that a change of a node or of allocations made.
	Evals []fleet.EvalID `cbor:"20,keyasint,omitempty"`
	// Child is the job that a launch or a dispatch made, Created its create index.
	Child   fleet.JobID `cbor:"21,keyasint,omitempty"`
	Created fleet.Index `cbor:"22,keyasint,omitempty"`
}

// Failure is why a command did nothing: err, if that kept it from being applied, or
// else that it was refused. It is nil where neither is so.
func (r Result) Failure(err error) error {
	if err == nil && r.Err != nil {
		return r.Err
	}
	return err
}

// SessionResult answers SessionOpen.
type SessionResult struct {
	Epoch   fleet.Epoch      `cbor:"1,keyasint"`
	Status  fleet.NodeStatus `cbor:"2,keyasint"`
	Applied fleet.Seq        `cbor:"3,keyasint"`
	Session uint64           `cbor:"4,keyasint"` // with stale_session: the node's
	// ChainHash is the one at Applied.
	ChainHash []byte `cbor:"5,keyasint,omitempty"`
}

// BatchResult answers one batch of AllocUpdates. Code is "" where it was
// applied; Applied is where the cluster then stands.
type BatchResult struct {
	Code    fleet.Code       `cbor:"1,keyasint,omitempty"`
	Message string           `cbor:"2,keyasint,omitempty"`
	Applied fleet.Seq        `cbor:"3,keyasint"`
	Status  fleet.NodeStatus `cbor:"4,keyasint"`
}
