package fingerprint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"skerry/fleet"
)

// hashBytes is how much of the digest is kept: it tells one node's descriptions
// apart, and travels.
const hashBytes = 16

// description is what the edge says of itself, and nothing that the hub adds. Its
// JSON is canonical: fields in this order, maps sorted by key, nothing for what is
// empty. A field that is added later must be omitted where it is zero, or an
// upgrade sends every edge's description again.
type description struct {
	ID         fleet.NodeID                `json:"id,omitempty"`
	Name       string                      `json:"name,omitempty"`
	Datacenter string                      `json:"datacenter,omitempty"`
	NodePool   string                      `json:"node_pool,omitempty"`
	NodeClass  string                      `json:"node_class,omitempty"`
	Attributes map[string]string           `json:"attributes,omitempty"`
	Meta       map[string]string           `json:"meta,omitempty"`
	Resources  amount                      `json:"resources"`
	Reserved   amount                      `json:"reserved"`
	Drivers    map[string]fleet.DriverInfo `json:"drivers,omitempty"`
	Devices    []fleet.Device              `json:"devices,omitempty"`
	Version    string                      `json:"version,omitempty"`
	Site       string                      `json:"site,omitempty"`

	HostNetworks   []fleet.HostNetwork `json:"host_networks,omitempty"`
	ReservedPorts  string              `json:"reserved_ports,omitempty"`
	MinDynamicPort int                 `json:"min_dynamic_port,omitempty"`
	MaxDynamicPort int                 `json:"max_dynamic_port,omitempty"`
	MaxAllocs      int                 `json:"max_allocs,omitempty"`
	TimeZone       string              `json:"time_zone,omitempty"`
}

// amount is fleet.Resources as the first release wrote them, and what came later.
type amount struct {
	CPU, MemoryMB, DiskMB int
	Cores                 int `json:",omitempty"`
	MemoryMaxMB           int `json:",omitempty"`
}

// Hash returns the hash of what an edge says of itself in n (16 bytes). Two nodes
// that say the same have the same hash; what the hub adds to a node is no part of
// it.
func Hash(n fleet.Node) []byte {
	b, err := json.Marshal(description{
		ID: n.ID, Name: n.Name, Datacenter: n.Datacenter, NodePool: n.NodePool, NodeClass: n.NodeClass,
		Attributes: n.Attributes, Meta: n.Meta, Resources: amount(n.Resources), Reserved: amount(n.Reserved),
		Drivers: n.Drivers, Devices: n.Devices, Version: n.Version, Site: n.Site, TimeZone: n.TimeZone,
		HostNetworks: n.HostNetworks, ReservedPorts: n.ReservedPorts,
		MinDynamicPort: n.MinDynamicPort, MaxDynamicPort: n.MaxDynamicPort, MaxAllocs: n.MaxAllocs,
	})
	if err != nil {
		panic(fmt.Sprintf("hash description: %v", err)) // strings and numbers alone
	}
	sum := sha256.Sum256(b)
	return sum[:hashBytes]
}

// describe is Hash as Node.DescriptionHash has it.
func describe(n fleet.Node) string { return hex.EncodeToString(Hash(n)) }
