package state

import "skerry/fleet"

// Kind is the second byte of a log entry: the number of its command type. A number is never used again.
type Kind uint8

// Command is an entry of the replicated log. Applying one is pure: all times, ids and seeds that it needs
// are in it.
type Command interface{ isCommand() }

// command marks a type that embeds it as a Command. It has no encoding.
type command struct{}

func (command) isCommand() {}

// JobRegister stores a job, and an evaluation of it. If the specification changed, the job gets a new
// version. The caller has filled in Job's defaults and validated it.
type JobRegister struct {
	command
	Job  *fleet.Job
	Eval *fleet.Evaluation // with its ID; nil: no evaluation
	// EnforceIndex refuses with CodeConflict unless the stored job's
	// JobModifyIndex is CheckIndex (0: there is no such job).
	EnforceIndex bool
	CheckIndex   fleet.Index
	Now          int64 // UnixNano
	// Submission is the file that Job was parsed from; nil: not known.
	Submission *fleet.Submission
	// PreserveCounts and PreserveResources take these values from the stored job, for groups and tasks of
	// the same name.
	PreserveCounts    bool
	PreserveResources bool
}

// JobDeregister stops a job; with Purge it also removes the job's record. The job's allocations stop when
// Eval is processed, those of an edge that is away when it comes back.
type JobDeregister struct {
	command
	Namespace string
	ID        fleet.JobID
	Purge     bool
	Eval      *fleet.Evaluation
	Now       int64
	// NoShutdownDelay leaves out the shutdown_delay of the allocations that the job has now.
	NoShutdownDelay bool `json:",omitempty"`
}

// NodeRegister stores the attributes that an edge reports of itself. It changes no status, session or
// journal field; a new node is initializing. If a ready node now offers other resources or attributes, the
// jobs that this may affect are evaluated.
type NodeRegister struct {
	command
	Node     fleet.Node
	Now      int64
	EvalSeed string `cbor:",omitempty"` // evaluation ids derive from it; "": none are made
}

// SessionOpen commits a session of a node with the next epoch, which fences the session before. A ready
// node stays ready unless Lost is set. Another node becomes ready if all rows up to Head are applied, else
// initializing.
// Refused: revoked; stale_session if Session is not greater than the node's; not_found if the node is
// unknown and Node is nil; conflict if Follows is set and the node has got a session of another instance
// since.
type SessionOpen struct {
	command
	NodeID   fleet.NodeID
	Session  uint64
	Instance fleet.InstanceID
	BootID   fleet.BootID
	Hub      fleet.HubID
	Addr     string
	Head     fleet.Seq   // Hello.Last: the newest row of the edge's journal
	Node     *fleet.Node // the node's attributes, if the heartbeat carried them; else nil
	// Lost is Hello.Lost: the damage to the edge's journal, or "". With it the node is not ready before
	// the edge sends a row that continues the applied ones.
	Lost     string
	EvalSeed string // evaluation ids derive from it
	// Follows is the epoch of the former session, if that was of another instance and is known to be over;
	// else 0.
	Follows fleet.Epoch `cbor:",omitempty"`
	Now     int64
}

// NodeStatus marks nodes that missed their heartbeat deadline: disconnected if an allocation there is to
// be kept, else down; a disconnected node becomes down once nothing is to be kept. Each job that is
// affected gets one evaluation. A node whose epoch is not Epoch any more is skipped.
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
	// LastHeard is when a hub last had contact with the node (UnixNano); 0: not known.
	LastHeard int64 `cbor:",omitempty"`
	// SessionOver says that the deciding leader had the node's session itself, and ends it.
	SessionOver bool `cbor:",omitempty"`
}

// AllocUpdates applies journal rows of several nodes. Each batch is valid only for the session epoch that
// it names. Result.Updates has the answer to each batch.
type AllocUpdates struct {
	command
	Batches  []NodeRows
	EvalSeed string
	Now      int64
}

// NodeRows is the batch of one node in an AllocUpdates. Rows are encoded by syncproto.EncodeRow; First is
// the number of the first one, Prev the chain hash before it. Received is the newest desired index that
// the edge has journaled (0: unchanged).
type NodeRows struct {
	NodeID   fleet.NodeID
	Epoch    fleet.Epoch
	First    fleet.Seq
	Prev     []byte
	Rows     [][]byte
	Received fleet.Index
	Base     bool // the edge has lost the rows before First, so a gap is accepted (syncproto.Updates.Base)
}

// Plan commits a plan that the planner has checked. The planner is the only component that commits plans,
// so nothing is checked again but the job, which others may change.
type Plan struct {
	command
	Result     fleet.PlanResult
	Jobs       []*fleet.Job // specifications that the allocations name by hash
	Evals      []fleet.Evaluation
	EvalID     fleet.EvalID
	Deployment fleet.DeploymentID
	// Namespace, JobID and JobModifyIndex name the job that was planned. If it has been
	// registered again or stopped since, the plan is refused (conflict).
	Namespace      string
	JobID          fleet.JobID
	JobModifyIndex fleet.Index
	// NewDeployment is the deployment that the plan begins, or nil. DeploymentUpdates change the
	// status of others; an update of a deployment that is over does nothing.
	NewDeployment     *fleet.Deployment
	DeploymentUpdates []fleet.DeploymentUpdate
	Now               int64
}

// Evals stores new evaluations, or new states of existing ones. A terminal evaluation is not changed.
type Evals struct {
	command
	Evals []fleet.Evaluation
	Now   int64
}

// EvalDelete removes terminal evaluations, and allocations whose end their edge has confirmed, with their
// history. If one of them may not be removed, the whole command is refused (conflict).
type EvalDelete struct {
	command
	IDs    []fleet.EvalID
	Allocs []fleet.AllocID
}

// AllocStop asks for allocations to be stopped and replaced. Each job that is affected gets one
// evaluation.
type AllocStop struct {
	command
	Allocs   []fleet.AllocID
	EvalSeed string
	Now      int64
	// NoShutdownDelay leaves out the shutdown_delay, also of allocations that are stopping already.
	NoShutdownDelay bool `json:",omitempty"`
	// Reschedule has an allocation that fails before it is stopped replaced as well, against its
	// reschedule policy.
	Reschedule bool `json:",omitempty"`
}

// Pool stores the rules of a node pool, new or known.
type Pool struct {
	command
	Pool fleet.Pool
}

// ClusterInit stores the identity of a new cluster. It is refused (conflict) if the state has one.
type ClusterInit struct {
	command
	Cluster Cluster
}

// Cluster is the identity of a cluster and its certificate authority.
type Cluster struct {
	ID        string
	Region    string
	CACert    []byte // DER
	CAKey     []byte // PKCS #8 DER, not encrypted; only of an older release, until ClusterSeal
	GossipKey []byte // like CAKey
	CreatedAt int64
	// Sealed are the CA's key and the gossip key, encrypted (see package pki) with the state key
	// whose name is SealKey. That key is not in the state.
	Sealed  []byte
	SealKey string
}

// ClusterSeal replaces the unencrypted secrets of a cluster by sealed ones. It is refused (conflict) if
// they are sealed with another key already.
type ClusterSeal struct {
	command
	ClusterID string
	Sealed    []byte
	SealKey   string
}

// WithSeal returns a copy of the cluster with the sealed secrets of s, and without the unencrypted ones.
func (c Cluster) WithSeal(s ClusterSeal) Cluster {
	c.CAKey, c.GossipKey, c.Sealed, c.SealKey = nil, nil, s.Sealed, s.SealKey
	return c
}

// Token stores a join token. An empty Token.Hash removes the token of that id.
type Token struct {
	command
	Token JoinToken
}

// Fence records a session that was refused because another machine uses the node's identity, with the rows
// that it sent, apart from the node's history. With code former_session it only records a newcomer that
// waits.
type Fence struct {
	command
	NodeID  fleet.NodeID
	Session fleet.FencedSession
	Rows    [][]byte
}

// NodeResync records a problem of a connected node for people: Orphans, which run there and are unknown to
// the cluster, or with no orphans the Reason why the node's history does not arrive.
type NodeResync struct {
	command
	NodeID  fleet.NodeID
	Epoch   fleet.Epoch
	Reason  string
	Orphans []fleet.AllocID
	Now     int64
}

// NodeEligibility makes a node eligible or ineligible for new allocations.
type NodeEligibility struct {
	command
	NodeID      fleet.NodeID
	Eligibility string
	EvalSeed    string
	Now         int64
}

// Hub stores the addresses of a hub; Removed removes them.
type Hub struct {
	command
	Hub     HubAddr
	Removed bool
}

// HubAddr holds the addresses at which a hub listens.
type HubAddr struct {
	ID     fleet.HubID
	QUIC   string
	HTTP   string
	Gossip string
}

// HubPeer is a hub in a Raft configuration: a voter, or a non-voter that only receives the log.
type HubPeer struct {
	ID    fleet.HubID
	Addr  string
	Voter bool
}

// Certificate records an issued certificate. With Replaces it removes the record of the renewed one.
type Certificate struct {
	command
	Serial   string
	Subject  string
	NotAfter int64
	Replaces string `cbor:",omitempty"` // serial of the certificate that this one renews; "": none
	Token    string `cbor:",omitempty"` // id of the join token that admits the subject; "": admitted before
	Key      []byte `cbor:",omitempty"` // with Token: SHA-256 of the public key
	CA       uint64 `cbor:",omitempty"` // number of the CA that signed it; 0: the cluster's first
}

// DeploymentStatus changes the status of a deployment. It is refused (conflict) if the deployment is over.
// Rollback is the job that is registered again with it, or nil.
type DeploymentStatus struct {
	command
	Update   fleet.DeploymentUpdate
	Rollback *fleet.Job
	Eval     *fleet.Evaluation // of the deployment's job; nil: none
	Now      int64
}

// DeploymentPromote promotes a deployment's canaries. It is refused if a group has too few healthy ones.
// Without names all groups with canaries are promoted.
type DeploymentPromote struct {
	command
	DeploymentID fleet.DeploymentID
	Groups       []string
	Eval         *fleet.Evaluation
	Now          int64
}

// AllocHealth sets the health of a deployment's allocations for an operator. Update and Rollback are its
// consequences for the deployment and its job; nil: none.
type AllocHealth struct {
	command
	DeploymentID fleet.DeploymentID
	Healthy      []fleet.AllocID
	Unhealthy    []fleet.AllocID
	// Reschedule are failed allocations that may be replaced.
	Reschedule []fleet.AllocID
	Update     *fleet.DeploymentUpdate
	Rollback   *fleet.Job
	Eval       *fleet.Evaluation
	Now        int64
}

// DeploymentDelete removes deployments that are over. If one of them is active, the whole command is
// refused (conflict).
type DeploymentDelete struct {
	command
	IDs []fleet.DeploymentID
}

// Result is the outcome of applying a command. Hubs send it to each other, so all commands share one
// encodable type.
type Result struct {
	Index   fleet.Index    `cbor:"1,keyasint"`
	Err     *fleet.Error   `cbor:"2,keyasint,omitempty"` // the command was refused; nil: applied
	Eval    fleet.EvalID   `cbor:"3,keyasint,omitempty"` // the evaluation that was stored; "": none
	Version uint64         `cbor:"4,keyasint,omitempty"` // of the job
	Session *SessionResult `cbor:"5,keyasint,omitempty"`
	Updates []BatchResult  `cbor:"6,keyasint,omitempty"` // in the order of AllocUpdates.Batches
	Moved   []fleet.NodeID `cbor:"7,keyasint,omitempty"` // nodes whose status NodeStatus changed
	Modify  fleet.Index    `cbor:"8,keyasint,omitempty"` // the job's JobModifyIndex after the command
	// Evals are the evaluations that a change of a node caused.
	Evals []fleet.EvalID `cbor:"20,keyasint,omitempty"`
	// Child is the job that a launch or a dispatch registered, Created its create index.
	Child   fleet.JobID `cbor:"21,keyasint,omitempty"`
	Created fleet.Index `cbor:"22,keyasint,omitempty"`
}

// Failure returns the reason why a command had no effect: err if it could not be committed, else the
// refusal in the result. It returns nil if the command was applied.
func (r Result) Failure(err error) error {
	if err == nil && r.Err != nil {
		return r.Err
	}
	return err
}

// SessionResult is the answer to a SessionOpen: the state of the node after it.
type SessionResult struct {
	Epoch   fleet.Epoch      `cbor:"1,keyasint"`
	Status  fleet.NodeStatus `cbor:"2,keyasint"`
	Applied fleet.Seq        `cbor:"3,keyasint"`
	Session uint64           `cbor:"4,keyasint"` // the node's newest session number, also after stale_session
	// ChainHash is the chain hash of the rows up to Applied.
	ChainHash []byte `cbor:"5,keyasint,omitempty"`
}

// BatchResult is the answer to one batch of AllocUpdates. Code is "" if the batch was applied. Applied is
// the node's newest applied row, Status its status after the command.
type BatchResult struct {
	Code    fleet.Code       `cbor:"1,keyasint,omitempty"`
	Message string           `cbor:"2,keyasint,omitempty"`
	Applied fleet.Seq        `cbor:"3,keyasint"`
	Status  fleet.NodeStatus `cbor:"4,keyasint"`
}
