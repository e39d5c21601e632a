package syncproto

import (
	"time"

	"skerry/fleet"
)

// Version is the newest protocol version that this build speaks.
const Version = 1

// ALPN names of the protocols on a hub's QUIC port.
const (
	ALPNEdge   = "skerry-edge/1"
	ALPNHub    = "skerry-hub/1"
	ALPNRaft   = "skerry-raft/1"
	ALPNEnroll = "skerry-enroll/1"
)

// Bounds of what a peer may send.
const (
	MaxFrame        = 1 << 20   // bytes of one frame's body
	MaxHeartbeat    = 256 << 10 // bytes of a heartbeat's body, which may hold the node
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
	FrameHoldings     FrameType = 10 // edge -> hub: allocations that a full Desired did not name
	FrameProbe        FrameType = 11 // hub -> edge: are you alive?
	FrameProbeAck     FrameType = 12
	FrameRequest      FrameType = 13 // opens a request stream (logs …), hub -> edge
	FrameReply        FrameType = 14
	FrameEnroll       FrameType = 15
	FrameEnrolled     FrameType = 16
	FrameResync       FrameType = 17 // hub -> edge: send node, holdings and rows again
	FrameExecInput    FrameType = 18 // hub -> edge, on a stream whose Request is RequestExec or RequestAction
	FrameExecOutput   FrameType = 19 // edge -> hub, on the same stream
	FrameLogPiece     FrameType = 20 // edge -> hub, after the Reply to RequestLogPieces
)

// Stream is one of the three streams of a session. The edge opens them and writes the number as the first byte
// (WriteStream, ReadStream). A stream that the hub opens carries a Request and its Reply.
type Stream uint8

const (
	StreamControl Stream = iota // opened first, by the edge: 1-4, 9, 11, 12, 17
	StreamUpdates               // opened by the edge: 5, 6
	StreamDesired               // opened by the edge: 7, 8, 10
)

// Message is the decoded body of a frame.
type Message interface{ FrameType() FrameType }

// Hello opens a session: the edge says who it is, which rows its journal holds, and which desired state it has.
type Hello struct {
	Versions  []uint16         `cbor:"1,keyasint"`
	Node      fleet.NodeID     `cbor:"2,keyasint"`
	Boot      fleet.BootID     `cbor:"3,keyasint"`
	Instance  fleet.InstanceID `cbor:"4,keyasint"`
	Session   uint64           `cbor:"5,keyasint"` // counter in the journal; grows with every Hello
	First     fleet.Seq        `cbor:"6,keyasint"` // oldest journal row held
	Last      fleet.Seq        `cbor:"7,keyasint"` // newest journal row; 0: the journal is empty
	ChainHash []byte           `cbor:"8,keyasint"` // chain hash at Last
	Desired   fleet.Index      `cbor:"9,keyasint"` // newest desired index journaled
	Cluster   string           `cbor:"10,keyasint"`
	Term      uint64           `cbor:"11,keyasint"` // highest Raft term and index that a hub has named
	Index     fleet.Index      `cbor:"12,keyasint"`
	Agent     string           `cbor:"13,keyasint"` // release of the edge
	// Lost says why rows of this journal may be missing; "": none are. Such a session carries no Updates: the edge
	// only learns which rows the cluster has applied, and then opens another session.
	Lost string `cbor:"14,keyasint,omitempty"`
}

// Welcome accepts a Hello.
type Welcome struct {
	Version uint16        `cbor:"1,keyasint"`
	Epoch   fleet.Epoch   `cbor:"2,keyasint"` // proposed; HeartbeatAck has the committed one
	Applied fleet.Seq     `cbor:"3,keyasint"` // last row of the edge that the cluster has applied
	TTL     time.Duration `cbor:"4,keyasint"`
	HubTime int64         `cbor:"5,keyasint"` // UnixNano
	Hubs    []string      `cbor:"6,keyasint"` // QUIC addresses that the edge may dial
	Cluster string        `cbor:"7,keyasint"`
	Term    uint64        `cbor:"8,keyasint"`
	Index   fleet.Index   `cbor:"9,keyasint"`
	Hub     fleet.HubID   `cbor:"10,keyasint"`
}

// Refused ends a session with an error. Either side may send it. It also answers a refused Enroll.
type Refused struct {
	Code       fleet.Code    `cbor:"1,keyasint"`
	Message    string        `cbor:"2,keyasint"`
	Hint       string        `cbor:"3,keyasint,omitempty"`
	RetryAfter time.Duration `cbor:"4,keyasint,omitempty"` // wait at least so long before the next attempt; 0: the edge decides
	Session    uint64        `cbor:"5,keyasint,omitempty"` // with stale_session: the counter to exceed
	Applied    fleet.Seq     `cbor:"6,keyasint,omitempty"` // with gap and fork: the last row that the cluster has applied
}

// Heartbeat tells the hub that the edge is alive, and so postpones the node's deadline.
type Heartbeat struct {
	Number uint64        `cbor:"1,keyasint"` // from 1 in each session
	Uptime time.Duration `cbor:"2,keyasint"`
	Wall   int64         `cbor:"3,keyasint"` // UnixNano; only shown, no decision depends on it
	RTT    time.Duration `cbor:"4,keyasint,omitempty"`
	// Hash is the hash of the edge's node. Node is the node itself; nil: its hash is the one that the cluster
	// acknowledged last, in this session or an earlier one.
	Hash []byte      `cbor:"5,keyasint,omitempty"`
	Node *fleet.Node `cbor:"6,keyasint,omitempty"`
}

// HeartbeatAck answers a Heartbeat. The first one of a session says that the cluster has committed Epoch; only then
// may the edge send Updates.
type HeartbeatAck struct {
	Number uint64 `cbor:"1,keyasint"`
	// Epoch, TTL and Applied are left out if the edge knows them already. EdgeSession restores Epoch and TTL.
	Epoch    fleet.Epoch      `cbor:"2,keyasint,omitempty"`
	Status   fleet.NodeStatus `cbor:"3,keyasint"`
	Reason   string           `cbor:"4,keyasint,omitempty"`
	TTL      time.Duration    `cbor:"5,keyasint,omitempty"`
	HubTime  int64            `cbor:"6,keyasint"`
	Hubs     []string         `cbor:"7,keyasint,omitempty"` // empty: unchanged
	NeedNode bool             `cbor:"8,keyasint,omitempty"` // send Node in the next heartbeat
	Applied  fleet.Seq        `cbor:"9,keyasint,omitempty"`
	// Index and Term are set in the first one of a session only: the cluster's position when the session was
	// committed. An edge that has seen a higher index knows that the cluster was restored from older data.
	Index fleet.Index `cbor:"10,keyasint,omitempty"`
	Term  uint64      `cbor:"11,keyasint,omitempty"`
	// ChainHash is the chain hash at Applied. It is set in the first one of a session whose Hello has Lost.
	ChainHash []byte `cbor:"12,keyasint,omitempty"`
	// Restored is set in the first one of a session only: the log entry that last replaced the cluster's state by a
	// snapshot; 0: none. Later entries have higher indexes. An edge that has not seen Restored or a higher index
	// knows that the cluster went back.
	Restored fleet.Index `cbor:"13,keyasint,omitempty"`
	// CAs are the CAs (DER) whose hubs the edge has to accept; the first one signs certificates. Empty: unchanged. The
	// edge says in its node's attribute fleet.AttributeCAs which ones it keeps. Edges of older releases ignore it.
	CAs [][]byte `cbor:"14,keyasint,omitempty"`
}

// Updates carries journal rows First..First+len(Rows)-1, each encoded by
// EncodeRow. Prev is the chain hash before the first.
type Updates struct {
	First fleet.Seq `cbor:"1,keyasint"`
	Prev  []byte    `cbor:"2,keyasint"`
	Rows  [][]byte  `cbor:"3,keyasint"`
	// Base says that the edge no longer holds rows before First, although the cluster needs them: it was restored
	// from an old snapshot. The cluster then records a gap and continues at First. It accepts Base only if First is
	// Hello.First.
	Base bool `cbor:"4,keyasint,omitempty"`
}

// Applied answers Updates: all rows up to Last are applied, and durable in Raft.
type Applied struct {
	Last   fleet.Seq        `cbor:"1,keyasint"`
	Status fleet.NodeStatus `cbor:"2,keyasint,omitempty"` // set if it changed with these rows
}

// Desired is the desired state of an edge. With Full it names every allocation of the node, else only those that
// changed since From. An allocation that is not named keeps running.
type Desired struct {
	Index   fleet.Index    `cbor:"1,keyasint"`
	From    fleet.Index    `cbor:"2,keyasint,omitempty"`
	Full    bool           `cbor:"3,keyasint,omitempty"`
	Run     []DesiredAlloc `cbor:"4,keyasint,omitempty"`
	Stop    []DesiredStop  `cbor:"5,keyasint,omitempty"`
	Bodies  []Body         `cbor:"6,keyasint,omitempty"`
	Cluster string         `cbor:"7,keyasint"`
	Term    uint64         `cbor:"8,keyasint"`
	// Volumes are dynamic host volumes to make or to delete: with Full all of the node, else those that changed.
	// One that is not named stays as it is. Edges of older releases ignore them.
	Volumes []DesiredVolume `cbor:"9,keyasint,omitempty"`
	// Prefetches are contents to fetch before allocations need them, or to let go: with Full all of the node, else
	// those that changed. One that is not named stays as it is. Edges of older releases ignore them.
	Prefetches []DesiredPrefetch `cbor:"10,keyasint,omitempty"`
}

// DesiredPrefetch is a version of a job whose artifacts and images the edge shall have, or let go.
type DesiredPrefetch struct {
	ID         fleet.PrefetchID `cbor:"1,keyasint"`
	Namespace  string           `cbor:"2,keyasint"`
	JobID      fleet.JobID      `cbor:"3,keyasint"`
	JobVersion uint64           `cbor:"4,keyasint"`
	JobHash    string           `cbor:"5,keyasint"`
	// Job is the specification (EncodeJob); nil where the edge has journaled this request before.
	Job          []byte      `cbor:"6,keyasint,omitempty"`
	Delete       bool        `cbor:"7,keyasint,omitempty"`
	RequestIndex fleet.Index `cbor:"8,keyasint"`
}

// DesiredVolume is a dynamic host volume that the edge shall have, or delete.
type DesiredVolume struct {
	ID         fleet.VolumeID    `cbor:"1,keyasint"`
	Namespace  string            `cbor:"2,keyasint"`
	Name       string            `cbor:"3,keyasint"`
	Plugin     string            `cbor:"4,keyasint,omitempty"`
	Parameters map[string]string `cbor:"5,keyasint,omitempty"`
	// Path is the folder of a registered volume, which the edge neither makes nor deletes; "": the plugin makes one.
	Path        string      `cbor:"6,keyasint,omitempty"`
	Delete      bool        `cbor:"7,keyasint,omitempty"`
	Pending     bool        `cbor:"8,keyasint,omitempty"` // the cluster has not heard that it is ready
	ModifyIndex fleet.Index `cbor:"9,keyasint"`
}

// DesiredAlloc is an allocation to run. The specification of its job is sent once, as a Body with the hash JobHash.
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

	// Deployment is the deployment that waits for the allocation's health; "": none.
	Deployment fleet.DeploymentID       `cbor:"13,keyasint,omitempty"`
	Allotment  *fleet.AssignedResources `cbor:"14,keyasint,omitempty"`
	// StopWindows are the Windows of a DesiredStop for this allocation. Only the edge's journal sets it; a hub does
	// not send it.
	StopWindows []DesiredWindow `cbor:"15,keyasint,omitempty"`
	// StopNow is the NoDelay of a DesiredStop for this allocation. Only the edge's journal sets it.
	StopNow bool `cbor:"16,keyasint,omitempty"`
	// KeptStopped says that a person on site stopped the allocation, and that no other allocation of its name shall
	// run there. Only the edge's journal sets it.
	KeptStopped bool `cbor:"17,keyasint,omitempty"`
}

// DesiredStop names an allocation to stop and says why.
type DesiredStop struct {
	ID          fleet.AllocID `cbor:"1,keyasint"`
	Reason      string        `cbor:"2,keyasint"`
	ModifyIndex fleet.Index   `cbor:"3,keyasint"`
	// Windows are the times in which the stop may begin; empty: now. Edges of older releases ignore it and stop at
	// once.
	Windows []DesiredWindow `cbor:"4,keyasint,omitempty"`
	// NoDelay skips every shutdown_delay, and ends one that has begun. Edges of older releases ignore it.
	NoDelay bool `cbor:"5,keyasint,omitempty"`
}

// DesiredWindow is a fleet.UpdateWindow in the form of the wire.
type DesiredWindow struct {
	Cron     string        `cbor:"1,keyasint"`
	Duration time.Duration `cbor:"2,keyasint"`
	TimeZone string        `cbor:"3,keyasint,omitempty"` // "": the site's
}

// Body is the specification of a job, encoded by EncodeJob. Hash is its content hash.
type Body struct {
	Hash string `cbor:"1,keyasint"`
	Job  []byte `cbor:"2,keyasint"`
}

// Received answers a Desired: all desired state up to Index is journaled. Missing lists the hashes of bodies that
// the edge does not have, at most MaxMissing. The hub sends them, and the edge answers again with further ones.
type Received struct {
	Index   fleet.Index `cbor:"1,keyasint"`
	Missing []string    `cbor:"2,keyasint,omitempty"`
}

// Holdings lists allocations that the edge holds and that a full Desired did not name, at most MaxHoldings in a
// frame. The hub answers for each with a Desired that runs or stops it.
type Holdings struct {
	Allocs []fleet.AllocID `cbor:"1,keyasint"`
	More   bool            `cbor:"2,keyasint,omitempty"` // another frame continues the list
}

// Probe asks the edge whether it is alive; the edge answers at once with a ProbeAck.
type Probe struct {
	Number uint64 `cbor:"1,keyasint"`
}

// ProbeAck answers a Probe, with its number.
type ProbeAck struct {
	Number uint64 `cbor:"1,keyasint"`
}

// Resync asks the edge to send its node, its holdings, and its journal rows from Applied+1 again.
type Resync struct {
	Reason  string    `cbor:"1,keyasint"`
	Applied fleet.Seq `cbor:"2,keyasint"`
}

// Request is the first frame on a stream that a hub opens to an edge. The edge answers with a Reply. What follows
// the Reply depends on Kind. Fields that Kind does not use are zero.
type Request struct {
	Kind   string        `cbor:"1,keyasint"` // RequestLogs …
	Alloc  fleet.AllocID `cbor:"2,keyasint"`
	Task   string        `cbor:"3,keyasint"`
	Stream string        `cbor:"4,keyasint"` // "stdout" or "stderr"
	Offset int64         `cbor:"5,keyasint"`
	Origin string        `cbor:"6,keyasint"` // "start" or "end"
	Follow bool          `cbor:"7,keyasint"`
	Path   string        `cbor:"8,keyasint,omitempty"` // of a file, below the allocation's folder
	Limit  int64         `cbor:"9,keyasint,omitempty"` // bytes to read; 0: to the end of the file

	Signal     string `cbor:"10,keyasint,omitempty"` // name of the signal to send
	Everything bool   `cbor:"11,keyasint,omitempty"` // refuse to restart all tasks if one of them has ended

	Command []string `cbor:"12,keyasint,omitempty"` // program and arguments, to run in the task
	TTY     bool     `cbor:"13,keyasint,omitempty"` // run it on a terminal

	Level string `cbor:"14,keyasint,omitempty"` // lowest level of the log lines to send
	JSON  bool   `cbor:"15,keyasint,omitempty"` // logs as JSON

	Action string `cbor:"16,keyasint,omitempty"` // name of the task's action to run

	// Variables are variables to keep, or to forget. Complete is that of older releases, which give the paths of all
	// variables that they know: an edge ignores it, because a hub that was restored does not know all.
	Variables []DeliveredVariable `cbor:"17,keyasint,omitempty"`
	Complete  bool                `cbor:"18,keyasint,omitempty"`

	// Identities are tokens of tasks to keep.
	Identities []DeliveredIdentity `cbor:"19,keyasint,omitempty"`

	// SiteCodes are codes of people on site to keep, or to forget.
	SiteCodes []DeliveredSiteCode `cbor:"20,keyasint,omitempty"`

	// Reason is why the data that an allocation waits for does not come yet (Wait), or never.
	Reason string `cbor:"21,keyasint,omitempty"`
	Wait   bool   `cbor:"22,keyasint,omitempty"`

	// Services are services of neighbours to keep, or to forget. Exact: with them the edge's copy is what the hub knows.
	// UnreachableNodes are then the nodes of the copy that have no link to the hubs.
	Services         []DeliveredService `cbor:"220,keyasint,omitempty"`
	Exact            bool               `cbor:"221,keyasint,omitempty"`
	UnreachableNodes []fleet.NodeID     `cbor:"222,keyasint,omitempty"`

	// IdentityKey is, with Identities, the id of the edge's own key that the hubs publish (package nodekey); "": none. The
	// edge signs with no other key. Edges of older releases ignore it.
	IdentityKey string `cbor:"228,keyasint,omitempty"`
}

// DeliveredVariable is a variable that allocations of the edge may read.
type DeliveredVariable struct {
	Namespace   string      `cbor:"1,keyasint"`
	Path        string      `cbor:"2,keyasint"`
	ModifyIndex fleet.Index `cbor:"3,keyasint,omitempty"` // with Deleted: of the deletion; 0 from older releases
	Items       []byte      `cbor:"4,keyasint,omitempty"` // as EncodeItems encodes them
	Deleted     bool        `cbor:"5,keyasint,omitempty"`
	// ModifyTime is when its items were stored, as UnixNano by the hub's clock, and is only shown; 0 from older releases.
	ModifyTime int64 `cbor:"6,keyasint,omitempty"`
}

// DeliveredIdentity is a token of a task's identity. Without Token it says what is known of one.
type DeliveredIdentity struct {
	Alloc   fleet.AllocID `cbor:"1,keyasint"`
	Task    string        `cbor:"2,keyasint"`
	Name    string        `cbor:"3,keyasint"` // of the identity
	Token   string        `cbor:"4,keyasint,omitempty" json:",omitempty"`
	KeyID   string        `cbor:"5,keyasint,omitempty" json:",omitempty"` // that has signed it
	Issued  int64         `cbor:"6,keyasint,omitempty" json:",omitempty"` // by the hub's clock, in seconds since 1970
	Expires int64         `cbor:"7,keyasint,omitempty" json:",omitempty"` // 0: never
	// Offline says that the edge may sign another token of the same claims while no hub is in reach. Edges of older releases
	// ignore it, and do not say it of what they hold.
	Offline bool `cbor:"13,keyasint,omitempty" json:",omitempty"`
}

// DeliveredSiteCode is a code with which a person may use the local API of the edge, without its secret. Of a revoked one,
// and in what an edge says that it holds, only ID and ModifyIndex count.
type DeliveredSiteCode struct {
	ID           string      `cbor:"1,keyasint"`
	ModifyIndex  fleet.Index `cbor:"2,keyasint"`
	Name         string      `cbor:"3,keyasint,omitempty" json:",omitempty"`
	Capabilities []string    `cbor:"4,keyasint,omitempty" json:",omitempty"` // of local: what it allows
	Salt         []byte      `cbor:"5,keyasint,omitempty" json:",omitempty"`
	Hash         []byte      `cbor:"6,keyasint,omitempty" json:",omitempty"` // of the secret
	Rounds       int         `cbor:"7,keyasint,omitempty" json:",omitempty"` // of the hash
	Expires      int64       `cbor:"8,keyasint,omitempty" json:",omitempty"` // by the hub's clock, in seconds since 1970
	Revoked      bool        `cbor:"9,keyasint,omitempty" json:",omitempty"` // the edge forgets it
}

// DeliveredService is a service of an allocation on another edge of the same site. Of a removed one only ID counts, and of
// those that an edge says that it holds, ID and Sum.
type DeliveredService struct {
	ID         string        `cbor:"1,keyasint"`
	Sum        []byte        `cbor:"2,keyasint,omitempty" json:",omitempty"` // of the other fields, as the hub computes it
	Name       string        `cbor:"3,keyasint,omitempty" json:",omitempty"`
	Namespace  string        `cbor:"4,keyasint,omitempty" json:",omitempty"`
	Node       fleet.NodeID  `cbor:"5,keyasint,omitempty" json:",omitempty"`
	NodeName   string        `cbor:"6,keyasint,omitempty" json:",omitempty"`
	Datacenter string        `cbor:"7,keyasint,omitempty" json:",omitempty"`
	Job        fleet.JobID   `cbor:"8,keyasint,omitempty" json:",omitempty"`
	Alloc      fleet.AllocID `cbor:"9,keyasint,omitempty" json:",omitempty"`
	Tags       []string      `cbor:"10,keyasint,omitempty" json:",omitempty"`
	Address    string        `cbor:"11,keyasint,omitempty" json:",omitempty"`
	Port       int           `cbor:"12,keyasint,omitempty" json:",omitempty"` // 0: none
	TCP        bool          `cbor:"13,keyasint,omitempty" json:",omitempty"` // a check says that its port is one of TCP
	Removed    bool          `cbor:"14,keyasint,omitempty" json:",omitempty"` // the edge forgets it
}

// Lasts reports whether the answer has no end of its own: it continues until the hub or the command ends it.
func (r Request) Lasts() bool {
	return r.Follow || r.Converses() || r.Kind == RequestMonitor
}

// Converses reports whether the hub writes more on the stream after the Reply: ExecInput frames, which ExecOutput frames
// answer, or the archive of RequestTakeData.
func (r Request) Converses() bool {
	return r.Kind == RequestExec || r.Kind == RequestAction || r.Kind == RequestTakeData
}

// Kinds of Request, and what follows their Reply: raw bytes until the stream ends, if nothing else is said.
// RequestList and RequestStat are answered with JSON. RequestRestart and RequestSignal act on one task, or on all
// running tasks if Task is "": nothing follows the Reply.
const (
	RequestLogs = "logs"
	// RequestLogPieces asks for the same output as RequestLogs, as LogPiece frames, which name the file of each
	// piece.
	RequestLogPieces = "logpieces"
	RequestList      = "ls"
	RequestStat      = "stat"
	RequestRead      = "readat"
	RequestStream    = "stream"
	RequestRestart   = "restart"
	RequestSignal    = "signal"
	// RequestExec runs a command in a task. ExecInput frames follow it, and ExecOutput frames its Reply.
	RequestExec = "exec"
	// RequestAction runs an action of a task, as RequestExec runs a command. The edge takes the action's command
	// from the version of the job that it has.
	RequestAction = "action"
	// RequestChecks asks for the results of an allocation's checks: JSON.
	RequestChecks = "checks"
	// RequestUsage asks for the resource usage of an allocation's tasks (Task: of one task), or without an
	// allocation for that of the machine: JSON.
	RequestUsage = "usage"
	// RequestCollect removes the folder of an allocation that has ended, or without an allocation the folders of
	// all ended ones. Nothing follows the Reply.
	RequestCollect = "collect"
	// RequestMonitor asks for the edge's own log from now on, until the hub closes the stream: lines of at least
	// Level, as text or JSON.
	RequestMonitor = "monitor"
	// RequestVariables has the edge keep variables, encrypted by the machine, for the allocations that may read them.
	// Nothing follows the Reply, which says that they are durable.
	RequestVariables = "variables"
	// RequestIdentities has the edge keep tokens of tasks, encrypted by the machine. Then they are durable, and
	// EncodeIdentities of what the edge holds follows the Reply.
	RequestIdentities = "identities"
	// RequestSiteCodes has the edge keep codes of people on site, and forget those that are revoked. Then that is durable,
	// and EncodeSiteCodes of what the edge holds follows the Reply.
	RequestSiteCodes = "sitecodes"
	// RequestData asks for the data of an ended allocation, for its replacement: a tar of alloc/data and of the local
	// folder of each task (package edge/dataarchive). CodeNotFound: the edge has none. RequestReleaseData says that the
	// replacement has it; nothing follows the Reply.
	RequestData        = "data"
	RequestReleaseData = "releasedata"
	// RequestTakeData brings such a tar to an allocation that waits for it. A second Reply says that the edge takes it.
	// Then the hub writes it, and a third Reply says whether it is complete and durable. CodeConflict: the allocation does
	// not wait. CodeNotFound: the edge does not know it yet.
	RequestTakeData = "takedata"
	// RequestNoData says that such data does not come yet, or never. Nothing follows the Reply, which has the same errors.
	RequestNoData = "nodata"
	// RequestServices has the edge keep services of neighbours, and forget those that are removed. Nothing follows the Reply.
	// Without services, and not Exact, it asks which ones the edge holds: EncodeServices of them follows.
	RequestServices = "services"
)

// MaxExecData is how many bytes of a command's input or output, or of a task's output, one frame carries.
const MaxExecData = 32 << 10

// ExecInput is input for a running command. If the hub closes its half of the stream, the edge ends the command.
type ExecInput struct {
	Stdin  []byte `cbor:"1,keyasint,omitempty"`
	Close  bool   `cbor:"2,keyasint,omitempty"` // stdin ends after this
	Width  uint16 `cbor:"3,keyasint,omitempty"` // of the terminal; 0: unchanged
	Height uint16 `cbor:"4,keyasint,omitempty"`
}

// ExecOutput is output of a running command. The last frame has Exited with the exit Code, or an Error if the
// command could not run or was ended.
type ExecOutput struct {
	Stdout []byte       `cbor:"1,keyasint,omitempty"`
	Stderr []byte       `cbor:"2,keyasint,omitempty"`
	Exited bool         `cbor:"3,keyasint,omitempty"`
	Code   int          `cbor:"4,keyasint,omitempty"`
	Error  *fleet.Error `cbor:"5,keyasint,omitempty"`
}

// LogPiece is a piece of a task's output. File is the number of the rotated file.
type LogPiece struct {
	File   uint64 `cbor:"1,keyasint"`
	Offset int64  `cbor:"2,keyasint"` // in that file
	Data   []byte `cbor:"3,keyasint"` // at most MaxExecData
}

// Reply answers a Request. Without an Error, the data of the request's kind follows until the stream ends.
type Reply struct {
	Error *fleet.Error `cbor:"1,keyasint,omitempty"`
}

// Enroll asks a hub for a certificate, over ALPNEnroll. A peer that shows a certificate on this connection asks for
// a new one of the same name. It needs no token, unless its certificate ended too long ago.
type Enroll struct {
	TokenID string `cbor:"1,keyasint"` // "": none
	Secret  string `cbor:"2,keyasint"`
	Role    string `cbor:"3,keyasint"` // fleet.RoleHub or RoleEdge
	Name    string `cbor:"4,keyasint"`
	ID      string `cbor:"5,keyasint"` // node id of an edge, name of a hub
	CSR     []byte `cbor:"6,keyasint"` // PKCS #10, DER
}

// Enrolled answers an Enroll that was accepted; Refused answers one that was not.
type Enrolled struct {
	Cert      []byte   `cbor:"1,keyasint"` // DER
	CA        []byte   `cbor:"2,keyasint"` // DER
	Cluster   string   `cbor:"3,keyasint"`
	Hubs      []string `cbor:"4,keyasint"` // QUIC addresses
	GossipKey []byte   `cbor:"5,keyasint,omitempty"`
	Gossip    []string `cbor:"6,keyasint,omitempty"`
	StateKey  []byte   `cbor:"7,keyasint,omitempty"` // for a hub: the key that seals the secrets in the cluster's state
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
