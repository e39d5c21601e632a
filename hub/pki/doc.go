// Package pki is the cluster's certificate authority: it makes the CA and the
// join tokens, signs certificates for hubs and edges that enrol with a token, and
// gives the server's half of a hub's TLS. What edges need as well is package
// syncproto/identity.
//
// hub.Open calls it. The CA and the tokens are kept in the replicated state
// (package hub/state), so that any hub can sign; Save keeps one hub's own
// certificate and key below its data directory. It starts no goroutine.
package pki
