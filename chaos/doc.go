// Package chaos proves the promise: it runs whole fleets, breaks them, and has
// package chaos/check judge what was seen. Partition breaks real processes at
// random, round after round; the command skerry-chaos calls it.
//
// It persists what its fleets do below a directory of the run, which stays where
// a violation was found.
package chaos
