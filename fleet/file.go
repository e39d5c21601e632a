package fleet

import "time"

// FileInfo is an entry of an allocation's folder, in Nomad's shape.
type FileInfo struct {
	Name        string
	IsDir       bool
	Size        int64 // bytes
	FileMode    string
	ModTime     time.Time
	ContentType string // "" of a folder
}
