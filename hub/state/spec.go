package state

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"skerry/fleet"
	"skerry/internal/codec"
)

// MaxSpec is the largest specification that EncodeSpec may return for a job that
// is registered, in bytes: it travels to edges in one frame, with what else is
// said there.
const MaxSpec = 768 << 10

// EncodeSpec returns a job's specification as canonical CBOR: a map by Go field
// names, without zero values and without what the hub owns. It is the body that
// edges are sent; a plain CBOR decoder into fleet.Job reads it.
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

// CheckSpec says why a job that is to be registered is too large for the log or for the
// frame that brings it to an edge, or "".
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

// SpecHash is the content hash of EncodeSpec's bytes: the first 16 bytes of
// their SHA-256, in hex.
func SpecHash(spec []byte) string {
	h := sha256.Sum256(spec)
	return hex.EncodeToString(h[:16])
}
