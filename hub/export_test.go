package hub

import (
	"path/filepath"

	"skerry/fleet"
	"skerry/hub/liveness"
)

// What hubs say to each other, for tests of how it travels.
var (
	Encode         = encode
	DecodePlan     = decode[fleet.Plan]
	DecodeDelivery = decode[fleet.Delivery]
	DecodeBeats    = decode[[]liveness.Heartbeat]
	DecodeLogs     = decode[logsRequest]
)

// How evaluations are handed to workers of other hubs, which listen for so long.
var DequeueForHub = dequeueForHub

const DequeueCall = dequeueCall

// LoadCredentials reads the identity below a data directory, as a start does.
func LoadCredentials(dir string) (found bool, err error) {
	_, found, err = loadCredentials(filepath.Join(dir, identityDir))
	return found, err
}
