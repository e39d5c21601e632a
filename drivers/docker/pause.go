package docker

import (
	"encoding/binary"

	"skerry/fleet"
)

// pauseCode is machine code by architecture: a loop around the system call pause, or ppoll without files.
var pauseCode = map[string]struct {
	machine uint16 // of the ELF header
	wide    bool   // 64 bits
	flags   uint32
	code    []byte
}{
	// mov eax, 34 (pause); syscall; jmp -9
	"amd64": {62, true, 0, []byte{0xb8, 0x22, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7}},
	// mov x0, #0; mov x1, #0; mov x2, #0; mov x3, #0; mov x8, #73 (ppoll); svc #0; b -20
	"arm64": {183, true, 0, []byte{
		0x00, 0x00, 0x80, 0xd2, 0x01, 0x00, 0x80, 0xd2, 0x02, 0x00, 0x80, 0xd2, 0x03, 0x00, 0x80, 0xd2,
		0x28, 0x09, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4, 0xfa, 0xff, 0xff, 0x17,
	}},
	// mov r7, #29 (pause); svc #0; b -8
	"arm": {40, false, 0x05000000, []byte{0x1d, 0x70, 0xa0, 0xe3, 0, 0, 0, 0xef, 0xfc, 0xff, 0xff, 0xea}},
}

// pauseProgram returns a static program for Linux that does nothing until it is killed.
func pauseProgram(arch string) ([]byte, error) {
	p, ok := pauseCode[arch]
	if !ok {
		return nil, fleet.Errorf(fleet.CodeUnsupported, "container network namespaces are not supported on the architecture %s", arch)
	}
	const base = 0x400000
	order := binary.LittleEndian
	half, word := order.AppendUint16, order.AppendUint32
	long := order.AppendUint64
	header, program, class := 52, 32, byte(1)
	if p.wide {
		header, program, class = 64, 56, 2
	} else {
		long = func(b []byte, v uint64) []byte { return word(b, uint32(v)) }
	}
	size := header + program + len(p.code)
	b := append([]byte("\x7fELF"), class, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b = word(half(half(b, 2), p.machine), 1) // executable
	b = long(long(long(b, base+uint64(header+program)), uint64(header)), 0)
	b = half(half(half(word(b, p.flags), uint16(header)), uint16(program)), 1)
	b = half(half(half(b, 0), 0), 0) // no sections
	b = word(b, 1)                   // load
	const readExecute = 5
	if p.wide {
		b = word(b, readExecute)
	}
	b = long(long(long(b, 0), base), base)
	b = long(long(b, uint64(size)), uint64(size))
	if !p.wide {
		b = word(b, readExecute)
	}
	b = long(b, 0x1000)
	return append(b, p.code...), nil
}
