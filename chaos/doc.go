// Package chaos proves the promise: it runs whole fleets, breaks them, and has
// package chaos/check judge what was seen. Partition breaks links and processes at
// random, round after round; Storm breaks everything that real processes allow, many
// things at a time, and watches all the while; the others measure one promise each.
// The command skerry-chaos calls them.
//
// A fault of a storm is a trouble: something that starts, stops, and gives evidence
// that it hit. The files trouble*.go have them by family, stormplay.go has what
// applies a schedule of them to a fleet.
//
// It persists what its fleets do below a directory of the run, which stays where
// a violation was found.
package chaos
