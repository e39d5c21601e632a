// Package pki is the cluster's certificate authority: it makes the CA and the
// join tokens, signs certificates for hubs and edges that enrol with a token,
// renews certificates of edges and hubs, and makes the server's half of a hub's
// TLS configuration. Package syncproto/identity has the parts that edges need too.
//
// hub.Open calls it: Bootstrap or Join make a hub's Credentials, OwnCertificate and
// Renewal keep its certificate valid, and Keyring has the keys of the cluster's secrets.
// The CA and the hashes of tokens are kept in the replicated state (package hub/state),
// so that any hub can sign; the CA's key is sealed there (see StateKey). A hub's own
// certificate and key, and a copy of the CA's key, are files below its data directory, so
// that a hub whose certificate ended while all hubs were off can renew it before it has
// talked to anybody. It starts no goroutine: the hub runs Renewal.Run and SealSecrets.
package pki
