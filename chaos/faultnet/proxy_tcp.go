package faultnet

import (
	"net"
	"time"
)

// serveTCP hands connections on. While one of its ends is cut off, a connection
// stands still.
func (p *Proxy) serveTCP(to string, front net.Listener, back string) {
	for {
		in, err := front.Accept()
		if err != nil {
			return
		}
		from := ""
		if a, ok := in.RemoteAddr().(*net.TCPAddr); ok {
			from = p.member(a.AddrPort().Addr().Unmap())
		}
		out, err := net.Dial("tcp4", back)
		if err != nil || !p.links.passes(from, to) {
			_ = in.Close()
			continue
		}
		there := func() { p.copy(out, in, from, to) }
		here := func() { p.copy(in, out, to, from) }
		if !p.hold(in, there) || !p.hold(out, here) {
			return
		}
	}
}

// standstill is how often a connection that stands still looks again.
const standstill = 50 * time.Millisecond

func (p *Proxy) copy(dst, src net.Conn, from, to string) {
	defer dst.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		for !p.links.passes(from, to) {
			if p.over() {
				return
			}
			time.Sleep(standstill)
		}
		if _, werr := dst.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (p *Proxy) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}
