package scheduler

import (
	"math"

	"skerry/fleet"
)

// The parts of a node's score that are its own. Its score is the mean of those that
// count, and of the spread and the penalty where there are such.
const (
	partFit = iota
	partAntiAffinity
	partAffinity
	partDevices
	partCount
)

// fitScale is the score of a perfect fit, before it is brought to 1.
const fitScale = 18

// binpackScore scores how well resources in use fill a node: 1 where cpu and memory are
// used up, 0 where the node is empty. It is 20 - 10^(cpu free) - 10^(memory
// free), free being the fraction that is left, over 18.
func binpackScore(used, free fleet.Resources) float64 {
	score := 20 - math.Pow(10, freeShare(used.CPU, free.CPU)) - math.Pow(10, freeShare(used.MemoryMB, free.MemoryMB))
	return min(max(score, 0), fitScale) / fitScale
}

func freeShare(used, of int) float64 {
	if of <= 0 {
		return 0
	}
	return 1 - float64(used)/float64(of)
}

// antiAffinityScore scores that a node has allocations of the group already; count is
// what the group wants.
func antiAffinityScore(there, count int) float64 {
	return -float64(there+1) / float64(max(count, 1))
}

// reschedulePenalty scores the node that an allocation failed on before.
const reschedulePenalty = -1.0
