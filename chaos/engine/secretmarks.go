package engine

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// SecretKind is a kind of secrets of a run.
type SecretKind string

// Kinds of secrets.
const (
	SecretVariable  SecretKind = "the value of a variable"
	SecretToken     SecretKind = "the secret of an ACL token"
	SecretOneTime   SecretKind = "the secret of a one-time token"
	SecretJoinToken SecretKind = "the secret of a join token"
	SecretSiteCode  SecretKind = "a site code"
	SecretIdentity  SecretKind = "an identity of a task"
)

const (
	// blockBytes is the size of the blocks of a text that are looked up. A mark has blocksOfMark of them in its first bytes, so
	// that one of them begins at a multiple of blocksOfMark wherever the mark is.
	blockBytes   = 4
	blocksOfMark = 5
	shortestMark = blockBytes + blocksOfMark - 1
	// filterBits is the number of bits of a filter: few of the blocks that no mark has pass it.
	filterBits = 1 << 20
	// marksOfKind bounds the marks of a kind in a long run. The older half is then forgotten.
	marksOfKind = 2000
)

// secretMark is a text to search for.
type secretMark struct {
	kind SecretKind
	text string
}

// SecretMarks are texts that are in no file and no message in clear, apart from those that need the secret: parts of the secrets
// that were made so far in a run. Its methods may be called from any goroutine. A nil *SecretMarks finds nothing.
type SecretMarks struct {
	mu     sync.RWMutex
	marks  []secretMark
	known  map[string]bool
	filter []uint64                  // filterBits bits: of the hashes of all blocks
	blocks map[uint32][]blockOfMarks // by the block
}

// blockOfMarks is the place of a block in a mark.
type blockOfMarks struct {
	mark   secretMark
	offset int
}

// NewSecretMarks returns the marks that are known before a run: the beginning of all values of variables, and the management
// token's secret.
func NewSecretMarks() *SecretMarks {
	m := &SecretMarks{known: map[string]bool{}}
	m.clearBlocks()
	m.addMark(secretMark{SecretVariable, variableMark})
	m.addMark(secretMark{SecretToken, managementSecret})
	return m
}

// AddToken adds the secret of an ACL token (SecretToken) or of a one-time token (SecretOneTime).
func (m *SecretMarks) AddToken(kind SecretKind, secret string) { m.addMark(secretMark{kind, secret}) }

// AddVariable adds the value of a variable that does not begin as those of a run's users do.
func (m *SecretMarks) AddVariable(value string) { m.addMark(secretMark{SecretVariable, value}) }

// AddJoinToken adds a join token: its last part is secret.
func (m *SecretMarks) AddJoinToken(token string) {
	m.addMark(secretMark{SecretJoinToken, lastPart(strings.TrimSpace(token))})
}

// AddIdentity adds an identity of a task: nobody can use it without its signature.
func (m *SecretMarks) AddIdentity(token string) {
	m.addMark(secretMark{SecretIdentity, lastPart(token)})
}

// AddSiteCode adds a code for people on site: its second and third group are secret, with a dash or without.
func (m *SecretMarks) AddSiteCode(code string) {
	_, secret, _ := strings.Cut(code, "-")
	m.addMark(secretMark{SecretSiteCode, secret})
	m.addMark(secretMark{SecretSiteCode, strings.ReplaceAll(secret, "-", "")})
}

// lastPart returns what follows the last dot of a text.
func lastPart(text string) string { return text[strings.LastIndexByte(text, '.')+1:] }

// addMark adds a mark, unless it is known. A text that is too short is no secret, and is not added.
func (m *SecretMarks) addMark(mark secretMark) {
	if m == nil || len(mark.text) < shortestMark {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known[mark.text] {
		return
	}
	m.forgetOldMarks(mark.kind)
	m.known[mark.text] = true
	m.marks = append(m.marks, mark)
	m.addBlocks(mark)
}

// forgetOldMarks removes the older half of the marks of a kind if there are marksOfKind. The caller holds mu.
func (m *SecretMarks) forgetOldMarks(kind SecretKind) {
	n := 0
	for _, old := range m.marks {
		if old.kind == kind {
			n++
		}
	}
	if n < marksOfKind {
		return
	}
	n = 0
	m.marks = slices.DeleteFunc(m.marks, func(old secretMark) bool {
		if old.kind == kind && old.text != managementSecret {
			n++
		}
		forgotten := old.kind == kind && old.text != managementSecret && n <= marksOfKind/2
		if forgotten {
			delete(m.known, old.text)
		}
		return forgotten
	})
	m.clearBlocks()
	for _, mark := range m.marks {
		m.addBlocks(mark)
	}
}

// clearBlocks removes all blocks. The caller holds mu.
func (m *SecretMarks) clearBlocks() {
	m.filter, m.blocks = make([]uint64, filterBits/64), map[uint32][]blockOfMarks{}
}

// addBlocks adds the blocks of a mark. The caller holds mu.
func (m *SecretMarks) addBlocks(mark secretMark) {
	for offset := range blocksOfMark {
		block := binary.LittleEndian.Uint32([]byte(mark.text[offset:]))
		m.blocks[block] = append(m.blocks[block], blockOfMarks{mark, offset})
		bit := filterBit(block)
		m.filter[bit/64] |= 1 << (bit % 64)
	}
}

// filterBit returns the number of a block's bit in the filter.
func filterBit(block uint32) uint32 { return block * 2654435761 >> 12 }

// Find returns the kind of the first secret in b that is of none of the allowed kinds; "": there is none. It reads b once, whatever
// the number of marks.
func (m *SecretMarks) Find(b []byte, allowed ...SecretKind) SecretKind {
	if m == nil {
		return ""
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for i := 0; i+blockBytes <= len(b); i += blocksOfMark {
		block := binary.LittleEndian.Uint32(b[i:])
		if bit := filterBit(block); m.filter[bit/64]&(1<<(bit%64)) == 0 {
			continue
		}
		for _, c := range m.blocks[block] {
			begin := i - c.offset
			if begin < 0 || slices.Contains(allowed, c.mark.kind) {
				continue
			}
			if end := begin + len(c.mark.text); end <= len(b) && string(b[begin:end]) == c.mark.text {
				return c.mark.kind
			}
		}
	}
	return ""
}

// Describe returns the kinds of secrets that are searched for, each with its number of marks: "a site code (2), …".
func (m *SecretMarks) Describe() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	count := map[SecretKind]int{}
	for _, mark := range m.marks {
		count[mark.kind]++
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%s (%d)", kind, count[kind]))
	}
	return strings.Join(parts, ", ")
}

// Longest returns the length of the longest mark.
func (m *SecretMarks) Longest() (n int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, mark := range m.marks {
		n = max(n, len(mark.text))
	}
	return n
}
