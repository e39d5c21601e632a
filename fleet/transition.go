package fleet

import "time"

// TransitionKind says what a journal row reports.
type TransitionKind string

// The kinds of a transition.
const (
	TransitionAlloc      TransitionKind = "alloc"      // an allocation's client status, maybe with a task's event
	TransitionTask       TransitionKind = "task"       // a task's event that leaves the client status alone
	TransitionHealth     TransitionKind = "health"     // deployment health
	TransitionCheck      TransitionKind = "check"      // a check's status changed (may be dropped at the bound)
	TransitionOperator   TransitionKind = "operator"   // somebody on site did something
	TransitionDisconnect TransitionKind = "disconnect" // the link went, as the edge saw it
	TransitionReconnect  TransitionKind = "reconnect"  // the link came, as the edge saw it
	TransitionAgent      TransitionKind = "agent"      // the agent started; BootID tells whether the machine rebooted (may be dropped at the bound)
	TransitionVolume     TransitionKind = "volume"     // a dynamic host volume was made or deleted, or could not be
	TransitionPrefetch   TransitionKind = "prefetch"   // the fetching of contents before a rollout began, ended or failed
	TransitionSite       TransitionKind = "site"       // a line of the edge's audit: what somebody on site did
	TransitionGap        TransitionKind = "gap"        // rows of low priority were dropped here; Dropped counts them
)

// Transition is a row of an edge's journal: something that happened out there.
// It carries the state after it, so that applying it needs no other row.
type Transition struct {
	Seq    Seq
	BootID BootID
	Mono   time.Duration // since boot
	Wall   int64         // UnixNano, edge's wall clock: shown, never decided on
	Kind   TransitionKind

	Alloc             AllocID `json:",omitempty"`
	ClientStatus      string  `json:",omitempty"` // after it; "" leaves it alone
	ClientDescription string  `json:",omitempty"`
	Task              string  `json:",omitempty"`
	// TaskState is the task's state after it, without events; nil leaves it alone.
	TaskState *TaskState `json:",omitempty"`
	Event     *TaskEvent `json:",omitempty"`
	Message   string     `json:",omitempty"`
	Dropped   uint64     `json:",omitempty"`
	// Healthy and Deployment are what a TransitionHealth says: whether the allocation
	// is healthy, in that deployment.
	Healthy    *bool        `json:",omitempty"`
	Deployment DeploymentID `json:",omitempty"`
	// Hold is what a TransitionOperator says when somebody on site stops the allocation; nil: nothing.
	Hold *Hold `json:",omitempty"`
	// Released says that the allocation's hold has ended.
	Released bool `json:",omitempty"`
	// StoppedOnEdge says that the edge stops the allocation for good, and no hub has told it to: no hub answered for too long, or
	// somebody on site wants that.
	StoppedOnEdge bool `json:",omitempty"`
	// Network is the network status of the allocation after it, or with Task of that task in a network that its driver
	// made; nil leaves it alone.
	Network *NetworkStatus `json:",omitempty"`
	// Volume is what a TransitionVolume says.
	Volume *VolumeReport `json:",omitempty"`
	// Prefetch is what a TransitionPrefetch says.
	Prefetch *PrefetchReport `json:",omitempty"`
	// Site is what a TransitionSite says.
	Site *SiteAction `json:",omitempty"`
}

// Urgent reports whether it leaves the edge with the next 200 ms tick: a client
// status that changed, health, the first report of an allocation, or a volume.
func (t *Transition) Urgent() bool {
	return t.Kind == TransitionAlloc || t.Kind == TransitionHealth || t.Hold != nil || t.Released || t.Volume != nil
}

// Droppable reports whether the journal may let it go at its bound. A status
// transition never may, nor what says after an absence that a task runs: the rows
// that said so may have been let go.
func (t *Transition) Droppable() bool {
	if t.Kind == TransitionTask {
		return t.Event == nil || t.Event.Type != TaskReconnected
	}
	return t.Kind == TransitionCheck || t.Kind == TransitionAgent
}
