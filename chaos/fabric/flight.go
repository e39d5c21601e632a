package fabric

import (
	"cmp"
	"net"
	"slices"
)

// datagram is a packet on its way, or in a buffer.
type datagram struct {
	at   instant
	data []byte
	from *net.UDPAddr
	own  bool // the host has sent it to itself
}

// packetQueue has the next to arrive first; those of one instant are in the order in which
// they were sent.
type packetQueue []datagram

// nextArrival is when the first one arrives.
func (q packetQueue) nextArrival() instant {
	if len(q) == 0 {
		return never
	}
	return q[0].at
}

func (q *packetQueue) push(d datagram) {
	i, _ := slices.BinarySearchFunc(*q, d.at, func(o datagram, at instant) int { return cmp.Or(cmp.Compare(o.at, at), -1) })
	*q = slices.Insert(*q, i, d)
}

func (q *packetQueue) pop() datagram {
	d := (*q)[0]
	*q = slices.Delete(*q, 0, 1)
	return d
}
