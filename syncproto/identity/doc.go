// Package identity has the identities of hubs and edges: join tokens, keys, certificate requests, and the checks of
// certificates that edges and hubs make alike. The hub's certificate authority is package hub/pki; package
// syncproto/enroll exchanges a token for a certificate.
//
// A certificate's common name is "hub:NAME" or "edge:NODEID". Nobody is known by
// an address: peers check the cluster's own CA and the role, never a host name.
//
// Time is treated with care. A certificate that is "not yet valid" is always
// taken, since our own CA makes none in advance and a board without a clock
// battery wakes up in 1970. So callers hand in the latest time that they know to
// be past, which for an edge is the floor that its journal keeps, and not its
// wall clock: a clock that runs ahead must not lock it out either.
//
// The package does no I/O, starts no goroutine and persists nothing.
package identity
