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
