package api

import (
	"time"

	"skerry/fleet"
)

// AutopilotConfig has the rules by which hubs count as healthy, in Nomad's shape. They are the same in every
// cluster.
type AutopilotConfig struct {
	CleanupDeadServers      bool
	LastContactThreshold    string
	MaxTrailingLogs         uint64
	MinQuorum               uint64
	ServerStabilizationTime string
	EnableRedundancyZones   bool
	DisableUpgradeMigration bool
	EnableCustomUpgrades    bool
	CreateIndex             uint64
	ModifyIndex             uint64
}

// AgentMember is a hub, in Nomad's shape.
type AgentMember struct {
	Name        string
	Addr        string
	Port        uint16
	Tags        map[string]string
	Status      string
	ProtocolMin uint8
	ProtocolMax uint8
	ProtocolCur uint8
	DelegateMin uint8
	DelegateMax uint8
	DelegateCur uint8
}

// ComponentHealth is the health of the hub, or of the edge, in the process that answers.
type ComponentHealth struct {
	Ok      bool   `json:"ok"`
	Message string `json:"message"`
}

// MetricsSummary has a hub's metrics in the shape of Nomad's JSON.
type MetricsSummary struct {
	Timestamp string
	Gauges    []GaugeValue
	Points    []struct{}
	Counters  []SampledValue
	Samples   []SampledValue
}

// GaugeValue is one gauge of a MetricsSummary.
type GaugeValue struct {
	Name   string
	Value  float64
	Labels map[string]string
}

// SampledValue is one counter or sample of a MetricsSummary.
type SampledValue struct {
	Name                              string
	Count                             int
	Rate, Sum, Min, Max, Mean, Stddev float64
	Labels                            map[string]string
}

// RaftServer is a hub in the Raft configuration, in Nomad's shape.
type RaftServer struct {
	ID           fleet.HubID
	Node         string
	Address      string
	Leader       bool
	Voter        bool
	RaftProtocol string
}

// ServerHealth is the health of one hub, in Nomad's shape.
type ServerHealth struct {
	ID          fleet.HubID
	Name        string
	Address     string
	SerfStatus  string // gossip's
	Version     string // of the release that it runs
	Leader      bool
	LastContact string // how long its answer took
	LastTerm    uint64
	LastIndex   uint64
	Healthy     bool
	Voter       bool
	StableSince time.Time
}

// HealthAnswer is the health of all hubs. FailureTolerance is how many healthy voters may fail before the quorum is
// lost.
type HealthAnswer struct {
	Healthy          bool
	FailureTolerance int
	Servers          []ServerHealth
	Leader           fleet.HubID
	Voters           []fleet.HubID
}

// SchedulerConfigurationResponse has the scheduler configuration, and the index of its last change.
type SchedulerConfigurationResponse struct {
	SchedulerConfig *fleet.SchedulerConfiguration
	Index           fleet.Index
}

// SchedulerSetConfigurationResponse says whether the configuration was replaced; not if its index had changed.
type SchedulerSetConfigurationResponse struct {
	Updated bool
	Index   fleet.Index
}

// RotatedKey answers the rotation of the root key, with the new one.
type RotatedKey struct {
	Key   fleet.RootKey
	Index fleet.Index
}

// RestoreAnswer answers the restore of a snapshot.
type RestoreAnswer struct {
	Index       fleet.Index // of the entry that restored it
	RestoredTo  fleet.Index // the index at which the snapshot was taken
	Jobs, Nodes int         // in the state that was restored
}

// RaftConfiguration lists the hubs of the Raft configuration. Index is the last log index of the hub that answers.
type RaftConfiguration struct {
	Servers []RaftServer
	Index   fleet.Index
}

// LeadershipTransfer says which hub led and which one was asked to lead ("": any).
type LeadershipTransfer struct{ From, To fleet.HubID }

// CAStatus says which certificate authorities the cluster has, and how far a rotation is.
type CAStatus struct {
	CAs []CA // the oldest first
	// UnderWay says that a rotation is not over: HubsMissing are the hubs that it waits for.
	UnderWay    bool
	HubsMissing []fleet.HubID
	Edges       int // of the cluster, without those that were revoked
	// EdgesMissing are edges that do not have the newest CA yet, at most 1000 of EdgesMissingTotal.
	EdgesMissing      []CAEdge
	EdgesMissingTotal int
	Index             fleet.Index
}

// CA is one certificate authority of a cluster.
type CA struct {
	Number   uint64 // 1 for the cluster's first
	ID       string // beginning of the hash
	Hash     string // SHA-256 of the certificate, as skerry context add --ca-hash reads it
	Subject  string
	NotAfter time.Time
	Status   string // distributing, signing, replaced or ended
	// GraceEnd is until when edges get in with a certificate of this CA without a proof of their key; nil: no end is set.
	GraceEnd *time.Time    `json:",omitempty"`
	Hubs     []fleet.HubID // that have it
	Edges    int           // that accept hubs of it
	// EdgesCertified is the number of edges whose newest certificate is of this CA.
	EdgesCertified int
}

// StateKeyStatus says with which keys the secrets in the cluster's state are encrypted, and how far a rotation is.
type StateKeyStatus struct {
	Keys []StateKey // the oldest first
	// UnderWay says that the newest key is not active yet. HubsMissing are the hubs that have not stored it.
	UnderWay    bool
	HubsMissing []fleet.HubID
	Index       fleet.Index
}

// StateKey is one key with which secrets in the state are encrypted, without the key itself.
type StateKey struct {
	ID          string
	Number      uint64        // 1 for the cluster's first
	Status      string        // distributing, active, kept or forgotten
	Secrets     int           // that are encrypted with it: the cluster's own, CAs, root keys, signing keys, secrets of auth methods
	Hubs        []fleet.HubID // that have stored it; of the first key from the first rotation on
	Erased      []fleet.HubID // hubs that have erased a forgotten key
	CreatedAt   *time.Time    `json:",omitempty"`
	ActiveSince *time.Time    `json:",omitempty"`
	KeptUntil   *time.Time    `json:",omitempty"` // of one that was replaced
	ForgottenAt *time.Time    `json:",omitempty"`
}

// RotateStateKeyRequest replaces the state key. Keep ("720h") is how long the hubs keep the one before; "": 30 days.
type RotateStateKeyRequest struct {
	Keep string
}

// RotatedStateKey answers the beginning of a rotation.
type RotatedStateKey struct {
	ID    string // of the new key
	Index fleet.Index
}

// CAEdge is an edge that does not have the newest CA.
type CAEdge struct {
	ID     fleet.NodeID
	Name   string
	Status fleet.NodeStatus
	CA     uint64 // that signed its certificate
}

// RotateCARequest replaces the CA. Grace ("400h") is how long edges get in with a certificate of the CA that is replaced;
// "": 400 days.
type RotateCARequest struct {
	Grace string
}

// RotatedCA answers the beginning of a rotation.
type RotatedCA struct {
	Number uint64 // of the new CA
	Hash   string
	Index  fleet.Index
}
