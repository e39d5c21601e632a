package faultnet

import (
	"net"
	"time"
)

// serveTCP forwards the connections to a member's advertised port, until front is closed. While a link
// of one of the two members is cut, a connection makes no progress and new ones are closed.
func (p *Proxy) serveTCP(to string, front net.Listener, back string) {
	for {
		in, err := front.Accept()
		if err != nil {
			return
		}
		from := ""
		if a, ok := in.RemoteAddr().(*net.TCPAddr); ok {
			from = p.memberAt(a.AddrPort().Addr().Unmap())
		}
		out, err := net.Dial("tcp4", back)
		if err != nil || !p.links.canProgress(from, to) {
			_ = in.Close()
			continue
		}
		there := func() { p.copyStream(out, in, from, to) }
		here := func() { p.copyStream(in, out, to, from) }
		if !p.trackAndServe(in, there) || !p.trackAndServe(out, here) {
			return
		}
	}
}

// cutPollInterval is the interval at which a stopped connection checks whether the cut is over.
const cutPollInterval = 50 * time.Millisecond

// copyStream copies from src to dst until one of them ends, and then closes dst. It waits while a link
// of the two members is cut.
func (p *Proxy) copyStream(dst, src net.Conn, from, to string) {
	defer dst.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		for !p.links.canProgress(from, to) {
			if p.isClosed() {
				return
			}
			time.Sleep(cutPollInterval)
		}
		if _, werr := dst.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (p *Proxy) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}
