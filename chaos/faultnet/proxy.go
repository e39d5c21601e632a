package faultnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// Proxy is a Network on loopback. A member that serves a port is advertised at
// an address where a proxy listens, which hands packets on to the member's own;
// members are told apart by the address they send from.
type Proxy struct {
	mu      sync.Mutex
	members map[string]*proxied
	byAddr  map[netip.Addr]string // bind address -> member
	cut     map[string]bool
	open    []io.Closer // sockets of flows
	traffic map[string]int64
	through map[string]time.Time // when a packet first got through, since the last Heal
	closed  bool

	wg sync.WaitGroup
}

type proxied struct {
	place  Place
	fronts []io.Closer // sockets where proxies listen
}

// NewProxy returns a network without members.
func NewProxy() *Proxy {
	return &Proxy{
		members: map[string]*proxied{}, byAddr: map[netip.Addr]string{}, cut: map[string]bool{},
		traffic: map[string]int64{}, through: map[string]time.Time{},
	}
}

// address is a loopback address of this process alone, so that runs on one
// machine do not meet: members bind in one block, proxies listen in the other.
func address(block, member int) string {
	return fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()%250, block, member)
}

const (
	bindBlock      = 1
	advertiseBlock = 2
)

// Add makes a member.
func (p *Proxy) Add(name string, ports ...Port) (Place, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.members[name]; ok {
		return Place{}, fmt.Errorf("add member %s: it is there already", name)
	}
	n := len(p.members) + 1
	if n > 250 {
		return Place{}, errors.New("add a member: a proxy network holds at most 250")
	}
	m := &proxied{place: Place{Name: name, Bind: address(bindBlock, n), Advertise: address(advertiseBlock, n)}}
	for _, port := range ports {
		front, err := p.listen(m.place, port)
		if err != nil {
			return Place{}, fmt.Errorf("listen for member %s: %w", name, err)
		}
		m.fronts = append(m.fronts, front)
	}
	p.members[name] = m
	p.byAddr[netip.MustParseAddr(m.place.Bind)] = name
	return m.place, nil
}

// listen starts the proxy of one port.
func (p *Proxy) listen(at Place, port Port) (io.Closer, error) {
	if port.TCP {
		front, err := net.Listen("tcp4", net.JoinHostPort(at.Advertise, strconv.Itoa(port.Number)))
		if err != nil {
			return nil, err
		}
		back := net.JoinHostPort(at.Bind, strconv.Itoa(port.Number))
		p.wg.Go(func() { p.serveTCP(at.Name, front, back) })
		return front, nil
	}
	front, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(at.Advertise), Port: port.Number})
	if err != nil {
		return nil, err
	}
	back := &net.UDPAddr{IP: net.ParseIP(at.Bind), Port: port.Number}
	p.wg.Go(func() { p.serveUDP(at.Name, front, back) })
	return front, nil
}

// Command runs a program as it is: loopback is everywhere.
func (p *Proxy) Command(_, program string, args ...string) *exec.Cmd {
	return exec.Command(program, args...)
}

// Dial dials directly: the proxies carry UDP alone.
func (p *Proxy) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// Cut makes every packet from and to a member vanish.
func (p *Proxy) Cut(member string) error { return p.set(member, true) }

// Heal lets a member's packets pass again.
func (p *Proxy) Heal(member string) error { return p.set(member, false) }

func (p *Proxy) set(member string, cut bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.members[member]; !ok {
		return fmt.Errorf("cut or heal %s: no such member", member)
	}
	p.cut[member] = cut
	delete(p.through, member)
	return nil
}

// Close stops every proxy.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	for _, m := range p.members {
		for _, front := range m.fronts {
			_ = front.Close() // its reader ends
		}
	}
	for _, open := range p.open {
		_ = open.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
	return nil
}

// flow is one sender's packets to one member, and the answers.
type flow struct {
	from string // member
	src  netip.AddrPort
	back *net.UDPConn
}

// maxPacket is the largest UDP payload.
const maxPacket = 65535

// serveUDP hands packets that reach a member's advertised address on to it.
func (p *Proxy) serveUDP(to string, front *net.UDPConn, back *net.UDPAddr) {
	flows := map[netip.AddrPort]*flow{}
	buf := make([]byte, maxPacket)
	for {
		n, src, err := front.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		f := flows[src]
		if f == nil {
			if f = p.openFlow(to, front, src, back); f == nil {
				return
			}
			flows[src] = f
		}
		if p.carry(f.from, to, n) {
			// A full socket buffer drops, as a network does.
			_, _ = f.back.Write(buf[:n])
		}
	}
}

// openFlow makes the flow of a sender, with a goroutine for the answers.
func (p *Proxy) openFlow(to string, front *net.UDPConn, src netip.AddrPort, back *net.UDPAddr) *flow {
	conn, err := net.DialUDP("udp4", nil, back)
	if err != nil {
		return nil
	}
	f := &flow{from: p.member(src.Addr()), src: src, back: conn}
	if !p.hold(conn, func() { p.answer(f, to, front) }) {
		return nil
	}
	return f
}

// member is who sends from an address, "" for a stranger.
func (p *Proxy) member(addr netip.Addr) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byAddr[addr]
}

// hold keeps what Close has to close and starts serve on it; false: it is
// closed already.
func (p *Proxy) hold(c io.Closer, serve func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.open = append(p.open, c)
	p.wg.Go(serve)
	return true
}

func (p *Proxy) answer(f *flow, to string, front *net.UDPConn) {
	buf := make([]byte, maxPacket)
	for {
		n, err := f.back.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // refused: the member is not there just now
		}
		if p.carry(to, f.from, n) {
			_, _ = front.WriteToUDPAddrPort(buf[:n], f.src)
		}
	}
}

// headers are the bytes of an IPv4 and a UDP header.
const headers = 20 + 8

// carry reports whether a packet between two members gets through, and counts it
// for both where it does.
func (p *Proxy) carry(a, b string, payload int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut[a] || p.cut[b] {
		return false
	}
	for _, m := range []string{a, b} {
		p.traffic[m] += int64(payload + headers)
		if p.through[m].IsZero() {
			p.through[m] = time.Now()
		}
	}
	return true
}

// Traffic is how many bytes came through from and to a member, IP and UDP
// headers counted.
func (p *Proxy) Traffic(member string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.traffic[member]
}

// Through is when a packet of a member first got through since its link was cut
// or healed; zero: none did.
func (p *Proxy) Through(member string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.through[member]
}

// passes reports whether packets between two members get through; a sender that
// is no member does.
func (p *Proxy) passes(a, b string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.cut[a] && !p.cut[b]
}

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
		if err != nil || !p.passes(from, to) {
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
		for !p.passes(from, to) {
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
