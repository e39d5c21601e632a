// Package disk provides a disk for each machine of a run that loses unsynced data in a power
// cut: an ext4 file system on a loop device. A power cut shuts the file system down without
// writing anything back, its journal included, and mounts it again. Data that the kernel was
// not asked to make durable is lost, as after a real power cut.
//
// Package chaos/real gives hubs and edges such disks, fills them, and freezes them. It
// needs Linux and root. It starts no goroutine. It persists an image file for
// each disk; a loop device detaches itself when its file system is no longer mounted.
package disk
