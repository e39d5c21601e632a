package syncproto

import (
	"time"

	"skerry/fleet"
)

// Version is the newest protocol version that this build speaks.
const Version = 1

// ALPN names of what runs over a hub's one UDP port.
const (
	ALPNEdge   = "skerry-edge/1"
	ALPNHub    = "skerry-hub/1"
	ALPNRaft   = "skerry-raft/1"
	ALPNEnroll = "skerry-enroll/1"
)

// Bounds of what a peer may send.
const (
	MaxFrame        = 1 << 20   // bytes of one frame's body
	MaxHeartbeat    = 256 << 10 // of a heartbeat's, with the description of a machine
	MaxUpdatesBytes = 512 << 10 // row bytes in one Updates
	MaxUpdatesRows  = 1000      // rows in one Updates
	MaxHoldings     = 10_000    // allocations in one Holdings
	MaxMissing      = 1000      // bodies in one Received
)

// FrameType is a frame's first byte.
type FrameType uint8

// The types of frames. Their numbers never change.
const (
	FrameHello        FrameType = 1
	FrameWelcome      FrameType = 2
	FrameHeartbeat    FrameType = 3
	FrameHeartbeatAck FrameType = 4
	FrameUpdates      FrameType = 5
	FrameApplied      FrameType = 6
	FrameDesired      FrameType = 7
	FrameReceived     FrameType = 8
	FrameRefused      FrameType = 9  // ends the session
	FrameHoldings     FrameType = 10 // edge -> hub: allocations the hub did not mention
	FrameProbe        FrameType = 11 // hub -> edge: are you alive?
	FrameProbeAck     FrameType = 12
	FrameRequest      FrameType = 13 // opens a request stream (logs …), hub -> edge
	FrameReply        FrameType = 14
	FrameEnroll       FrameType = 15
	FrameEnrolled     FrameType = 16
	FrameResync       FrameType = 17 // hub -> edge: say everything again
	FrameExecInput    FrameType = 18 // hub -> edge, on a stream whose Request is RequestExec or RequestAction
	FrameExecOutput   FrameType = 19 // its other direction
	FrameLogPiece     FrameType = 20 // edge -> hub, behind the Reply to RequestLogPieces
)

// Stream names the stream of a session that a frame travels on. The edge opens
// the three of them, and its first byte on each is the number (WriteStream,
// ReadStream). A stream that the hub opens carries a Request and its Reply.
type Stream uint8

const (
	StreamControl Stream = iota // opened first, by the edge: 1-4, 9, 11, 12, 17
	StreamUpdates               // opened by the edge: 5, 6
	StreamDesired               // opened by the edge: 7, 8, 10
)

// Message is any frame's body.
type Message interface{ FrameType() FrameType }

// Hello opens a session.
type Hello struct {
	Versions  []uint16         `cbor:"1,keyasint"`
	Node      fleet.NodeID     `cbor:"2,keyasint"`
	Boot      fleet.BootID     `cbor:"3,keyasint"`
	Instance  fleet.InstanceID `cbor:"4,keyasint"`
	Session   uint64           `cbor:"5,keyasint"` // journaled; grows with every Hello
	First     fleet.Seq        `cbor:"6,keyasint"` // oldest journal row held
	Last      fleet.Seq        `cbor:"7,keyasint"` // newest; 0: the journal is empty
	ChainHash []byte           `cbor:"8,keyasint"` // at Last
	Desired   fleet.Index      `cbor:"9,keyasint"` // newest desired index journaled
	Cluster   string           `cbor:"10,keyasint"`
	Term      uint64           `cbor:"11,keyasint"` // hub last seen: Raft term and index
	Index     fleet.Index      `cbor:"12,keyasint"`
	Agent     string           `cbor:"13,keyasint"` // version
	// Lost is why rows of this journal may be missing. Such a session is there to
	// learn where the cluster stands: it carries no Updates, and the edge comes back
	// in another one when its journal goes on from there.
	Lost string `cbor:"14,keyasint,omitempty"`
}

// Welcome accepts a Hello.
type Welcome struct {
	Version uint16        `cbor:"1,keyasint"`
	Epoch   fleet.Epoch   `cbor:"2,keyasint"` // offered; HeartbeatAck says the one committed
	Applied fleet.Seq     `cbor:"3,keyasint"` // last row the cluster has applied
	TTL     time.Duration `cbor:"4,keyasint"`
	HubTime int64         `cbor:"5,keyasint"` // UnixNano
	Hubs    []string      `cbor:"6,keyasint"` // addresses to dial
	Cluster string        `cbor:"7,keyasint"`
	Term    uint64        `cbor:"8,keyasint"`
	Index   fleet.Index   `cbor:"9,keyasint"`
	Hub     fleet.HubID   `cbor:"10,keyasint"`
}

// Refused ends a session, or answers a request that is not served.
type Refused struct {
	Code       fleet.Code    `cbor:"1,keyasint"`
	Message    string        `cbor:"2,keyasint"`
	Hint       string        `cbor:"3,keyasint,omitempty"`
	RetryAfter time.Duration `cbor:"4,keyasint,omitempty"` // not before
	Session    uint64        `cbor:"5,keyasint,omitempty"` // with stale_session: the counter to exceed
	Applied    fleet.Seq     `cbor:"6,keyasint,omitempty"` // with gap and fork: where the cluster stands
}

// Heartbeat keeps a session's deadline away.
type Heartbeat struct {
	Number uint64        `cbor:"1,keyasint"` // from 1 in each session
	Uptime time.Duration `cbor:"2,keyasint"`
	Wall   int64         `cbor:"3,keyasint"` // UnixNano: shown, never decided on
	RTT    time.Duration `cbor:"4,keyasint,omitempty"`
	// Node describes the machine, only where its hash is not the one that the
	// cluster acknowledged in this session or an earlier one.
	Hash []byte      `cbor:"5,keyasint,omitempty"`
	Node *fleet.Node `cbor:"6,keyasint,omitempty"`
}

// HeartbeatAck answers a Heartbeat. The first one of a session says that the
// cluster has committed Epoch; only then are Updates taken.
type HeartbeatAck struct {
	Number uint64 `cbor:"1,keyasint"`
	// Epoch, TTL and Applied travel where they differ from what this session's
	// edge was told last; EdgeSession puts Epoch and TTL back in.
	Epoch    fleet.Epoch      `cbor:"2,keyasint,omitempty"`
	Status   fleet.NodeStatus `cbor:"3,keyasint"`
	Reason   string           `cbor:"4,keyasint,omitempty"`
	TTL      time.Duration    `cbor:"5,keyasint,omitempty"`
	HubTime  int64            `cbor:"6,keyasint"`
	Hubs     []string         `cbor:"7,keyasint,omitempty"` // only where changed
	NeedNode bool             `cbor:"8,keyasint,omitempty"` // describe yourself in the next heartbeat
	Applied  fleet.Seq        `cbor:"9,keyasint,omitempty"`
	// Index and Term, in the first one of a session only, are where the cluster
	// stood when the session was committed: an edge that has seen a higher index
	// knows that the cluster went back.
	Index fleet.Index `cbor:"10,keyasint,omitempty"`
	Term  uint64      `cbor:"11,keyasint,omitempty"`
	// ChainHash is the one at Applied, in the first one of a session whose Hello
	// says Lost.
	ChainHash []byte `cbor:"12,keyasint,omitempty"`
	// Restored, in the first one of a session only, is the entry at which the
	// cluster's state was last replaced by that of a snapshot. Indexes go on behind it:
	// an edge that has seen none as high as that knows by it that the cluster went back.
	Restored fleet.Index `cbor:"13,keyasint,omitempty"`
}

// Updates carries journal rows First..First+len(Rows)-1, each encoded by
// EncodeRow. Prev is the chain hash before the first.
type Updates struct {
	First fleet.Seq `cbor:"1,keyasint"`
	Prev  []byte    `cbor:"2,keyasint"`
	Rows  [][]byte  `cbor:"3,keyasint"`
	// Base says that the edge holds nothing older than First any more: the
	// cluster went back (restored from an old snapshot) behind rows that it had
	// acknowledged once. The cluster then notes a gap and goes on from First. It is
	// taken only where Hello.First said so, too.
	Base bool `cbor:"4,keyasint,omitempty"`
}

// Applied acknowledges rows up to Last as durable in Raft.
type Applied struct {
	Last   fleet.Seq        `cbor:"1,keyasint"`
	Status fleet.NodeStatus `cbor:"2,keyasint,omitempty"` // where it changed with them
}

// Desired is what an edge shall run. Where Full is set, it names every
// allocation of the node; else only what changed since From. Nothing stops for
// being left out.
type Desired struct {
	Index   fleet.Index    `cbor:"1,keyasint"`
	From    fleet.Index    `cbor:"2,keyasint,omitempty"`
	Full    bool           `cbor:"3,keyasint,omitempty"`
	Run     []DesiredAlloc `cbor:"4,keyasint,omitempty"`
	Stop    []DesiredStop  `cbor:"5,keyasint,omitempty"`
	Bodies  []Body         `cbor:"6,keyasint,omitempty"`
	Cluster string         `cbor:"7,keyasint"`
	Term    uint64         `cbor:"8,keyasint"`
}

// DesiredAlloc is an allocation to run. Its job's body travels once, by hash.
type DesiredAlloc struct {
	ID          fleet.AllocID   `cbor:"1,keyasint"`
	Namespace   string          `cbor:"2,keyasint"`
	JobID       fleet.JobID     `cbor:"3,keyasint"`
	JobVersion  uint64          `cbor:"4,keyasint"`
	JobHash     string          `cbor:"5,keyasint"`
	TaskGroup   string          `cbor:"6,keyasint"`
	Name        string          `cbor:"7,keyasint"`
	NodeName    string          `cbor:"8,keyasint"`
	Resources   fleet.Resources `cbor:"9,keyasint"`
	Previous    fleet.AllocID   `cbor:"10,keyasint,omitempty"`
	CreateIndex fleet.Index     `cbor:"11,keyasint"`
	ModifyIndex fleet.Index     `cbor:"12,keyasint"` // AllocModifyIndex

	// Deployment wants to know whether the allocation becomes healthy.
	Deployment fleet.DeploymentID       `cbor:"13,keyasint,omitempty"`
	Allotment  *fleet.AssignedResources `cbor:"14,keyasint,omitempty"`
	// StopWindows are those of a DesiredStop that has named the allocation. A hub does not
	// send them: so the edge's journal keeps them.
	StopWindows []DesiredWindow `cbor:"15,keyasint,omitempty"`
	// StopNow is NoDelay of such a DesiredStop, and kept in the same way.
	StopNow bool `cbor:"16,keyasint,omitempty"`
	// KeptStopped says that somebody on site stopped it, and wants no other one of its name
	// to run there: kept by the edge's journal alone.
	KeptStopped bool `cbor:"17,keyasint,omitempty"`
}

// DesiredStop names an allocation to stop and says why.
type DesiredStop struct {
	ID          fleet.AllocID `cbor:"1,keyasint"`
	Reason      string        `cbor:"2,keyasint"`
	ModifyIndex fleet.Index   `cbor:"3,keyasint"`
	// Windows are those in which the stop may begin; none: at once. An edge that does not
	// know of them stops at once.
	Windows []DesiredWindow `cbor:"4,keyasint,omitempty"`
	// NoDelay leaves out every shutdown_delay, and ends one that has begun. An edge that
	// does not know of it waits for them.
	NoDelay bool `cbor:"5,keyasint,omitempty"`
}

// DesiredWindow is a fleet.UpdateWindow.
type DesiredWindow struct {
	Cron     string        `cbor:"1,keyasint"`
	Duration time.Duration `cbor:"2,keyasint"`
	TimeZone string        `cbor:"3,keyasint,omitempty"` // "": the site's
}

// Body is a job's specification as CBOR; Hash is its content hash.
type Body struct {
	Hash string `cbor:"1,keyasint"`
	Job  []byte `cbor:"2,keyasint"`
}

// Received says that everything up to Index is journaled. Missing lists bodies
// that a Desired named and the edge does not have, at most MaxMissing of them: the
// answer leads to another Received, with more.
type Received struct {
	Index   fleet.Index `cbor:"1,keyasint"`
	Missing []string    `cbor:"2,keyasint,omitempty"`
}

// Holdings lists allocations that the edge holds and a full Desired did not
// mention, at most MaxHoldings in one frame. The hub answers each allocation with a
// Desired: run (keep, adopt) or stop.
type Holdings struct {
	Allocs []fleet.AllocID `cbor:"1,keyasint"`
	More   bool            `cbor:"2,keyasint,omitempty"` // another frame continues the list
}

// Probe asks whether this session's edge is alive.
type Probe struct {
	Number uint64 `cbor:"1,keyasint"`
}

// ProbeAck answers a Probe, with its number.
type ProbeAck struct {
	Number uint64 `cbor:"1,keyasint"`
}

// Resync asks an edge that stays half-way to say everything again: its node's
// description, its holdings, its journal from Applied+1.
type Resync struct {
	Reason  string    `cbor:"1,keyasint"`
	Applied fleet.Seq `cbor:"2,keyasint"`
}

// Request opens a stream from hub to edge; Reply starts the answer, and for
// every kind raw bytes follow it until the stream ends.
type Request struct {
	Kind   string        `cbor:"1,keyasint"` // RequestLogs …
	Alloc  fleet.AllocID `cbor:"2,keyasint"`
	Task   string        `cbor:"3,keyasint"`
	Stream string        `cbor:"4,keyasint"` // "stdout" or "stderr"
	Offset int64         `cbor:"5,keyasint"`
	Origin string        `cbor:"6,keyasint"` // "start" or "end"
	Follow bool          `cbor:"7,keyasint"`
	Path   string        `cbor:"8,keyasint,omitempty"` // of a file, below the allocation's folder
	Limit  int64         `cbor:"9,keyasint,omitempty"` // bytes to read of it; 0: all

	Signal     string `cbor:"10,keyasint,omitempty"` // to send
	Everything bool   `cbor:"11,keyasint,omitempty"` // restart all tasks, also those that have ended

	Command []string `cbor:"12,keyasint,omitempty"` // to run where the task runs
	TTY     bool     `cbor:"13,keyasint,omitempty"` // on a terminal of its own

	Level string `cbor:"14,keyasint,omitempty"` // of logs
	JSON  bool   `cbor:"15,keyasint,omitempty"` // logs as JSON

	Action string `cbor:"16,keyasint,omitempty"` // name of the task's action to run
}

// Lasts reports whether what follows the Reply goes on until somebody has had enough.
func (r Request) Lasts() bool {
	return r.Follow || r.Converses() || r.Kind == RequestMonitor
}

// Converses reports whether ExecInput frames follow it, and ExecOutput frames its Reply.
func (r Request) Converses() bool { return r.Kind == RequestExec || r.Kind == RequestAction }

// Kinds of Request: a task's output, what lies in an allocation's folder (a list
// and a description are JSON), how its checks went (JSON), what is used (JSON), and what is done to one task, or to all that run
// where Task is "": nothing follows the Reply then.
const (
	RequestLogs = "logs"
	// RequestLogPieces asks for what RequestLogs does, as LogPiece frames, which say in which
	// file each piece lies.
	RequestLogPieces = "logpieces"
	RequestList      = "ls"
	RequestStat      = "stat"
	RequestRead      = "readat"
	RequestStream    = "stream"
	RequestRestart   = "restart"
	RequestSignal    = "signal"
	// RequestExec runs a command where a task runs. ExecInput frames follow it, and
	// ExecOutput frames its Reply.
	RequestExec = "exec"
	// RequestAction runs an action of a task, as RequestExec runs a command. What it is,
	// the edge knows: by the version of the job that it has.
	RequestAction = "action"
	// RequestChecks asks how the checks of an allocation went: JSON.
	RequestChecks = "checks"
	// RequestUsage asks what an allocation's tasks use (Task: one of them), or without
	// an allocation what the machine does: JSON.
	RequestUsage = "usage"
	// RequestCollect removes the folder of an allocation that has ended, or without an
	// allocation those of all that have: nothing follows the Reply.
	RequestCollect = "collect"
	// RequestMonitor asks for what the edge itself logs, from now on, until the hub
	// closes the stream: lines at a Level, as text or JSON.
	RequestMonitor = "monitor"
)

// MaxExecData is how much of what a command reads or writes, or of a task's output, one frame
// carries.
const MaxExecData = 32 << 10

// ExecInput is what a command is given. A hub that closes its half of the stream
// ends the command.
type ExecInput struct {
	Stdin  []byte `cbor:"1,keyasint,omitempty"`
	Close  bool   `cbor:"2,keyasint,omitempty"` // its stdin ends behind that
	Width  uint16 `cbor:"3,keyasint,omitempty"` // of its terminal; 0: as it was
	Height uint16 `cbor:"4,keyasint,omitempty"`
}

// ExecOutput is what a command writes, and in the last frame how it ended: with an
// exit code, or not at all by itself.
type ExecOutput struct {
	Stdout []byte       `cbor:"1,keyasint,omitempty"`
	Stderr []byte       `cbor:"2,keyasint,omitempty"`
	Exited bool         `cbor:"3,keyasint,omitempty"`
	Code   int          `cbor:"4,keyasint,omitempty"`
	Error  *fleet.Error `cbor:"5,keyasint,omitempty"`
}

// LogPiece is a piece of a task's output. The files that it is rotated in are numbered.
type LogPiece struct {
	File   uint64 `cbor:"1,keyasint"`
	Offset int64  `cbor:"2,keyasint"` // in that file
	Data   []byte `cbor:"3,keyasint"` // at most MaxExecData
}

// Reply answers a Request; raw bytes follow it, until the stream ends.
type Reply struct {
	Error *fleet.Error `cbor:"1,keyasint,omitempty"`
}

// Enroll asks for a certificate, over ALPNEnroll. Who shows one on that connection
// asks for another of the same name, and needs no token unless it ended too long
// ago.
type Enroll struct {
	TokenID string `cbor:"1,keyasint"` // "": none
	Secret  string `cbor:"2,keyasint"`
	Role    string `cbor:"3,keyasint"` // fleet.RoleHub or RoleEdge
	Name    string `cbor:"4,keyasint"`
	ID      string `cbor:"5,keyasint"` // node id of an edge, name of a hub
	CSR     []byte `cbor:"6,keyasint"` // PKCS #10, DER
}

// Enrolled answers Enroll (Refused does where it fails).
type Enrolled struct {
	Cert      []byte   `cbor:"1,keyasint"` // DER
	CA        []byte   `cbor:"2,keyasint"` // DER
	Cluster   string   `cbor:"3,keyasint"`
	Hubs      []string `cbor:"4,keyasint"` // QUIC addresses
	GossipKey []byte   `cbor:"5,keyasint,omitempty"`
	Gossip    []string `cbor:"6,keyasint,omitempty"`
	StateKey  []byte   `cbor:"7,keyasint,omitempty"` // of a hub: what the secrets in the cluster's state are sealed with
}

func (Hello) FrameType() FrameType        { return FrameHello }
func (Welcome) FrameType() FrameType      { return FrameWelcome }
func (Heartbeat) FrameType() FrameType    { return FrameHeartbeat }
func (HeartbeatAck) FrameType() FrameType { return FrameHeartbeatAck }
func (Updates) FrameType() FrameType      { return FrameUpdates }
func (Applied) FrameType() FrameType      { return FrameApplied }
func (Desired) FrameType() FrameType      { return FrameDesired }
func (Received) FrameType() FrameType     { return FrameReceived }
func (Refused) FrameType() FrameType      { return FrameRefused }
func (Holdings) FrameType() FrameType     { return FrameHoldings }
func (Probe) FrameType() FrameType        { return FrameProbe }
func (ProbeAck) FrameType() FrameType     { return FrameProbeAck }
func (Request) FrameType() FrameType      { return FrameRequest }
func (Reply) FrameType() FrameType        { return FrameReply }
func (Enroll) FrameType() FrameType       { return FrameEnroll }
func (Enrolled) FrameType() FrameType     { return FrameEnrolled }
func (Resync) FrameType() FrameType       { return FrameResync }
func (ExecInput) FrameType() FrameType    { return FrameExecInput }
func (ExecOutput) FrameType() FrameType   { return FrameExecOutput }
func (LogPiece) FrameType() FrameType     { return FrameLogPiece }
