package scheduler

import (
	"math"

	"skerry/fleet"
)

// fit scores how well resources in use fill a node: 1 where cpu and memory are
// used up, 0 where the node is empty. It is 20 - 10^(cpu free) - 10^(memory
// free), free being the fraction that is left, over 18.
func fit(used, free fleet.Resources) float64 {
	score := 20 - math.Pow(10, left(used.CPU, free.CPU)) - math.Pow(10, left(used.MemoryMB, free.MemoryMB))
	return min(max(score, 0), 18) / 18
}

func left(used, of int) float64 {
	if of <= 0 {
		return 0
	}
	return 1 - float64(used)/float64(of)
}

// crowding scores that a node has allocations of the group already; count is
// what the group wants.
func crowding(there, count int) float64 {
	return -float64(there+1) / float64(max(count, 1))
}

// penalty scores the node that an allocation failed on before.
const penalty = -1.0

// Names of scores, as people know them.
const (
	scoreFit      = "binpack"
	scoreCrowding = "job-anti-affinity"
	scorePenalty  = "node-reschedule-penalty"
)
