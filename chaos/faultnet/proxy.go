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
	"sync/atomic"
)

// Proxy is a Network on loopback. A member that serves a port is advertised at
// an address where a proxy listens, which hands packets on to the member's own;
// members are told apart by the address they send from.
type Proxy struct {
	plain bool // there is nothing in between

	mu      sync.Mutex
	members map[string]*proxyMember
	byAddr  map[netip.Addr]string // bind address -> member
	flows   map[*flow]struct{}
	open    []io.Closer // sockets of flows
	traffic map[string]int64
	closed  bool

	binds, advertised int // blocks of addresses

	*links
	wg sync.WaitGroup
}

type proxyMember struct {
	place  Place
	fronts []io.Closer // sockets where proxies listen
}

// NewProxy returns a network without members.
func NewProxy() *Proxy {
	return &Proxy{
		binds: newBlock(), advertised: newBlock(),
		members: map[string]*proxyMember{}, byAddr: map[netip.Addr]string{},
		flows: map[*flow]struct{}{}, traffic: map[string]int64{},
		links: newLinks(),
	}
}

// NewPlain returns a network with nothing in between: its links cannot be broken. It is for fleets
// whose edges break their own links, and are too many for proxies.
func NewPlain() *Proxy {
	p := NewProxy()
	p.plain = true
	return p
}

// loopbackAddress is a loopback address of this process alone, so that runs on one
// machine do not meet.
func loopbackAddress(block, member int) string {
	return fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()%250, block, member)
}

// blocks is how many blocks of addresses this process has handed out.
var blocks atomic.Int32

// newBlock is a block of addresses for a network of this process alone: members of
// a Proxy bind in one, and its proxies listen in another. They come again when a
// process has had 250.
func newBlock() int { return 1 + int(blocks.Add(1)-1)%250 }

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
	m := &proxyMember{place: Place{Name: name, Bind: loopbackAddress(p.binds, n), Advertise: loopbackAddress(p.advertised, n)}}
	if p.plain {
		m.place.Advertise, ports = m.place.Bind, nil
	}
	for _, port := range ports {
		front, err := p.startPortProxy(m.place, port)
		if err != nil {
			return Place{}, fmt.Errorf("listen for member %s: %w", name, err)
		}
		m.fronts = append(m.fronts, front)
	}
	p.members[name] = m
	p.links.addMember(name)
	p.byAddr[netip.MustParseAddr(m.place.Bind)] = name
	return m.place, nil
}

// startPortProxy starts the proxy of one port.
func (p *Proxy) startPortProxy(at Place, port Port) (io.Closer, error) {
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

// Rebind has what a member sends come from new ports of the proxy.
func (p *Proxy) Rebind(member string) (func() uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members[member] == nil {
		return nil, fmt.Errorf("rebind %s: no such member", member)
	}
	var rebound []*flow
	for f := range p.flows {
		if f.from != member {
			continue
		}
		conn, err := net.DialUDP("udp4", nil, f.to)
		if err != nil {
			return nil, fmt.Errorf("rebind %s: %w", member, err)
		}
		_ = f.back.Close() // its reader ends
		f.back, f.answered = conn, 0
		p.open = append(p.open, conn)
		p.wg.Go(func() { p.carryAnswers(f, conn) })
		rebound = append(rebound, f)
	}
	return func() uint64 {
		p.mu.Lock()
		defer p.mu.Unlock()
		var sum uint64
		for _, f := range rebound {
			sum += f.answered
		}
		return sum
	}, nil
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
	p.delayedCalls.close()
	p.wg.Wait()
	return nil
}

// flow is one sender's packets to one member, and the answers.
type flow struct {
	from, toMember string // members
	src            netip.AddrPort
	front          *net.UDPConn // where the sender's packets come in
	to             *net.UDPAddr

	back     *net.UDPConn // guarded by Proxy.mu: where they go out; Rebind replaces it
	answered uint64       // guarded by Proxy.mu: packets that came back since
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
		p.carryPacket(f.from, to, buf[:n], func(packet []byte) {
			p.mu.Lock()
			conn := f.back
			p.mu.Unlock()
			// A full socket buffer drops, as a network does.
			_, _ = conn.Write(packet)
		})
	}
}

// openFlow makes the flow of a sender, with a goroutine for the answers.
func (p *Proxy) openFlow(to string, front *net.UDPConn, src netip.AddrPort, back *net.UDPAddr) *flow {
	conn, err := net.DialUDP("udp4", nil, back)
	if err != nil {
		return nil
	}
	f := &flow{from: p.memberAt(src.Addr()), toMember: to, src: src, front: front, to: back, back: conn}
	if !p.trackAndServe(conn, func() { p.carryAnswers(f, conn) }) {
		return nil
	}
	p.mu.Lock()
	p.flows[f] = struct{}{}
	p.mu.Unlock()
	return f
}

// memberAt is who sends from an address, "" for a stranger.
func (p *Proxy) memberAt(addr netip.Addr) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byAddr[addr]
}

// trackAndServe keeps what Close has to close and starts serve on it; false: it is
// closed already.
func (p *Proxy) trackAndServe(c io.Closer, serve func()) bool {
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

// carryAnswers carries what comes back on a flow's socket until that is closed.
func (p *Proxy) carryAnswers(f *flow, back *net.UDPConn) {
	buf := make([]byte, maxPacket)
	for {
		n, err := back.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // refused: the member is not there just now
		}
		p.mu.Lock()
		f.answered++
		p.mu.Unlock()
		p.carryPacket(f.toMember, f.from, buf[:n], func(packet []byte) {
			_, _ = f.front.WriteToUDPAddrPort(packet, f.src)
		})
	}
}

// headers are the bytes of an IPv4 and a UDP header.
const headers = 20 + 8

// carryPacket sends a packet between two members by its links, and counts it for both
// where it gets through.
func (p *Proxy) carryPacket(a, b string, packet []byte, send func([]byte)) {
	if p.links.sendCopies(a, b, packet, headers, send) {
		p.countTraffic(len(packet), a, b)
	}
}

func (p *Proxy) countTraffic(payload int, members ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range members {
		p.traffic[m] += int64(payload + headers)
	}
}

// Traffic is how many bytes came through from and to a member, IP and UDP
// headers counted.
func (p *Proxy) Traffic(member string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.traffic[member]
}
