// Package consensus replicates the log of commands between the hubs: hashicorp/raft with its log in
// raft-wal, snapshots in files, and a stream layer over QUIC (ALPN skerry-raft/1). It applies committed
// commands to hub/state in order, and forwards a command from a follower to the leader. hub.Open makes the
// Node; the API, the gateway, the planner and the workers apply commands through it.
//
// Run starts raft's goroutines and five of its own: they follow this hub's leadership, observe the leader,
// take snapshots, filter the requests of other hubs, and wait for a failure. Run returns when the hub must
// stop, for example because a committed command cannot be applied, or the log cannot be written. Each call
// into raft, such as an Apply on the leader, has a goroutine until raft has answered.
//
// The log and the snapshots are below Config.Dir, with an fsync for each batch of entries. An operator may
// put a copy of that directory, taken while the hub was stopped, in its place. The package does not decide
// who is a member.
package consensus
