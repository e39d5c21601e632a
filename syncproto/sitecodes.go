package syncproto

import (
	"encoding/json"

	"skerry/fleet"
)

const (
	// MaxSiteCodes is how many codes of people an edge holds.
	MaxSiteCodes = 100
	// MaxHeldSiteCodes bounds the answer to RequestSiteCodes, in bytes.
	MaxHeldSiteCodes = 64 << 10

	maxSiteCodeName         = 128
	maxSiteCodeCapabilities = 16
)

// Check returns what is wrong with a code that is delivered, but for its hash.
func (d *DeliveredSiteCode) Check() error {
	bad := d.ID == "" || len(d.ID) > maxSiteCodeName || len(d.Name) > maxSiteCodeName || len(d.Capabilities) > maxSiteCodeCapabilities
	for _, c := range d.Capabilities {
		bad = bad || len(c) > maxSiteCodeName
	}
	if bad {
		return fleet.Errorf(fleet.CodeInvalid, "keep site code %.32q: a bad id or name, or %d capabilities", d.ID, len(d.Capabilities))
	}
	return nil
}

// EncodeSiteCodes encodes what an edge holds, as JSON.
func EncodeSiteCodes(held []DeliveredSiteCode) ([]byte, error) { return json.Marshal(held) }

// DecodeSiteCodes reverses EncodeSiteCodes. A failure is a fleet.CodeInvalid.
func DecodeSiteCodes(b []byte) ([]DeliveredSiteCode, error) {
	if len(b) > MaxHeldSiteCodes {
		return nil, fleet.Errorf(fleet.CodeInvalid, "decode the site codes of an edge: more than %d bytes", MaxHeldSiteCodes)
	}
	var held []DeliveredSiteCode
	if err := json.Unmarshal(b, &held); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "decode the site codes of an edge: %v", err)
	}
	return held, nil
}
