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

// switchMember is a member of a Netns, with the switch's end of its TUN device.
type switchMember struct {
	name    string
	dev     *os.File
	nat     nat
	reached atomic.Uint64 // packets delivered to it since the last Move
	addr    netip.Addr    // guarded by Netns.mu
}

// openTun creates a TUN device of that name in the namespace of the current thread.
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

// forwardFromMember forwards the packets that a member sends, until its device is closed.
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

// forwardPacket forwards a packet to the member with its target address, through the NATs and links
// of both. It drops packets to unknown addresses and packets that are not IPv4.
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

// deliverPacket writes a packet to the member's device. A packet is lost if the device's queue is full.
func (s *switchMember) deliverPacket(packet []byte) {
	s.reached.Add(1)
	_, _ = s.dev.Write(packet)
}

// nat translates the ports of a member's UDP packets. It is off until the first forgetFlows; then
// each port of the member gets another port that others see.
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

// forgetFlows drops all port mappings and switches the translation on. through returns the number of
// packets that have come in by new mappings since.
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

// translateOutbound replaces the source port of a UDP packet from the member. A new port gets a
// random mapping.
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

// translateInbound replaces the target port of a UDP packet by the member's own port. It returns false
// if the port has no mapping: the packet has to be dropped.
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

// udpHeaderOf returns the UDP header and payload of an IPv4 packet; nil: it has none, or is a later
// fragment.
func udpHeaderOf(packet []byte) []byte {
	header := int(packet[0]&0xf) * 4
	fragment := binary.BigEndian.Uint16(packet[6:]) & 0x1fff
	if packet[atProtocol] != udpProtocol || fragment != 0 || len(packet) < header+8 {
		return nil
	}
	return packet[header:]
}

// rewritePort sets the port at the offset `at` of a UDP header, and clears the checksum, which means
// that there is none.
func rewritePort(udp []byte, at int, port uint16) {
	binary.BigEndian.PutUint16(udp[at:], port)
	binary.BigEndian.PutUint16(udp[6:], 0)
}
