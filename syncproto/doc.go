// Package syncproto is the protocol between edge and hub: messages, their CBOR
// encoding and bounds, the chain of journal rows, and the rules of a session as
// two pure state machines (HubSession, EdgeSession). Package hub/gateway drives
// the one, package edge/link the other. The QUIC adapter is the folder
// transport, the only place that knows quic-go.
//
// The bytes on the wire and of journal rows are frozen: syncproto.cddl describes
// them, testdata/vectors.txt has an example of each, and tests hold the code to
// both. What is decoded is bounded in size, depth and count before it costs
// memory.
//
// It starts no goroutine and persists nothing.
package syncproto
