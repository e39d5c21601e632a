package supervised

import "skerry/drivers/record"

// Decode decodes one of the three records, or a handle's state, by name. number is the record's pid, or
// the length of a spec's command line.
func Decode(name string, b []byte) (number int, err error) {
	switch name {
	case "spec":
		var s spec
		err = record.Decode(b, &s)
		return len(s.Argv), err
	case "task":
		var t taskRecord
		err = record.Decode(b, &t)
		return t.PID, err
	case "exit":
		return 0, record.Decode(b, new(exitRecord))
	}
	id, err := decodeIdentity(b)
	return id.PID, err
}
