package faultnet

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// switchMember is a member's end of the switch.
type switchMember struct {
	name    string
	dev     *os.File
	nat     nat
	reached atomic.Uint64 // packets that it was sent, since Move
	addr    netip.Addr    // guarded by Netns.mu
}

// openTun makes a TUN device in the thread's namespace.
func openTun(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return nil, fmt.Errorf("name device %s: %w", name, err)
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("make device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}

// forwardFromMember carries what a member sends, until its device is closed.
func (n *Netns) forwardFromMember(s *switchMember) {
	buf := make([]byte, maxPacket)
	for {
		size, err := s.dev.Read(buf)
		if err != nil {
			return
		}
		n.forwardPacket(s, buf[:size])
	}
}

// Offsets in an IPv4 packet, and its length without options.
const (
	atProtocol  = 9
	atTarget    = 16
	ipv4Header  = 20
	udpProtocol = 17
)

// forwardPacket carries one packet from a member to the one that has its target
// address; others, and what is no IPv4 (neighbours are asked for by IPv6), vanish.
func (n *Netns) forwardPacket(from *switchMember, packet []byte) {
	if len(packet) < ipv4Header || packet[0]>>4 != 4 {
		return
	}
	target := netip.AddrFrom4([4]byte(packet[atTarget : atTarget+4]))
	n.mu.Lock()
	to := n.byAddr[target]
	n.mu.Unlock()
	if to == nil {
		return
	}
	from.nat.translateOutbound(packet)
	if !to.nat.translateInbound(packet) {
		return
	}
	n.links.sendCopies(from.name, to.name, packet, 0, to.deliverPacket)
}

// deliverPacket hands a packet to the member's machine. A full queue drops, as a network
// does.
func (s *switchMember) deliverPacket(packet []byte) {
	s.reached.Add(1)
	_, _ = s.dev.Write(packet)
}

// nat translates the ports of a member's UDP packets, from the first rebind on:
// each port that it sends from is seen by others as another one.
type nat struct {
	mu      sync.Mutex
	on      bool
	outside map[uint16]uint16 // by the member's own port
	inside  map[uint16]uint16 // by the port that others see
	through uint64            // packets that came in since the last rebind
}

// Ports that a nat gives out.
const (
	natFirst = 20_000
	natPorts = 40_000
)

// forgetFlows forgets all flows.
func (n *nat) forgetFlows() (through func() uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.on, n.outside, n.inside, n.through = true, map[uint16]uint16{}, map[uint16]uint16{}, 0
	return func() uint64 {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.through
	}
}

// translateOutbound gives a packet of the member the port that others see.
func (n *nat) translateOutbound(packet []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	udp := udpHeaderOf(packet)
	if !n.on || udp == nil {
		return
	}
	own := binary.BigEndian.Uint16(udp)
	seen, ok := n.outside[own]
	for !ok {
		seen = uint16(natFirst + rand.IntN(natPorts))
		if _, taken := n.inside[seen]; !taken {
			n.outside[own], n.inside[seen] = seen, own
			ok = true
		}
	}
	rewritePort(udp, 0, seen)
}

// translateInbound finds the member's own port again; false: there is no such flow.
func (n *nat) translateInbound(packet []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	udp := udpHeaderOf(packet)
	if !n.on || udp == nil {
		return true
	}
	own, ok := n.inside[binary.BigEndian.Uint16(udp[2:])]
	if !ok {
		return false
	}
	n.through++
	rewritePort(udp, 2, own)
	return true
}

// udpHeaderOf is the UDP part of a packet, nil where it has none or is a later
// fragment.
func udpHeaderOf(packet []byte) []byte {
	header := int(packet[0]&0xf) * 4
	fragment := binary.BigEndian.Uint16(packet[6:]) & 0x1fff
	if packet[atProtocol] != udpProtocol || fragment != 0 || len(packet) < header+8 {
		return nil
	}
	return packet[header:]
}

// rewritePort sets a port. A checksum of 0 says that there is none.
func rewritePort(udp []byte, at int, port uint16) {
	binary.BigEndian.PutUint16(udp[at:], port)
	binary.BigEndian.PutUint16(udp[6:], 0)
}
