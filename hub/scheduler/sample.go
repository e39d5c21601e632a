package scheduler

import (
	"iter"
	"math/rand/v2"
	"slices"
	"strings"

	"skerry/fleet"
)

// nodeLister iterates over nodes whose id begins with prefix. state.View implements it.
type nodeLister interface {
	Nodes(prefix string) iter.Seq[*fleet.Node]
}

// nodeSampler draws nodes in random order, each once, and lists only as many as are drawn: node ids are
// random, so the nodes with a random prefix are a random choice. The seed determines the order.
type nodeSampler struct {
	nodes    nodeLister
	rng      *rand.Rand
	prefixes []string      // not listed yet, shuffled
	bucket   []*fleet.Node // listed nodes that are not drawn yet
}

const hexDigits = "0123456789abcdef"

// nodeIDPrefixes are all pairs of hexadecimal digits, with which random ids begin.
var nodeIDPrefixes = func() []string {
	var out []string
	for _, a := range hexDigits {
		for _, b := range hexDigits {
			out = append(out, string([]rune{a, b}))
		}
	}
	return out
}()

// newNodeSampler returns a sampler whose order depends on seed alone.
func newNodeSampler(nodes nodeLister, seed string) *nodeSampler {
	var key [32]byte
	copy(key[:], fleet.DeriveUUID(seed, "nodes"))
	s := &nodeSampler{nodes: nodes, rng: rand.New(rand.NewChaCha8(key))}
	s.prefixes = slices.Clone(nodeIDPrefixes)
	s.rng.Shuffle(len(s.prefixes), func(i, j int) { s.prefixes[i], s.prefixes[j] = s.prefixes[j], s.prefixes[i] })
	s.prefixes = append(s.prefixes, "") // last, the nodes whose id begins otherwise
	return s
}

// nextNode draws a node; nil: all are drawn.
func (s *nodeSampler) nextNode() *fleet.Node {
	for len(s.bucket) == 0 {
		if len(s.prefixes) == 0 {
			return nil
		}
		prefix := s.prefixes[0]
		s.prefixes = s.prefixes[1:]
		for n := range s.nodes.Nodes(prefix) {
			if prefix != "" || !drawnByPrefix(n.ID) {
				s.bucket = append(s.bucket, n)
			}
		}
		s.rng.Shuffle(len(s.bucket), func(i, j int) { s.bucket[i], s.bucket[j] = s.bucket[j], s.bucket[i] })
	}
	n := s.bucket[len(s.bucket)-1]
	s.bucket = s.bucket[:len(s.bucket)-1]
	return n
}

// drawnByPrefix reports whether the id begins with two hexadecimal digits.
func drawnByPrefix(id fleet.NodeID) bool {
	return len(id) >= 2 && strings.IndexByte(hexDigits, id[0]) >= 0 && strings.IndexByte(hexDigits, id[1]) >= 0
}
