package fingerprint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"skerry/fleet"
)

// hashBytes is the length of the hash. It is short, because it is sent often and only distinguishes versions of
// one node.
const hashBytes = 16

// hashedNode has the fields of a fleet.Node that the edge sends, without those that the hub adds. Its JSON is
// canonical: fields in this order, maps sorted by key, empty fields left out. A later field must be omitted if
// it is zero; otherwise an upgrade makes every edge send its node again.
type hashedNode struct {
	ID         fleet.NodeID                `json:"id,omitempty"`
	Name       string                      `json:"name,omitempty"`
	Datacenter string                      `json:"datacenter,omitempty"`
	NodePool   string                      `json:"node_pool,omitempty"`
	NodeClass  string                      `json:"node_class,omitempty"`
	Attributes map[string]string           `json:"attributes,omitempty"`
	Meta       map[string]string           `json:"meta,omitempty"`
	Resources  hashedResources             `json:"resources"`
	Reserved   hashedResources             `json:"reserved"`
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

	HostVolumes map[string]fleet.HostVolume `json:"host_volumes,omitempty"`
}

// hashedResources is fleet.Resources with its later fields left out of the JSON if they are zero.
type hashedResources struct {
	fleet.Resources
	Cores       int `json:",omitempty"`
	MemoryMaxMB int `json:",omitempty"`
}

// hashResources returns the resources in the form that is hashed.
func hashResources(r fleet.Resources) hashedResources {
	return hashedResources{r, r.Cores, r.MemoryMaxMB}
}

// Hash returns a hash of 16 bytes of the fields of n that the edge sends, without those that the hub adds.
func Hash(n fleet.Node) []byte {
	b, err := json.Marshal(hashedNode{
		ID: n.ID, Name: n.Name, Datacenter: n.Datacenter, NodePool: n.NodePool, NodeClass: n.NodeClass,
		Attributes: n.Attributes, Meta: n.Meta, Resources: hashResources(n.Resources), Reserved: hashResources(n.Reserved),
		Drivers: n.Drivers, Devices: n.Devices, Version: n.Version, Site: n.Site, TimeZone: n.TimeZone,
		HostNetworks: n.HostNetworks, ReservedPorts: n.ReservedPorts,
		MinDynamicPort: n.MinDynamicPort, MaxDynamicPort: n.MaxDynamicPort, MaxAllocs: n.MaxAllocs,
		HostVolumes: n.HostVolumes,
	})
	if err != nil {
		panic(fmt.Sprintf("hash description: %v", err)) // strings and numbers only
	}
	sum := sha256.Sum256(b)
	return sum[:hashBytes]
}

// hexHash returns Hash in hexadecimal, as fleet.Node.DescriptionHash has it.
func hexHash(n fleet.Node) string { return hex.EncodeToString(Hash(n)) }
