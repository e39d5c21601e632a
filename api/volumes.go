package api

import "skerry/fleet"

// VolumeRequest creates, registers or changes a dynamic host volume.
type VolumeRequest struct{ Volume *fleet.Volume }

// VolumeAnswer answers a VolumeRequest.
type VolumeAnswer struct {
	Volume   *fleet.Volume
	Warnings string
	Index    fleet.Index
}

// Volume is a dynamic host volume with the allocations that use it and have not ended.
type Volume struct {
	fleet.Volume
	Allocations []AllocStub `json:",omitempty"`
}

// VolumeStub is a dynamic host volume in a list.
type VolumeStub struct {
	Namespace        string
	ID               fleet.VolumeID
	Name             string
	PluginID         string
	NodePool         string
	NodeID           fleet.NodeID
	CapacityBytes    int64
	State            string
	StateDescription string `json:",omitempty"`
	Deleting         bool   `json:",omitempty"`
	CreateIndex      fleet.Index
	CreateTime       int64
	ModifyIndex      fleet.Index
	ModifyTime       int64
}
