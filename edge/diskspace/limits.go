package diskspace

// Defaults of Limits. The percentages are Nomad's gc_disk_usage_threshold and gc_inode_usage_threshold.
const (
	DefaultDiskPercent  = 80
	DefaultInodePercent = 70
	DefaultMinFree      = 64 << 20
)

const (
	// minFreeShare limits MinFree to a twentieth of the disk, so that a small disk takes allocations too.
	minFreeShare = 20
	// minFreeInodes must be free for new allocations, or a minInodeShare of all inodes if that is less.
	minFreeInodes = 1000
	minInodeShare = 50
	// reopenShare of the needed space must be free beyond it before new allocations start again.
	reopenShare = 4
)

// Limits says when ended allocations are collected, and when no new ones start.
type Limits struct {
	DiskPercent  float64 // percent of the disk in use above which ended allocations are collected
	InodePercent float64 // percent of the inodes in use above which ended allocations are collected
	MinFree      int64   // bytes that must be free for new allocations, at most a twentieth of the disk
}

// Usage is the use of a disk, in bytes and inodes. TotalInodes is 0 if the file system has no fixed number of them.
type Usage struct {
	Free, Total             int64
	FreeInodes, TotalInodes int64
	ReserveFreed            bool // the disk was full, and the agent freed some of its reserve
}

// neededSpace returns how many bytes and inodes must be free for new allocations. A full disk needs more of both.
func (l Limits) neededSpace(u Usage, full bool) (bytes, inodes int64) {
	bytes, inodes = min(l.MinFree, u.Total/minFreeShare), min(minFreeInodes, u.TotalInodes/minInodeShare)
	if full {
		bytes, inodes = bytes+bytes/reopenShare, inodes+inodes/reopenShare
	}
	return bytes, inodes
}

// excessSpace returns how many bytes and inodes have to be freed.
func (l Limits) excessSpace(u Usage, full bool) (bytes, inodes int64) {
	allowed := func(total int64, percent float64) int64 { return int64(float64(total) * percent / 100) }
	needBytes, needInodes := l.neededSpace(u, full)
	bytes = max(0, u.Total-u.Free-allowed(u.Total, l.DiskPercent), needBytes-u.Free)
	inodes = max(0, u.TotalInodes-u.FreeInodes-allowed(u.TotalInodes, l.InodePercent), needInodes-u.FreeInodes)
	return bytes, inodes
}

// IsShort reports whether something has to be freed on a disk that takes no allocations itself.
func (l Limits) IsShort(u Usage) bool {
	bytes, inodes := l.excessSpace(u, false)
	return bytes > 0 || inodes > 0
}

// whyFull returns why no new allocation may start; "": it may. The text does not change while the disk stays full.
func (l Limits) whyFull(u Usage, full bool) string {
	bytes, inodes := l.neededSpace(u, full)
	switch {
	case u.ReserveFreed, u.Free < bytes:
		return "the disk of the data directory has too little free space"
	case u.FreeInodes < inodes:
		return "the disk of the data directory has too few free inodes"
	}
	return ""
}
