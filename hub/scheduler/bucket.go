package scheduler

import (
	"container/heap"
	"strings"

	"skerry/fleet"
)

// spreadBucket holds the candidates with the same values of the spread attributes: one more allocation has
// the same spread score on all of them. A group without spreads has one bucket.
type spreadBucket struct {
	values []attributeValue // one for each spread
	heap   candidates
}

// attributeValue is a node's value of a spread attribute; has is false if the node does not have the
// attribute.
type attributeValue struct {
	text string
	has  bool
}

// bucketForNode returns the bucket of a node. It makes the bucket if it is new.
func (r *ranking) bucketForNode(n *fleet.Node) *spreadBucket {
	if len(r.spreads) == 0 {
		return r.buckets[0]
	}
	values := make([]attributeValue, len(r.spreads))
	var name strings.Builder
	for i, s := range r.spreads {
		v := &values[i]
		v.text, v.has = n.Value(s.attribute)
		name.WriteString(v.text)
		name.WriteByte(0)
		if v.has {
			name.WriteByte(1)
		}
	}
	l := r.bucketByValues[name.String()]
	if l == nil {
		l = &spreadBucket{values: values}
		r.bucketByValues[name.String()] = l
		r.buckets = append(r.buckets, l)
	}
	return l
}

// spreadBoost returns the spread score of one more allocation in the bucket.
func (r *ranking) spreadBoost(l *spreadBucket) float64 {
	sum := 0.0
	for i, s := range r.spreads {
		sum += s.boostForValue(l.values[i].text, l.values[i].has)
	}
	return sum
}

// bestCandidate returns the best candidate that may be used now, and its score including the spread; nil:
// there is none. It draws more nodes if needed.
func (r *ranking) bestCandidate() (*candidate, float64) {
	if len(r.spreads) == 0 {
		c := r.bestInBucket(r.buckets[0])
		if c == nil {
			return nil, 0
		}
		return c, c.score
	}
	r.drawCandidates()
	var best *candidate
	var score float64
	for _, l := range r.buckets {
		c := r.bestInBucket(l)
		if c == nil {
			continue
		}
		if s := c.scoreWithPart(r.spreadBoost(l)); best == nil || s > score || s == score && c.order < best.order {
			best, score = c, s
		}
	}
	return best, score
}

// bestInBucket returns the best candidate of a bucket that the distinct rules allow and that is not
// reserved for another job, or nil. It removes candidates from the heap that may not be used.
func (r *ranking) bestInBucket(l *spreadBucket) *candidate {
	for {
		if len(r.spreads) == 0 && len(l.heap) < candidatesLow {
			r.drawCandidates()
		}
		if len(l.heap) == 0 {
			return nil
		}
		c := l.heap[0]
		broken := r.brokenDistinctRule(c.node)
		if broken == "" && !r.isReservedForOther(c) {
			return c
		}
		heap.Pop(&l.heap)
		if broken != "" {
			r.recordFiltered(c.node, broken)
		}
	}
}

// candidates is a heap of candidates with capacity, the best first.
type candidates []*candidate

func (h candidates) Len() int { return len(h) }

func (h candidates) Less(i, j int) bool {
	if h[i].score != h[j].score {
		return h[i].score > h[j].score
	}
	return h[i].order < h[j].order
}

func (h candidates) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *candidates) Push(x any) {
	c := x.(*candidate)
	c.index = len(*h)
	*h = append(*h, c)
}

func (h *candidates) Pop() any {
	old := *h
	c := old[len(old)-1]
	c.index = -1
	*h = old[:len(old)-1]
	return c
}
