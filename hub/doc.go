// Package hub is the daemon in the datacenter. Open connects its components and
// is the only place that knows them all; cmd/skerry runs it, and so do tests and
// chaos. What it persists lies below Config.DataDir. See DESIGN.md for its
// goroutines.
package hub
