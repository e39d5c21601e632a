package edge

import "skerry/edge/allocs"

// The seam between the edge and what runs its allocations: see package allocs.
type (
	Recorder  = allocs.Recorder
	Runner    = allocs.Runner
	NewRunner = allocs.NewRunner
	LastState = allocs.LastState
)
