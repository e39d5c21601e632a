// Package secrets encrypts the items of variables before they are committed, and ends the locks of variables whose
// holders have died.
//
// The replicated state has the items encrypted with root keys (AES-256-GCM), and the root keys encrypted with a key that
// is not in the state: the state key of package pki. Each root key can have a signing key, wrapped in the same way, with
// which package workload signs. Secrets has the decrypted keys in memory, on every hub. The first variable or identity,
// or a rotation, makes a root key. The hub's API calls Secrets and Locks in the goroutines of requests. Two leader tasks
// run here: Secrets.Lead encrypts variables again after a full rotation, Locks.Lead ends locks. The package persists
// nothing itself.
package secrets
