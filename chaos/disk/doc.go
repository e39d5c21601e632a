// Package disk is a disk that forgets what was not synced when its power is cut:
// a file system (ext4 on a loop device) for each machine of a run. Cutting its
// power shuts the file system down without writing anything back, its journal
// included, and mounts it again; what the kernel had not been asked to make durable is
// gone, as after a real power cut.
//
// Package chaos/real gives hubs and edges such disks, fills them, and stalls them. It
// needs Linux and root. It starts no goroutine. It persists an image file for
// each disk; a loop device detaches itself when its file system is no longer mounted.
package disk
