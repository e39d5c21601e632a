package fleet

import (
	"strconv"
	"time"
)

// Kinds of volumes.
const (
	VolumeHost = "host"
	VolumeCSI  = "csi"
)

// Access modes of host volumes, and their one attachment mode.
const (
	AccessReader       = "single-node-reader-only"
	AccessWriter       = "single-node-writer"
	AccessSingleWriter = "single-node-single-writer" // one allocation at a time
	AccessMultiWriter  = "single-node-multi-writer"
	AttachFileSystem   = "file-system"
)

// VolumeRequest is storage that a group needs.
type VolumeRequest struct {
	Name           string
	Type           string
	Source         string
	ReadOnly       bool
	Sticky         bool
	AccessMode     string
	AttachmentMode string
	MountOptions   *CSIMountOptions
	PerAlloc       bool
}

// HostVolume is a folder of a node that jobs mount by its name.
type HostVolume struct {
	Path     string
	ReadOnly bool
	ID       VolumeID // of a dynamic host volume; "": its edge is configured with it
}

// VolumeSource is the name of the host volume that an allocation needs for the request: per_alloc
// adds the allocation's index, as in "data[2]".
func (v *VolumeRequest) VolumeSource(index int) string {
	if !v.PerAlloc {
		return v.Source
	}
	return v.Source + "[" + strconv.Itoa(index) + "]"
}

// MayMount reports whether a request may use a volume: a volume that is read-only takes only
// requests that are.
func (v *VolumeRequest) MayMount(h HostVolume) bool { return v.ReadOnly || !h.ReadOnly }

// CSIMountOptions is how a volume is mounted.
type CSIMountOptions struct {
	FSType     string
	MountFlags []string
}

// VolumeMount puts one of the group's volumes into a task's file system.
type VolumeMount struct {
	Volume          string
	Destination     string
	ReadOnly        bool
	PropagationMode string // default private
	SELinuxLabel    string
}

// CSIPlugin says that a task is a plugin that serves volumes.
type CSIPlugin struct {
	ID                  string
	Type                string        // node, controller or monolith
	MountDir            string        // default /csi
	StagePublishBaseDir string        // default /local/csi
	HealthTimeout       time.Duration // default 30s
}
