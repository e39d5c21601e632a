// Package edge is the daemon on remote hardware. Open wires its rooms together
// and is the only place that knows them all; see DESIGN.md for its goroutines.
package edge
