// Package peers is how hubs call each other: requests and answers over QUIC
// streams (ALPN skerry-hub/1), mutually authenticated. It knows nothing of what
// is asked: rooms register the methods they serve with Handle, and hub.Open
// gives them small closures to call others.
//
// A request is one stream: a header, a body, and the answer's header and body on
// the way back, or, of a method that answers with a stream, chunks and an end.
// Each direction is bounded; memory grows with what has arrived, never with what
// a length announces.
//
// Serve starts a goroutine for every stream that a peer opens, and waits for
// them. Nothing is persisted.
package rpc
