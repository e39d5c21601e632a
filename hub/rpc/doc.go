// Package rpc is how hubs call each other: requests and answers over QUIC streams
// (ALPN skerry-hub/1), mutually authenticated. Each component of the hub declares its
// calls as a Method, with the types of request and answer, and registers the
// handlers. Method.OnLeader runs a call on this hub if it leads, and otherwise on
// the leader.
//
// A request is one stream: a header, a body, and the answer's header and body on
// the way back, or, of a method that answers with a stream, chunks and an end.
// Each direction is bounded; memory grows with the bytes that have arrived, never with
// an announced length.
//
// Serve starts a goroutine for every stream that a peer opens, and waits for
// them. Nothing is persisted.
package rpc
