package scheduler

import (
	"iter"
	"math/rand/v2"
	"slices"
	"strings"

	"skerry/fleet"
)

// nodeLister lists nodes by the beginning of their id, as state.View does.
type nodeLister interface {
	Nodes(prefix string) iter.Seq[*fleet.Node]
}

// nodeSampler draws nodes in an order of chance, without listing more of them than
// are asked for: ids are random, so those with a random beginning are a random
// choice. Every node is drawn once. The seed determines the order.
type nodeSampler struct {
	nodes    nodeLister
	rng      *rand.Rand
	prefixes []string
	bucket   []*fleet.Node
}

const hexDigits = "0123456789abcdef"

// nodeIDPrefixes are the first two digits that a random id may have.
var nodeIDPrefixes = func() []string {
	var out []string
	for _, a := range hexDigits {
		for _, b := range hexDigits {
			out = append(out, string([]rune{a, b}))
		}
	}
	return out
}()

func newNodeSampler(nodes nodeLister, seed string) *nodeSampler {
	var key [32]byte
	copy(key[:], fleet.DeriveUUID(seed, "nodes"))
	s := &nodeSampler{nodes: nodes, rng: rand.New(rand.NewChaCha8(key))}
	s.prefixes = slices.Clone(nodeIDPrefixes)
	s.rng.Shuffle(len(s.prefixes), func(i, j int) { s.prefixes[i], s.prefixes[j] = s.prefixes[j], s.prefixes[i] })
	s.prefixes = append(s.prefixes, "") // last, all those whose id begins otherwise
	return s
}

// nextNode draws a node, nil when all were.
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
