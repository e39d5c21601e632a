// Package pki is the cluster's certificate authority: it makes the CA and the
// join tokens, signs certificates for hubs and edges that enrol with a token, lets
// edges renew theirs and hubs sign their own anew, and gives the server's half of
// a hub's TLS. What edges need as well is package syncproto/identity.
//
// hub.Open calls it: Bootstrap or Join make a hub's Credentials, OwnCertificate and
// Renewal keep its certificate valid, and Keyring has the keys of the cluster's secrets.
// The CA and the hashes of tokens are kept in the replicated state (package hub/state),
// so that any hub can sign; the CA's key is sealed there (see StateKey). A hub's own
// certificate and key, and a copy of the CA's key, are files below its data directory, so
// that a hub whose certificate ended while all hubs were off can renew it before it has
// talked to anybody. It starts no goroutine: the hub runs Renewal.Run and SealSecrets.
package pki
