package acl

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
)

// Kind is the kind of object that a rule is about: the name of its block in a policy.
type Kind string

// The kinds. A policy cannot grant KindManagement, which a management token alone has.
const (
	KindNamespace  Kind = "namespace"
	KindVariables  Kind = "variables"
	KindNode       Kind = "node"
	KindNodePool   Kind = "node_pool"
	KindAgent      Kind = "agent"
	KindOperator   Kind = "operator"
	KindQuota      Kind = "quota"
	KindHostVolume Kind = "host_volume"
	KindPlugin     Kind = "plugin"
	KindSite       Kind = "site"  // the nodes of a site: what node allows is allowed there too
	KindLocal      Kind = "local" // people on site, with a site code, on the socket of an edge
	KindManagement Kind = "management"
)

// Capability is one thing that may be done with an object of a kind.
type Capability string

// Capabilities of several kinds.
const (
	Deny  Capability = "deny" // takes away everything
	List  Capability = "list"
	Read  Capability = "read"
	Write Capability = "write"
)

// Capabilities of a namespace.
const (
	ListJobs             Capability = "list-jobs"
	ParseJob             Capability = "parse-job"
	ReadJob              Capability = "read-job"
	SubmitJob            Capability = "submit-job"
	DispatchJob          Capability = "dispatch-job"
	ReadLogs             Capability = "read-logs"
	ReadFS               Capability = "read-fs"
	AllocExec            Capability = "alloc-exec"
	AllocNodeExec        Capability = "alloc-node-exec"
	AllocLifecycle       Capability = "alloc-lifecycle"
	SentinelOverride     Capability = "sentinel-override"
	CSIRegisterPlugin    Capability = "csi-register-plugin"
	CSIWriteVolume       Capability = "csi-write-volume"
	CSIReadVolume        Capability = "csi-read-volume"
	CSIListVolume        Capability = "csi-list-volume"
	CSIMountVolume       Capability = "csi-mount-volume"
	HostVolumeCreate     Capability = "host-volume-create"
	HostVolumeRegister   Capability = "host-volume-register"
	HostVolumeRead       Capability = "host-volume-read"
	HostVolumeWrite      Capability = "host-volume-write"
	HostVolumeDelete     Capability = "host-volume-delete"
	ListScalingPolicies  Capability = "list-scaling-policies"
	ReadScalingPolicy    Capability = "read-scaling-policy"
	ReadJobScaling       Capability = "read-job-scaling"
	ScaleJob             Capability = "scale-job"
	SubmitRecommendation Capability = "submit-recommendation"
)

// ListServices lets a workload list and read the services of its namespace. No policy can grant it: ReadJob allows that
// to tokens.
const ListServices Capability = "list-services"

// Exec lets people on site run commands in tasks. Neither policy of a block local has it.
const Exec Capability = "exec"

// Capabilities of node pools, host volumes, variables and the operator.
const (
	Delete         Capability = "delete"
	MountReadOnly  Capability = "mount-readonly"
	MountReadWrite Capability = "mount-readwrite"
	Destroy        Capability = "destroy"
	SnapshotSave   Capability = "snapshot-save"
	LicenseRead    Capability = "license-read"
)

// Grammar is what a block of a kind may say. It is read only.
type Grammar struct {
	Labelled     bool                        // it has the name of an object, or a glob
	Policies     map[string][]Capability     // the values of policy, with the capabilities that each stands for
	Capabilities []Capability                // the values of capabilities
	Implied      map[Capability][]Capability // capabilities that another one brings with it
}

var readNamespace = []Capability{
	ListJobs, ParseJob, ReadJob, CSIListVolume, CSIReadVolume, ReadJobScaling, ListScalingPolicies, ReadScalingPolicy,
	HostVolumeRead,
}

var readOrWrite = map[string][]Capability{"deny": {Deny}, "read": {Read}, "write": {Read, Write}}

// blocks are the blocks of a policy. That of variables is within a namespace, one path block for each rule.
var blocks = map[Kind]Grammar{
	KindNamespace: {
		Labelled: true,
		Policies: map[string][]Capability{
			"deny":  {Deny},
			"read":  readNamespace,
			"scale": {ListScalingPolicies, ReadScalingPolicy, ReadJobScaling, ScaleJob},
			"write": append(slices.Clone(readNamespace), ScaleJob, SubmitJob, DispatchJob, ReadLogs, ReadFS, AllocExec,
				AllocLifecycle, CSIMountVolume, CSIWriteVolume, SubmitRecommendation, HostVolumeWrite),
		},
		Capabilities: []Capability{
			Deny, ListJobs, ParseJob, ReadJob, SubmitJob, DispatchJob, ReadLogs, ReadFS, AllocExec, AllocNodeExec,
			AllocLifecycle, SentinelOverride, CSIRegisterPlugin, CSIWriteVolume, CSIReadVolume, CSIListVolume,
			CSIMountVolume, HostVolumeCreate, HostVolumeRegister, HostVolumeRead, HostVolumeWrite, HostVolumeDelete,
			ListScalingPolicies, ReadScalingPolicy, ReadJobScaling, ScaleJob, SubmitRecommendation,
		},
		Implied: map[Capability][]Capability{
			HostVolumeWrite:    {HostVolumeRegister, HostVolumeCreate, HostVolumeDelete, HostVolumeRead},
			HostVolumeRegister: {HostVolumeCreate, HostVolumeRead},
			HostVolumeCreate:   {HostVolumeRead},
		},
	},
	KindVariables: {
		Labelled:     true,
		Capabilities: []Capability{Deny, List, Read, Write, Destroy},
		Implied:      map[Capability][]Capability{Read: {List}},
	},
	KindNodePool: {
		Labelled:     true,
		Policies:     map[string][]Capability{"deny": {Deny}, "read": {Read}, "write": {Delete, Read, Write}},
		Capabilities: []Capability{Deny, Delete, Read, Write},
	},
	KindHostVolume: {
		Labelled: true,
		Policies: map[string][]Capability{"deny": {Deny}, "read": {MountReadOnly},
			"write": {MountReadOnly, MountReadWrite}},
		Capabilities: []Capability{Deny, MountReadOnly, MountReadWrite},
	},
	KindSite:  {Labelled: true, Policies: readOrWrite},
	KindNode:  {Policies: readOrWrite},
	KindAgent: {Policies: readOrWrite},
	KindOperator: {
		Policies:     readOrWrite,
		Capabilities: []Capability{SnapshotSave, LicenseRead},
	},
	KindQuota:  {Policies: readOrWrite},
	KindLocal:  {Policies: readOrWrite, Capabilities: []Capability{Deny, Read, Write, Exec}},
	KindPlugin: {Policies: map[string][]Capability{"deny": {Deny}, "list": {List}, "read": {List, Read}}},
}

// GrammarOf returns what a block of a kind may say; ok is false for a kind that no policy can grant.
func GrammarOf(kind Kind) (g Grammar, ok bool) {
	g, ok = blocks[kind]
	return g, ok
}

// BlockNames returns the names of the outermost blocks of a policy, sorted.
func BlockNames() []string {
	var names []string
	for _, kind := range slices.Sorted(maps.Keys(blocks)) {
		if kind != KindVariables {
			names = append(names, string(kind))
		}
	}
	return names
}

// JoinCapabilities returns capabilities as a text, for messages.
func JoinCapabilities(list []Capability) string {
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = string(c)
	}
	return strings.Join(names, ", ")
}

// numbered are all capabilities in a fixed order, which gives each its bit in a capabilitySet.
var numbered = numberCapabilities()

func numberCapabilities() map[Capability]capabilitySet {
	var all []Capability
	for _, g := range blocks {
		all = append(all, g.Capabilities...)
		for _, expanded := range g.Policies {
			all = append(all, expanded...)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) > bits.UintSize {
		panic(fmt.Sprintf("%d capabilities do not fit into a set of %d", len(all), bits.UintSize))
	}
	byName := make(map[Capability]capabilitySet, len(all))
	for i, c := range all {
		byName[c] = 1 << i
	}
	return byName
}

// capabilitySet is a set of capabilities. The empty one is that of a rule that grants nothing.
type capabilitySet uint64

// addCapabilities returns the set with more capabilities. A set with Deny has nothing else.
func (s capabilitySet) addCapabilities(more []Capability) capabilitySet {
	for _, c := range more {
		s |= numbered[c]
	}
	if deny := numbered[Deny]; s&deny != 0 {
		return deny
	}
	return s
}

func (s capabilitySet) deniesAll() bool { return s&numbered[Deny] != 0 }

// grantsCapability tells whether the set has a capability. An unknown capability is in no set.
func (s capabilitySet) grantsCapability(c Capability) bool {
	return !s.deniesAll() && s&numbered[c] != 0
}

// grantsAny tells whether the set has any capability.
func (s capabilitySet) grantsAny() bool { return s != 0 && !s.deniesAll() }
