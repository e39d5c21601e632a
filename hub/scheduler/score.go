package scheduler

import (
	"math"

	"skerry/fleet"
)

// The parts of a candidate's score. The score is the mean of the parts that count, and of the spread
// and the penalty if there are such.
const (
	partFit = iota
	partAntiAffinity
	partAffinity
	partDevices
	partCount
)

// fitScale is the greatest possible fit before it is scaled to 1.
const fitScale = 18

// binpackScore scores how well the resources in use fill a node: 1 if cpu and memory are used up, 0 if the
// node is empty. It is 20 - 10^(free cpu) - 10^(free memory) as fractions of the whole, over 18.
func binpackScore(used, free fleet.Resources) float64 {
	score := 20 - math.Pow(10, freeShare(used.CPU, free.CPU)) - math.Pow(10, freeShare(used.MemoryMB, free.MemoryMB))
	return min(max(score, 0), fitScale) / fitScale
}

// freeShare returns the fraction of of that is not used.
func freeShare(used, of int) float64 {
	if of <= 0 {
		return 0
	}
	return 1 - float64(used)/float64(of)
}

// antiAffinityScore scores a node that has there allocations of the group already; count is the group's
// count.
func antiAffinityScore(there, count int) float64 {
	return -float64(there+1) / float64(max(count, 1))
}

// reschedulePenalty is the score of the node on which the previous allocation failed.
const reschedulePenalty = -1.0
