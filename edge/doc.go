// Package edge is the daemon on remote hardware. Open makes and connects its components, which are the
// packages below it. DESIGN.md lists its files and goroutines.
package edge
