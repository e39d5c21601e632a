package fleet

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// Identifiers. All but JobID and HubID are UUIDs in lower case; a JobID is the
// name the user gave, unique within its namespace.
type (
	NodeID       string
	AllocID      string
	EvalID       string
	DeploymentID string
	JobID        string
	VolumeID     string // of a dynamic host volume
	PrefetchID   string // of a Prefetch
	HubID        string // a hub's name, unique in its region
	BootID       string // the kernel's boot id of a machine
	InstanceID   string // drawn anew by every start of an agent process
)

// Index is a position in the replicated log. Zero means "never".
type Index uint64

// Seq numbers the rows of one edge's journal, from 1, without gaps.
type Seq uint64

// Epoch numbers the sessions of one node, as the cluster committed them.
type Epoch uint64

// DefaultNamespace is the namespace of whatever names none.
const DefaultNamespace = "default"

// DefaultPool is the node pool of whatever names none. AllPools as a job's pool
// means nodes of every pool.
const (
	DefaultPool = "default"
	AllPools    = "all"
)

// ShortIDLength is how many characters of an id people are shown.
const ShortIDLength = 8

// NewUUID draws a version 4 UUID from r, or from the system if r is nil.
func NewUUID(r io.Reader) string {
	if r == nil {
		r = rand.Reader
	}
	var b [16]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		panic(fmt.Sprintf("draw an id: %v", err)) // the system's source never fails
	}
	return formatUUID(b, 4)
}

// DeriveUUID makes the UUID that belongs to seed and parts: the same inputs give
// the same id on every hub, which is how an applied command makes ids.
func DeriveUUID(seed string, parts ...string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d:%s", len(seed), seed)
	for _, p := range parts {
		fmt.Fprintf(h, "|%d:%s", len(p), p)
	}
	var b [16]byte
	copy(b[:], h.Sum(nil))
	return formatUUID(b, 8)
}

func formatUUID(b [16]byte, version byte) string {
	b[6] = b[6]&0x0f | version<<4
	b[8] = b[8]&0x3f | 0x80
	s := hex.EncodeToString(b[:])
	return strings.Join([]string{s[:8], s[8:12], s[12:16], s[16:20], s[20:]}, "-")
}

// Short abbreviates an id for people.
func Short[T ~string](id T) string {
	if len(id) <= ShortIDLength {
		return string(id)
	}
	return string(id[:ShortIDLength])
}

// IsName reports whether a text has 1 to most characters, each a letter or a digit of ASCII or one of others. A regular
// expression with such a count takes 100 KiB of each program.
func IsName(text string, most int, others string) bool {
	for _, c := range []byte(text) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return text != "" && len(text) <= most
}

// ShortList shows the first few of many ids, and how many more there are.
func ShortList[T ~string](ids []T) string {
	const shown = 5
	names := make([]string, 0, shown+1)
	for _, id := range ids[:min(shown, len(ids))] {
		names = append(names, Short(id))
	}
	if len(ids) > shown {
		names = append(names, fmt.Sprintf("and %d more", len(ids)-shown))
	}
	return strings.Join(names, ", ")
}
