// Package store keeps artifacts and other downloaded contents on the edge's disk, so that a task starts without a
// network: a content in the store is never fetched again.
//
// edge/artifacts fetches into it and reads from it, edge/local lists it and loads files into it. The package starts
// no goroutine; a Store is safe for concurrent use.
//
// On disk, below its folder:
//
//	version            of the layout
//	blobs/SHA256       a content, named by its checksum
//	keys/ID            JSON: a Key and the checksum of its blob. The file's modification time is a counter of uses
//	pins/ALLOC         JSON: the keys that an allocation may need, or a prefetch keeps. Their contents are never evicted
//	partial/ID, ID.at  an interrupted download, and the number of its bytes that are known to be durable
//
// A blob is written to a temporary file, flushed and renamed before its key is written, and its checksum is read
// again when it is first used after a start of the agent. So neither a loss of power nor a flipped bit makes a task
// run with a damaged content: the entry is dropped and fetched again.
//
// The store holds at most Config.MaxBytes. It evicts contents that no allocation pins, the least recently used first.
// A content that a person loaded stays until a person removes it.
package store
