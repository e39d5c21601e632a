// Package members finds the hubs of a cluster and says which of them are alive:
// hashicorp/memberlist, encrypted with the cluster's gossip key. Nothing is
// decided on it (that is hub/consensus' business): it feeds agent/members.
// hub.Open makes it.
//
// Open starts memberlist's goroutines, which Close ends; Run looks for hubs that
// should be there and are not. Nothing is persisted.
package members
