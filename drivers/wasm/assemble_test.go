package wasm_test

import (
	"encoding/binary"
	"slices"
	"time"
)

// assembler makes small modules: a _start function that calls functions of WASI with constants.
type assembler struct {
	imports []string
	code    []byte
	data    []byte // of the memory, from dataStart
	pages   uint32
}

const dataStart = 1024

// signatures are the types of the imported functions: their parameters, of i32 (i) and i64 (I).
var signatures = map[string]string{
	"proc_exit": "i", "fd_write": "iiii", "path_open": "iiiiiIIii", "poll_oneoff": "iiii",
}

func newAssembler() *assembler { return &assembler{pages: 1} }

// uleb and sleb encode numbers as LEB128.
func uleb(n uint64) []byte { return binary.AppendUvarint(nil, n) }

func sleb(n int64) []byte {
	var out []byte
	for {
		b := byte(n & 0x7f)
		n >>= 7
		if n == 0 && b&0x40 == 0 || n == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}

func vector(items ...[]byte) []byte {
	return append(uleb(uint64(len(items))), slices.Concat(items...)...)
}

func sized(b []byte) []byte { return append(uleb(uint64(len(b))), b...) }

// put adds bytes to the data, aligned to 8, and returns their address.
func (a *assembler) put(b []byte) int64 {
	for len(a.data)%8 != 0 {
		a.data = append(a.data, 0)
	}
	at := dataStart + len(a.data)
	a.data = append(a.data, b...)
	return int64(at)
}

// i32 pushes a constant.
func (a *assembler) i32(n int64) { a.code = append(append(a.code, 0x41), sleb(n)...) }

// load pushes the number at an address.
func (a *assembler) load(at int64) {
	a.i32(at)
	a.code = append(a.code, 0x28, 2, 0)
}

// invoke calls a function of WASI with the arguments on the stack, and drops its result.
func (a *assembler) invoke(name string) {
	i := slices.Index(a.imports, name)
	if i < 0 {
		i = len(a.imports)
		a.imports = append(a.imports, name)
	}
	a.code = append(append(a.code, 0x10), uleb(uint64(i))...)
	if name != "proc_exit" {
		a.code = append(a.code, 0x1a)
	}
}

// iovec puts a text and the structure that describes it, and returns the address of that.
func (a *assembler) iovec(text string) int64 {
	at := a.put([]byte(text))
	b := binary.LittleEndian.AppendUint32(nil, uint32(at))
	return a.put(binary.LittleEndian.AppendUint32(b, uint32(len(text))))
}

// print writes a text to a descriptor.
func (a *assembler) print(fd int64, text string) {
	iov, n := a.iovec(text), a.put(make([]byte, 8))
	for _, v := range []int64{fd, iov, 1, n} {
		a.i32(v)
	}
	a.invoke("fd_write")
}

// appendFile appends a text to a file below a folder.
func (a *assembler) appendFile(dir int64, name, text string) {
	at, fd := a.put([]byte(name)), a.put(make([]byte, 8))
	const create, all, appending = 1, 0x1fffffff, 1
	for _, v := range []int64{dir, 0, at, int64(len(name)), create} {
		a.i32(v)
	}
	for range 2 {
		a.code = append(append(a.code, 0x42), sleb(all)...)
	}
	a.i32(appending)
	a.i32(fd)
	a.invoke("path_open")
	iov, n := a.iovec(text), a.put(make([]byte, 8))
	a.load(fd)
	for _, v := range []int64{iov, 1, n} {
		a.i32(v)
	}
	a.invoke("fd_write")
}

// sleep waits by poll_oneoff.
func (a *assembler) sleep(d time.Duration) {
	sub := make([]byte, 48)
	binary.LittleEndian.PutUint32(sub[16:], 1) // the monotonic clock
	binary.LittleEndian.PutUint64(sub[24:], uint64(d))
	for _, v := range []int64{a.put(sub), a.put(make([]byte, 32)), 1, a.put(make([]byte, 8))} {
		a.i32(v)
	}
	a.invoke("poll_oneoff")
}

// forever repeats what f adds.
func (a *assembler) forever(f func()) {
	a.code = append(a.code, 0x03, 0x40)
	f()
	a.code = append(a.code, 0x0c, 0, 0x0b)
}

// growUntilRefused enlarges the memory page by page until that fails.
func (a *assembler) growUntilRefused() {
	// loop; i32.const 1; memory.grow; i32.const -1; i32.ne; br_if 0; end
	a.code = append(a.code, 0x03, 0x40, 0x41, 1, 0x40, 0, 0x41, 0x7f, 0x47, 0x0d, 0, 0x0b)
}

// exitWithSize ends with the number of pages divided by 16 as the code: the MiB of memory.
func (a *assembler) exitWithSize() {
	a.code = append(a.code, 0x3f, 0, 0x41, 4, 0x76)
	a.invoke("proc_exit")
}

// exit ends the module.
func (a *assembler) exit(code int64) {
	a.i32(code)
	a.invoke("proc_exit")
}

// trap does something forbidden.
func (a *assembler) trap() { a.code = append(a.code, 0x00) }

// module returns the module. start is the name of its exported function.
func (a *assembler) module(start string) []byte {
	types := [][]byte{{0x60, 0, 0}}
	var imports [][]byte
	for i, name := range a.imports {
		t := []byte{0x60, byte(len(signatures[name]))}
		for _, p := range signatures[name] {
			t = append(t, map[rune]byte{'i': 0x7f, 'I': 0x7e}[p])
		}
		if name == "proc_exit" {
			t = append(t, 0)
		} else {
			t = append(t, 1, 0x7f)
		}
		types = append(types, t)
		imports = append(imports, slices.Concat(sized([]byte("wasi_snapshot_preview1")), sized([]byte(name)), []byte{0}, uleb(uint64(i+1))))
	}
	body := sized(slices.Concat([]byte{0}, a.code, []byte{0x0b}))
	section := func(id byte, content []byte) []byte { return append([]byte{id}, sized(content)...) }
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"),
		section(1, vector(types...)),
		section(2, vector(imports...)),
		section(3, vector(uleb(0))),
		section(5, vector(append([]byte{0}, uleb(uint64(a.pages))...))),
		section(7, vector(
			slices.Concat(sized([]byte("memory")), []byte{2}, uleb(0)),
			slices.Concat(sized([]byte(start)), []byte{0}, uleb(uint64(len(a.imports)))),
		)),
		section(10, vector(body)),
		section(11, vector(slices.Concat([]byte{0, 0x41}, sleb(dataStart), []byte{0x0b}, sized(a.data)))),
	)
}
