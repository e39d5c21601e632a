package fabric

import (
	"cmp"
	"net"
	"slices"
)

// datagram is a packet in flight or in a socket's buffer.
type datagram struct {
	at   instant
	data []byte
	from *net.UDPAddr
	own  bool // the receiving host sent it
}

// packetQueue is ordered by arrival; packets of one instant are in the order of sending.
type packetQueue []datagram

// nextArrival returns the arrival of the first packet; never: the queue is empty.
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
