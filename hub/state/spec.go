package state

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"skerry/fleet"
	"skerry/internal/codec"
)

// MaxSpec is the largest encoded specification of a job that may be registered, in bytes. It is sent to an
// edge in one frame together with other data.
const MaxSpec = 768 << 10

// EncodeSpec returns a job's specification as canonical CBOR: a map by Go field names, without zero values
// and without the fields that the hub sets. Edges receive these bytes and decode them into a fleet.Job.
func EncodeSpec(j *fleet.Job) ([]byte, error) {
	spec := *j
	spec.Stop, spec.Stable = false, false
	spec.Status, spec.StatusDescription = "", ""
	spec.Version, spec.SubmitTime, spec.SpecHash, spec.VersionTag = 0, 0, "", nil
	spec.CreateIndex, spec.ModifyIndex, spec.JobModifyIndex = 0, 0, 0
	b := encode(spec)
	if err := codec.CheckBounds(b, maxItems, maxNesting); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "encode job %s: %v", j.ID, err)
	}
	return b, nil
}

// CheckSpec returns why a job is too large for the log or for the frame to an edge, or "" if it is not.
func CheckSpec(j *fleet.Job) string {
	spec, err := EncodeSpec(j)
	if err == nil {
		err = codec.CheckBounds(spec, maxSpecItems, maxSpecNesting)
	}
	switch {
	case err != nil:
		return fmt.Sprintf("the specification is too large: %v", err)
	case len(spec) > MaxSpec:
		return fmt.Sprintf("the specification has %d bytes when encoded, at most %d can be sent to an edge", len(spec), MaxSpec)
	}
	return ""
}

// SpecHash returns the hash of an encoded specification: the first 16 bytes of its SHA-256, in hex.
func SpecHash(spec []byte) string {
	h := sha256.Sum256(spec)
	return hex.EncodeToString(h[:16])
}
