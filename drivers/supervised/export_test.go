package supervised

// Decode decodes one of the three records, or a handle's state, by name. number is the record's pid, or
// the length of a spec's command line.
func Decode(name string, b []byte) (number int, err error) {
	switch name {
	case "spec":
		var s spec
		err = decodeRecord(b, &s)
		return len(s.Argv), err
	case "task":
		var t taskRecord
		err = decodeRecord(b, &t)
		return t.PID, err
	case "exit":
		return 0, decodeRecord(b, new(exitRecord))
	}
	id, err := decodeIdentity(b)
	return id.PID, err
}

// Rotator makes a writer of rotated files.
func Rotator(dir, prefix string, maxFiles int, maxBytes int64) interface {
	Write(p []byte) (int, error)
	Close() error
} {
	return &rotator{dir: dir, prefix: prefix, maxFiles: maxFiles, maxBytes: maxBytes}
}
