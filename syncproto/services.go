package syncproto

import (
	"crypto/sha256"
	"encoding/json"

	"skerry/fleet"
	"skerry/internal/codec"
)

const (
	// MaxServices is how many services of neighbours an edge holds.
	MaxServices = 256
	// MaxService bounds the texts of a DeliveredService together, in bytes.
	MaxService = 2 << 10
	// MaxHeldServices bounds the answer to RequestServices, in bytes.
	MaxHeldServices = 1 << 20

	serviceSum     = 16 // bytes that ComputeSum keeps
	maxServiceSum  = 32
	maxServiceTags = 64
)

// Check returns why an edge cannot keep a service that is delivered.
func (d *DeliveredService) Check() error {
	size := len(d.ID) + len(d.Name) + len(d.Namespace) + len(d.Node) + len(d.NodeName) + len(d.Datacenter) + len(d.Job) + len(d.Alloc) + len(d.Address)
	for _, tag := range d.Tags {
		size += len(tag)
	}
	switch {
	case d.ID == "" || size > MaxService || len(d.Sum) > maxServiceSum || len(d.Tags) > maxServiceTags:
		return fleet.Errorf(fleet.CodeInvalid, "keep service %.64q of a neighbour: it has no id, %d bytes of texts (at most %d) or %d tags (at most %d)",
			d.ID, size, MaxService, len(d.Tags), maxServiceTags)
	case d.Removed:
		return nil
	case d.Node == "" || d.Namespace == "" || !fleet.ValidServiceName(d.Name) || d.Port < 0 || d.Port > fleet.MaxPort:
		return fleet.Errorf(fleet.CodeInvalid, "keep service %.64q of a neighbour: no node or namespace, name %.64q, or port %d", d.ID, d.Name, d.Port)
	}
	return nil
}

// ComputeSum returns a hash of all fields but Sum. Equal services have equal ones.
func (d DeliveredService) ComputeSum() ([]byte, error) {
	d.Sum = nil
	b, err := codec.Marshal(d)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "encode service %.64q of a neighbour: %v", d.ID, err)
	}
	sum := sha256.Sum256(b)
	return sum[:serviceSum], nil
}

// EncodeServices encodes what an edge holds, as JSON.
func EncodeServices(held []DeliveredService) ([]byte, error) { return json.Marshal(held) }

// DecodeServices reverses EncodeServices. A failure is a fleet.CodeInvalid.
func DecodeServices(b []byte) ([]DeliveredService, error) {
	if len(b) > MaxHeldServices {
		return nil, fleet.Errorf(fleet.CodeInvalid, "decode the services that an edge holds: more than %d bytes", MaxHeldServices)
	}
	var held []DeliveredService
	if err := json.Unmarshal(b, &held); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "decode the services that an edge holds: %v", err)
	}
	return held, nil
}
