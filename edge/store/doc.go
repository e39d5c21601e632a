// Package store keeps what tasks need from elsewhere on the edge's own disk, by content, so that a start needs no
// network: what is in the store is never fetched again.
//
// edge/artifacts fetches into it and reads from it, edge/local lists it and loads files into it. The package starts
// no goroutine; a Store is safe for concurrent use.
//
// On disk, below its folder:
//
//	version            of the layout
//	blobs/SHA256       a content; its name is its checksum
//	keys/ID            JSON: what was asked for, and which blob is the answer. Its time of change is a count of uses
//	pins/ALLOC         JSON: the keys that an allocation may need, or a prefetch keeps; they are never evicted
//	partial/ID, ID.at  a download that was cut, and how much of it is known to be on the disk
//
// A blob is written to a temporary file, flushed and renamed before its key is written, and its checksum is read
// again when it is first used after a start of the agent. So neither a loss of power nor a flipped bit makes a task
// run with a damaged content: the entry is dropped and fetched again.
//
// The store holds at most Config.MaxBytes. What no allocation pins is evicted, the least recently used first; what
// was loaded by hand stays until it is removed by hand.
package store
