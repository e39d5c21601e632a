// Package consensus keeps the hubs agreed: hashicorp/raft with its log in
// raft-wal, snapshots in files, and a stream layer over QUIC (ALPN
// skerry-raft/1). It applies what is committed to hub/state, in order, and hands
// a command that is given to a follower on to the leader. hub.Open makes it;
// the API, the gateway, the planner and the workers apply commands through it.
//
// Run starts raft's goroutines and four of its own (who leads, when to take a
// snapshot, what raft observes, requests of other hubs on their way to raft), and returns when the hub must stop: a committed
// command that cannot be applied is one reason, a log that cannot be written
// another. An Apply on the leader runs a goroutine until raft has answered.
//
// It persists the log and the snapshots below Config.Dir, with an fsync for each
// batch of entries; an operator may put a copy of that directory, taken while
// the hub was stopped, in its place. It does not decide who should be a member.
package consensus
