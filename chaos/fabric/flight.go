package fabric

import "net"

// datagram is a packet on its way, or in a buffer.
type datagram struct {
	at   instant
	seq  uint64
	data []byte
	from *net.UDPAddr
	own  bool // the host has sent it to itself
}

func (d *datagram) arrivesBefore(o *datagram) bool {
	return d.at < o.at || d.at == o.at && d.seq < o.seq
}

// arrivalHeap is a heap of packets, the next to arrive first.
type arrivalHeap []datagram

// nextArrival is when the first one arrives.
func (f arrivalHeap) nextArrival() instant {
	if len(f) == 0 {
		return never
	}
	return f[0].at
}

func (f *arrivalHeap) push(d datagram) {
	q := append(*f, d)
	i := len(q) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !d.arrivesBefore(&q[parent]) {
			break
		}
		q[i] = q[parent]
		i = parent
	}
	q[i] = d
	*f = q
}

func (f *arrivalHeap) pop() datagram {
	q := *f
	first, last := q[0], len(q)-1
	d := q[last]
	q[last] = datagram{}
	q = q[:last]
	*f = q
	if last == 0 {
		return first
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && q[child+1].arrivesBefore(&q[child]) {
			child++
		}
		if !q[child].arrivesBefore(&d) {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = d
	return first
}

// fifo is a queue that reuses its room.
type fifo struct {
	items []datagram
	head  int
}

func (f *fifo) len() int { return len(f.items) - f.head }

func (f *fifo) push(d datagram) {
	if f.head > 0 && f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	f.items = append(f.items, d)
}

func (f *fifo) pop() datagram {
	d := f.items[f.head]
	f.items[f.head] = datagram{}
	f.head++
	return d
}
