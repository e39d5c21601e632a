package syncproto

import (
	"errors"
	"fmt"
	"time"

	"skerry/fleet"
	"skerry/internal/codec"
)

// The wire types below are frozen forms of types of package fleet. Of a node, only the fields that the edge itself sets
// are sent; the fields that the cluster sets are not.

// MaxNodeText bounds each text of a node in a heartbeat, in bytes; longer ones are cut.
const MaxNodeText = 4 << 10

type wireHeartbeat struct {
	Number uint64        `cbor:"1,keyasint"`
	Uptime time.Duration `cbor:"2,keyasint"`
	Wall   int64         `cbor:"3,keyasint"`
	RTT    time.Duration `cbor:"4,keyasint,omitempty"`
	Hash   []byte        `cbor:"5,keyasint,omitempty"`
	Node   *wireNode     `cbor:"6,keyasint,omitempty"`
}

type wireNode struct {
	ID         string                `cbor:"1,keyasint"`
	Name       string                `cbor:"2,keyasint"`
	Datacenter string                `cbor:"3,keyasint"`
	NodePool   string                `cbor:"4,keyasint"`
	NodeClass  string                `cbor:"5,keyasint,omitempty"`
	Attributes map[string]string     `cbor:"6,keyasint,omitempty"`
	Meta       map[string]string     `cbor:"7,keyasint,omitempty"`
	Resources  wireResources         `cbor:"8,keyasint"`
	Reserved   wireResources         `cbor:"9,keyasint"`
	Drivers    map[string]wireDriver `cbor:"10,keyasint,omitempty"`
	Devices    []wireDevice          `cbor:"11,keyasint,omitempty"`
	Version    string                `cbor:"12,keyasint,omitempty"`
	Hash       string                `cbor:"13,keyasint,omitempty"`
	Site       string                `cbor:"14,keyasint,omitempty"`

	HostNetworks   []wireHostNetwork `cbor:"15,keyasint,omitempty"`
	ReservedPorts  string            `cbor:"16,keyasint,omitempty"`
	MinDynamicPort int               `cbor:"17,keyasint,omitempty"`
	MaxDynamicPort int               `cbor:"18,keyasint,omitempty"`
	MaxAllocs      int               `cbor:"19,keyasint,omitempty"`
	TimeZone       string            `cbor:"20,keyasint,omitempty"`

	HostVolumes map[string]wireHostVolume `cbor:"21,keyasint,omitempty"`
}

type wireHostVolume struct {
	Path     string `cbor:"1,keyasint"`
	ReadOnly bool   `cbor:"2,keyasint,omitempty"`
	ID       string `cbor:"3,keyasint,omitempty"`
}

type wireHostNetwork struct {
	Name          string `cbor:"1,keyasint"`
	IP            string `cbor:"2,keyasint"`
	ReservedPorts string `cbor:"3,keyasint,omitempty"`
}

type wireResources struct {
	CPU         int `cbor:"1,keyasint,omitempty"`
	MemoryMB    int `cbor:"2,keyasint,omitempty"`
	DiskMB      int `cbor:"3,keyasint,omitempty"`
	Cores       int `cbor:"4,keyasint,omitempty"`
	MemoryMaxMB int `cbor:"5,keyasint,omitempty"`
}

type wireDriver struct {
	Detected   bool              `cbor:"1,keyasint,omitempty"`
	Healthy    bool              `cbor:"2,keyasint,omitempty"`
	Health     string            `cbor:"3,keyasint,omitempty"`
	Attributes map[string]string `cbor:"4,keyasint,omitempty"`
}

type wireDevice struct {
	Kind       string            `cbor:"1,keyasint"`
	Vendor     string            `cbor:"2,keyasint,omitempty"`
	Type       string            `cbor:"3,keyasint,omitempty"`
	Name       string            `cbor:"4,keyasint,omitempty"`
	ID         string            `cbor:"5,keyasint"`
	Attributes map[string]string `cbor:"6,keyasint,omitempty"`
}

// MarshalCBOR encodes the frozen form, wireHeartbeat.
func (h Heartbeat) MarshalCBOR() ([]byte, error) {
	return codec.Marshal(wireHeartbeat{
		Number: h.Number, Uptime: h.Uptime, Wall: h.Wall, RTT: h.RTT, Hash: h.Hash, Node: nodeToWire(h.Node),
	})
}

// UnmarshalCBOR decodes the frozen form, wireHeartbeat.
func (h *Heartbeat) UnmarshalCBOR(b []byte) error {
	var w wireHeartbeat
	if err := frameDecoder.Unmarshal(b, &w); err != nil {
		return err
	}
	*h = Heartbeat{Number: w.Number, Uptime: w.Uptime, Wall: w.Wall, RTT: w.RTT, Hash: w.Hash, Node: w.Node.toNode()}
	return nil
}

// wireDesiredAlloc is the frozen form of DesiredAlloc: its Resources have numbers for keys.
type wireDesiredAlloc struct {
	ID          fleet.AllocID `cbor:"1,keyasint"`
	Namespace   string        `cbor:"2,keyasint"`
	JobID       fleet.JobID   `cbor:"3,keyasint"`
	JobVersion  uint64        `cbor:"4,keyasint"`
	JobHash     string        `cbor:"5,keyasint"`
	TaskGroup   string        `cbor:"6,keyasint"`
	Name        string        `cbor:"7,keyasint"`
	NodeName    string        `cbor:"8,keyasint"`
	Resources   wireResources `cbor:"9,keyasint"`
	Previous    fleet.AllocID `cbor:"10,keyasint,omitempty"`
	CreateIndex fleet.Index   `cbor:"11,keyasint"`
	ModifyIndex fleet.Index   `cbor:"12,keyasint"`

	Deployment  fleet.DeploymentID     `cbor:"13,keyasint,omitempty"`
	Allotment   *wireAssignedResources `cbor:"14,keyasint,omitempty"`
	StopWindows []DesiredWindow        `cbor:"15,keyasint,omitempty"`
	StopNow     bool                   `cbor:"16,keyasint,omitempty"`
	KeptStopped bool                   `cbor:"17,keyasint,omitempty"`
}

// MarshalCBOR encodes the frozen form, wireDesiredAlloc.
func (d DesiredAlloc) MarshalCBOR() ([]byte, error) {
	return codec.Marshal(wireDesiredAlloc{
		ID: d.ID, Namespace: d.Namespace, JobID: d.JobID, JobVersion: d.JobVersion, JobHash: d.JobHash,
		TaskGroup: d.TaskGroup, Name: d.Name, NodeName: d.NodeName, Resources: wireResources(d.Resources),
		Previous: d.Previous, CreateIndex: d.CreateIndex, ModifyIndex: d.ModifyIndex, Deployment: d.Deployment, StopWindows: d.StopWindows,
		StopNow: d.StopNow, KeptStopped: d.KeptStopped, Allotment: assignedResourcesToWire(d.Allotment),
	})
}

// UnmarshalCBOR decodes the frozen form, wireDesiredAlloc.
func (d *DesiredAlloc) UnmarshalCBOR(b []byte) error {
	var w wireDesiredAlloc
	if err := frameDecoder.Unmarshal(b, &w); err != nil {
		return err
	}
	*d = DesiredAlloc{
		ID: w.ID, Namespace: w.Namespace, JobID: w.JobID, JobVersion: w.JobVersion, JobHash: w.JobHash,
		TaskGroup: w.TaskGroup, Name: w.Name, NodeName: w.NodeName, Resources: fleet.Resources(w.Resources),
		Previous: w.Previous, CreateIndex: w.CreateIndex, ModifyIndex: w.ModifyIndex, Deployment: w.Deployment, StopWindows: w.StopWindows,
		StopNow: w.StopNow, KeptStopped: w.KeptStopped, Allotment: w.Allotment.toAssignedResources(),
	}
	return nil
}

// nodeToWire converts the fields that an edge sets of its node, with texts cut to MaxNodeText; nil stays nil.
func nodeToWire(n *fleet.Node) *wireNode {
	if n == nil {
		return nil
	}
	w := &wireNode{
		ID: nodeText(string(n.ID)), Name: nodeText(n.Name), Datacenter: nodeText(n.Datacenter), Site: nodeText(n.Site), TimeZone: nodeText(n.TimeZone),
		NodePool: nodeText(n.NodePool), NodeClass: nodeText(n.NodeClass), Version: nodeText(n.Version),
		Attributes: nodeTexts(n.Attributes), Meta: nodeTexts(n.Meta),
		Resources: wireResources(n.Resources), Reserved: wireResources(n.Reserved),
		Hash: nodeText(n.DescriptionHash), ReservedPorts: nodeText(n.ReservedPorts),
		MinDynamicPort: n.MinDynamicPort, MaxDynamicPort: n.MaxDynamicPort, MaxAllocs: n.MaxAllocs,
	}
	for _, h := range n.HostNetworks {
		w.HostNetworks = append(w.HostNetworks, wireHostNetwork{nodeText(h.Name), nodeText(h.IP), nodeText(h.ReservedPorts)})
	}
	if len(n.HostVolumes) > 0 {
		w.HostVolumes = make(map[string]wireHostVolume, len(n.HostVolumes))
	}
	for name, v := range n.HostVolumes {
		w.HostVolumes[nodeText(name)] = wireHostVolume{nodeText(v.Path), v.ReadOnly, nodeText(string(v.ID))}
	}
	if len(n.Drivers) > 0 {
		w.Drivers = make(map[string]wireDriver, len(n.Drivers))
	}
	for name, d := range n.Drivers {
		w.Drivers[nodeText(name)] = wireDriver{
			Detected: d.Detected, Healthy: d.Healthy, Health: nodeText(d.HealthDescription), Attributes: nodeTexts(d.Attributes),
		}
	}
	for _, d := range n.Devices {
		w.Devices = append(w.Devices, wireDevice{
			Kind: nodeText(d.Kind), Vendor: nodeText(d.Vendor), Type: nodeText(d.Type), Name: nodeText(d.Name),
			ID: nodeText(d.ID), Attributes: nodeTexts(d.Attributes),
		})
	}
	return w
}

// toNode is the inverse of nodeToWire; nil stays nil.
func (w *wireNode) toNode() *fleet.Node {
	if w == nil {
		return nil
	}
	n := &fleet.Node{
		ID: fleet.NodeID(w.ID), Name: w.Name, Datacenter: w.Datacenter, Site: w.Site, TimeZone: w.TimeZone, NodePool: w.NodePool, NodeClass: w.NodeClass,
		Version: w.Version, Attributes: w.Attributes, Meta: w.Meta,
		Resources: fleet.Resources(w.Resources), Reserved: fleet.Resources(w.Reserved),
		DescriptionHash: w.Hash, ReservedPorts: w.ReservedPorts,
		MinDynamicPort: w.MinDynamicPort, MaxDynamicPort: w.MaxDynamicPort, MaxAllocs: w.MaxAllocs,
	}
	for _, h := range w.HostNetworks {
		n.HostNetworks = append(n.HostNetworks, fleet.HostNetwork(h))
	}
	if len(w.HostVolumes) > 0 {
		n.HostVolumes = make(map[string]fleet.HostVolume, len(w.HostVolumes))
	}
	for name, v := range w.HostVolumes {
		n.HostVolumes[name] = fleet.HostVolume{Path: v.Path, ReadOnly: v.ReadOnly, ID: fleet.VolumeID(v.ID)}
	}
	if len(w.Drivers) > 0 {
		n.Drivers = make(map[string]fleet.DriverInfo, len(w.Drivers))
	}
	for name, d := range w.Drivers {
		n.Drivers[name] = fleet.DriverInfo{Detected: d.Detected, Healthy: d.Healthy, HealthDescription: d.Health, Attributes: d.Attributes}
	}
	for _, d := range w.Devices {
		n.Devices = append(n.Devices, fleet.Device(d))
	}
	return n
}

// nodeText returns s cut to MaxNodeText bytes, without invalid UTF-8: hardware reports arbitrary bytes.
func nodeText(s string) string { return sanitizeText(s, MaxNodeText) }

// nodeTexts returns a copy of m with nodeText applied to keys and values; nil if m is empty.
func nodeTexts(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	c := make(map[string]string, len(m))
	for k, v := range m {
		c[nodeText(k)] = nodeText(v)
	}
	return c
}

// maxHash bounds every hash in a message, in bytes; maxVersions bounds the versions that a Hello offers.
const (
	maxHash     = 64
	maxVersions = 16
)

// checkBounds refuses a Hello that offers no version or too many, or has a hash that is too long.
func (h Hello) checkBounds() error {
	switch {
	case len(h.Versions) == 0 || len(h.Versions) > maxVersions:
		return fmt.Errorf("it offers %d versions, 1 to %d are allowed", len(h.Versions), maxVersions)
	case len(h.ChainHash) > maxHash:
		return errors.New("its chain hash is too long")
	}
	return nil
}

// checkBounds refuses Updates without rows or row number, and those with more or longer rows than allowed.
func (u Updates) checkBounds() error {
	switch {
	case len(u.Rows) == 0 || len(u.Rows) > MaxUpdatesRows:
		return fmt.Errorf("it has %d rows, 1 to %d are allowed", len(u.Rows), MaxUpdatesRows)
	case u.First == 0:
		return errors.New("its rows are not numbered")
	case len(u.Prev) > maxHash:
		return errors.New("its chain hash is too long")
	}
	n := 0
	for _, r := range u.Rows {
		if len(r) > MaxRow {
			return fmt.Errorf("a row has %d bytes, at most %d are allowed", len(r), MaxRow)
		}
		n += len(r)
	}
	if n > MaxUpdatesBytes {
		return fmt.Errorf("its rows have %d bytes, at most %d are allowed", n, MaxUpdatesBytes)
	}
	return nil
}

// checkBounds refuses a Heartbeat without a number, or with a hash that is too long.
func (h Heartbeat) checkBounds() error {
	if h.Number == 0 || len(h.Hash) > maxHash {
		return errors.New("it has no number, or its hash is too long")
	}
	return nil
}
