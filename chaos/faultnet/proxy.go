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

// Proxy is a Network on loopback. For each port of a member a proxy listens on its advertised address
// and forwards to the address that the member binds. A sender is identified by its source address.
type Proxy struct {
	plain bool // no proxies: members bind their advertised addresses

	mu      sync.Mutex
	members map[string]*proxyMember
	byAddr  map[netip.Addr]string // bind address -> member
	flows   map[*flow]struct{}
	open    []io.Closer // open sockets of flows and connections
	traffic map[string]int64
	closed  bool

	binds, advertised int // address blocks of loopbackAddress, for binding and for advertising

	*links
	wg sync.WaitGroup
}

// proxyMember is a member of a Proxy.
type proxyMember struct {
	place  Place
	fronts []io.Closer // listening sockets of its proxies
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

// NewPlain returns a network without proxies, whose links cannot be broken. It is for fleets with too
// many edges for proxies, which break their links themselves.
func NewPlain() *Proxy {
	p := NewProxy()
	p.plain = true
	return p
}

// loopbackAddress returns a loopback address that depends on this process's id, so that concurrent
// runs on one machine do not share addresses.
func loopbackAddress(block, member int) string {
	return fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()%250, block, member)
}

// blocks counts the address blocks that this process has used.
var blocks atomic.Int32

// newBlock returns an unused address block for loopbackAddress: a Proxy uses one for binding and one
// for advertising. Blocks repeat after 250.
func newBlock() int { return 1 + int(blocks.Add(1)-1)%250 }

// Add adds a member and starts a proxy for each of its ports.
func (p *Proxy) Add(name string, ports ...Port) (Place, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.members[name]; ok {
		return Place{}, fmt.Errorf("add member %s: a member of that name exists", name)
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

// startPortProxy starts the goroutine that forwards one port, and returns its listening socket.
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

// Command returns a command that runs the program directly: all members share the loopback device.
func (p *Proxy) Command(_, program string, args ...string) *exec.Cmd {
	return exec.Command(program, args...)
}

// Dial connects directly, without a proxy.
func (p *Proxy) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// Rebind gives the flows of a member new ports of the proxy; see Network.
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

// Close stops every proxy and waits for the goroutines.
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

// flow has the packets from one sender address to one port of a member, and the answers.
type flow struct {
	from, toMember string // members
	src            netip.AddrPort
	front          *net.UDPConn // socket that receives the sender's packets
	to             *net.UDPAddr

	back     *net.UDPConn // guarded by Proxy.mu: socket that sends them on; Rebind replaces it
	answered uint64       // guarded by Proxy.mu: answers since the last Rebind
}

// maxPacket is the maximum size of a UDP payload.
const maxPacket = 65535

// serveUDP forwards the packets that arrive at a member's advertised port, until front is closed.
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

// openFlow returns a new flow and starts a goroutine for its answers; nil: the network is closed, or no
// socket can be opened.
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

// memberAt returns the member that binds an address; "": none does.
func (p *Proxy) memberAt(addr netip.Addr) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byAddr[addr]
}

// trackAndServe registers c for Close and starts serve in a goroutine. If the network is closed, it
// closes c and returns false.
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

// carryAnswers forwards the answers that arrive at a flow's socket, until that is closed.
func (p *Proxy) carryAnswers(f *flow, back *net.UDPConn) {
	buf := make([]byte, maxPacket)
	for {
		n, err := back.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // refused: the member does not listen at present
		}
		p.mu.Lock()
		f.answered++
		p.mu.Unlock()
		p.carryPacket(f.toMember, f.from, buf[:n], func(packet []byte) {
			_, _ = f.front.WriteToUDPAddrPort(packet, f.src)
		})
	}
}

// headers is the size of an IPv4 and a UDP header, in bytes.
const headers = 20 + 8

// carryPacket sends a packet from member a to member b through their links. If it is not lost, it
// counts it as traffic of both.
func (p *Proxy) carryPacket(a, b string, packet []byte, send func([]byte)) {
	if p.links.sendCopies(a, b, packet, headers, send) {
		p.countTraffic(len(packet), a, b)
	}
}

// countTraffic adds a packet with that payload to the traffic of the members.
func (p *Proxy) countTraffic(payload int, members ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range members {
		p.traffic[m] += int64(payload + headers)
	}
}

// Traffic returns the number of bytes that were forwarded from and to a member, with IP and UDP
// headers.
func (p *Proxy) Traffic(member string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.traffic[member]
}
