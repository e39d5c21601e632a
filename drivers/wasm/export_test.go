package wasm

import "bytes"

// CheckSections checks the sections of a module.
func CheckSections(b []byte) error { return checkSections(bytes.NewReader(b), int64(len(b))) }

// DecodeSpec decodes a record.
func DecodeSpec(b []byte) error {
	_, err := decodeSpec(b)
	return err
}

// TrimCache makes a folder of machine code not larger than most bytes.
var TrimCache = trimCache
