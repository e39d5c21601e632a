package syncproto

import (
	"encoding/json"

	"skerry/fleet"
)

const (
	// MaxIdentityToken bounds the token of an identity, in bytes.
	MaxIdentityToken = 8 << 10
	// MaxHeldIdentities bounds the answer to RequestIdentities, in bytes.
	MaxHeldIdentities = 8 << 20
	maxIdentityName   = 256
)

// IdentityName identifies an identity of a task.
type IdentityName struct {
	Alloc          fleet.AllocID
	Task, Identity string
}

// IdentityName says whose token it is.
func (d *DeliveredIdentity) IdentityName() IdentityName { return IdentityName{d.Alloc, d.Task, d.Name} }

// Check returns what is wrong with a token that is delivered.
func (d *DeliveredIdentity) Check() error {
	if d.Token == "" || len(d.Token) > MaxIdentityToken || d.Alloc == "" || len(d.Alloc) > maxIdentityName || d.Task == "" && !fleet.IsServiceIdentity(d.Name) || len(d.Task) > maxIdentityName || d.Name == "" || len(d.Name) > maxIdentityName {
		return fleet.Errorf(fleet.CodeInvalid, "keep identity %.64q of task %.64q: a token of %d bytes, or a bad name", d.Name, d.Task, len(d.Token))
	}
	return nil
}

// EncodeIdentities encodes what an edge holds, as JSON.
func EncodeIdentities(held []DeliveredIdentity) ([]byte, error) { return json.Marshal(held) }

// DecodeIdentities reverses EncodeIdentities. A failure is a fleet.CodeInvalid.
func DecodeIdentities(b []byte) ([]DeliveredIdentity, error) {
	if len(b) > MaxHeldIdentities {
		return nil, fleet.Errorf(fleet.CodeInvalid, "decode the identities of an edge: more than %d bytes", MaxHeldIdentities)
	}
	var held []DeliveredIdentity
	if err := json.Unmarshal(b, &held); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "decode the identities of an edge: %v", err)
	}
	return held, nil
}
