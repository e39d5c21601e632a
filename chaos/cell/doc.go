// Package cell isolates a run: its own process tree, mounts, network, and names of network
// namespaces, which all disappear with the run however it ends. No other process sees a
// run's mounts, so none can keep a disk busy whose power the run cuts.
//
// The command skerry-chaos enters a cell by starting itself again as the first process of
// a PID namespace (Enter). That process, the keeper, starts the run and reaps orphaned
// processes (Keep). When the run has ended, the keeper ends, and the kernel kills all
// remaining processes. It needs Linux and root. It persists nothing.
package cell
