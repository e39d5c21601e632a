package state

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
)

// digestBytes is how much of the hash a digest keeps.
const digestBytes = 16

// Digest is a fingerprint of everything in the view that the log decides: two hubs
// that applied the same log have the same one, also where one of them started from
// a snapshot. It costs what encoding the whole state does, about a third of a
// snapshot.
func (v *View) Digest() string {
	h := sha256.New()
	out := &recordWriter{w: bufio.NewWriterSize(h, 32<<10), sum: crc32.NewIEEE()}
	quiet := &View{txn: v.txn}
	quiet.persistCluster(out)
	quiet.persistWork(out)
	if out.err == nil {
		out.err = out.w.Flush()
	}
	if out.err != nil {
		panic(fmt.Sprintf("digest the state: %v", out.err)) // a hash takes everything, and rows are bounded
	}
	return hex.EncodeToString(h.Sum(nil)[:digestBytes])
}

// DigestOf is the fingerprint of a command or a result: of what its encoding says.
func DigestOf(v any) string {
	sum := sha256.Sum256(encode(v))
	return hex.EncodeToString(sum[:digestBytes])
}
