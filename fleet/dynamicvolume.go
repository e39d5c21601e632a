package fleet

import "slices"

// States of a dynamic host volume.
const (
	VolumePending     = "pending"     // its edge has not made it yet
	VolumeReady       = "ready"       // jobs may use it
	VolumeUnavailable = "unavailable" // it is ready, and its node is not
)

// VolumePluginMkdir is the plugin that makes a folder. The attribute VolumePluginAttribute of a node says that its
// edge has it.
const (
	VolumePluginMkdir     = "mkdir"
	VolumePluginAttribute = "plugins.host_volume.mkdir.version"
)

// Volume is a dynamic host volume: a folder that the edge of one node makes on request, and that jobs of its
// namespace mount by its name.
type Volume struct {
	Namespace string
	ID        VolumeID
	Name      string
	PluginID  string // "": somebody else made the folder (Registered)
	NodePool  string
	NodeID    NodeID
	// Constraints choose the node, or check the given one, when the volume is created.
	Constraints               []Constraint `json:",omitempty"`
	RequestedCapacityMinBytes int64
	RequestedCapacityMaxBytes int64
	CapacityBytes             int64 // 0: not limited
	RequestedCapabilities     []VolumeCapability
	Parameters                map[string]string `json:",omitempty"` // of the plugin
	HostPath                  string            // on the edge; "": not made yet
	State                     string
	StateDescription          string `json:",omitempty"` // why it is not ready
	// Registered says that the folder existed before, and is never deleted.
	Registered bool `json:",omitempty"`
	// Deleting says that the edge is to delete it, and that nothing new is placed with it.
	Deleting    bool `json:",omitempty"`
	CreateIndex Index
	CreateTime  int64
	ModifyIndex Index
	ModifyTime  int64
}

// VolumeCapability is one way in which jobs may use a volume.
type VolumeCapability struct {
	AttachmentMode string
	AccessMode     string
}

// Usable reports whether jobs may be placed with the volume.
func (v *Volume) Usable() bool { return v.State == VolumeReady && !v.Deleting }

// Admits reports whether a request of a job in that namespace suits the volume's capabilities.
func (v *Volume) Admits(namespace string, r *VolumeRequest) bool {
	want := VolumeCapability{r.AttachmentMode, r.AccessMode}
	if want.AttachmentMode == "" {
		want.AttachmentMode = AttachFileSystem
	}
	if want.AccessMode == "" {
		if want.AccessMode = AccessWriter; r.ReadOnly {
			want.AccessMode = AccessReader
		}
	}
	if want.AccessMode == AccessReader && !r.ReadOnly || want.AccessMode == AccessWriter && r.ReadOnly {
		return false
	}
	return v.Usable() && v.Namespace == namespace && slices.Contains(v.RequestedCapabilities, want)
}

// UsedBy reports whether an allocation uses the volume, so that it must stay.
func (v *Volume) UsedBy(a *Alloc) bool {
	return a.NodeID == v.NodeID && a.Namespace == v.Namespace && a.UsesVolume(v.Name)
}

// UsesVolume reports whether a group asks for the host volume of that name.
func (a *Alloc) UsesVolume(name string) bool {
	g := a.Group()
	if g == nil {
		return false
	}
	index, _ := a.NameIndex()
	for _, r := range g.Volumes {
		if r.Type == VolumeHost && r.VolumeSource(index) == name {
			return true
		}
	}
	return false
}

// VolumeReport is what an edge says of a dynamic host volume.
type VolumeReport struct {
	ID       VolumeID
	State    string // VolumeReady, VolumePending (it could not be made) or VolumeDeleted
	Path     string `json:",omitempty"`
	Capacity int64  `json:",omitempty"`
}

// VolumeDeleted is the State of a VolumeReport about a volume that its edge has deleted.
const VolumeDeleted = "deleted"
