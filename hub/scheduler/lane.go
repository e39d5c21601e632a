package scheduler

import (
	"container/heap"
	"strings"

	"skerry/fleet"
)

// lane is the candidates that have the same values of what the group is spread
// over: for all of them a placement is worth the same. A group that is not spread
// has one lane.
type lane struct {
	values []value // by spread
	heap   candidates
}

type value struct {
	text string
	has  bool
}

// laneOf returns the lane of a node.
func (r *ranking) laneOf(n *fleet.Node) *lane {
	if len(r.spreads) == 0 {
		return r.lanes[0]
	}
	values := make([]value, len(r.spreads))
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
	l := r.laneNamed[name.String()]
	if l == nil {
		l = &lane{values: values}
		r.laneNamed[name.String()] = l
		r.lanes = append(r.lanes, l)
	}
	return l
}

// spread is what one more allocation in the lane is worth.
func (r *ranking) spread(l *lane) float64 {
	sum := 0.0
	for i, s := range r.spreads {
		sum += s.boost(l.values[i].text, l.values[i].has)
	}
	return sum
}

// top returns the best candidate that the distinct rules allow, and its score with
// the spread; nil for none.
func (r *ranking) top() (*candidate, float64) {
	if len(r.spreads) == 0 {
		c := r.topOf(r.lanes[0])
		if c == nil {
			return nil, 0
		}
		return c, c.score
	}
	r.fill()
	var best *candidate
	var score float64
	for _, l := range r.lanes {
		c := r.topOf(l)
		if c == nil {
			continue
		}
		if s := c.mean(r.spread(l)); best == nil || s > score || s == score && c.order < best.order {
			best, score = c, s
		}
	}
	return best, score
}

// topOf returns the best candidate of a lane that the distinct rules allow and whose
// room is nobody else's, nil for none.
func (r *ranking) topOf(l *lane) *candidate {
	for {
		if len(r.spreads) == 0 && len(l.heap) < candidatesLow {
			r.fill()
		}
		if len(l.heap) == 0 {
			return nil
		}
		c := l.heap[0]
		broken := r.broken(c.node)
		if broken == "" && !r.booked(c) {
			return c
		}
		heap.Pop(&l.heap)
		if broken != "" {
			r.filtered(c.node, broken)
		}
	}
}

// candidates is a heap of nodes with room, the best on top.
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
