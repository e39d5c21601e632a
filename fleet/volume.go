package fleet

import "time"

// Kinds of volumes.
const (
	VolumeHost = "host"
	VolumeCSI  = "csi"
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
