package members

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Network replaces the sockets in simulations, which run a whole cluster in one process. Members owns Packets and Listen
// from Open on.
type Network struct {
	Packets net.PacketConn
	Listen  net.Listener
	Dial    func(ctx context.Context, addr string) (net.Conn, error)
}

// packetQueue is how many packets wait for memberlist, which reads them one by
// one. More are lost, as a socket would lose them.
const packetQueue = 256

// maxPacket is more than memberlist ever sends in one packet.
const maxPacket = 64 << 10

// transport implements memberlist.Transport over a Network. It runs a goroutine for packets and one for streams until
// Shutdown.
type transport struct {
	net       Network
	log       *slog.Logger
	packets   chan *memberlist.Packet
	streams   chan net.Conn
	closed    chan struct{}
	receivers sync.WaitGroup
	once      sync.Once
}

var _ memberlist.Transport = (*transport)(nil)

// newTransport returns a transport and starts its two goroutines.
func newTransport(n Network, log *slog.Logger) *transport {
	t := &transport{
		net: n, log: log, packets: make(chan *memberlist.Packet, packetQueue),
		streams: make(chan net.Conn), closed: make(chan struct{}),
	}
	t.receivers.Go(t.receivePackets)
	t.receivers.Go(t.receiveStreams)
	return t
}

// receivePackets hands packets to memberlist until the socket fails. It drops packets while the queue is full.
func (t *transport) receivePackets() {
	buf := make([]byte, maxPacket)
	for {
		n, from, err := t.net.Packets.ReadFrom(buf)
		if err != nil {
			t.logReadError("packets", err)
			return
		}
		select {
		case t.packets <- &memberlist.Packet{Buf: append([]byte(nil), buf[:n]...), From: from, Timestamp: time.Now()}:
		default: // lost
		}
	}
}

// receiveStreams hands accepted connections to memberlist until the listener fails.
func (t *transport) receiveStreams() {
	for {
		conn, err := t.net.Listen.Accept()
		if err != nil {
			t.logReadError("streams", err)
			return
		}
		select {
		case t.streams <- conn:
		case <-t.closed:
			_ = conn.Close() // nobody will serve it
			return
		}
	}
}

// logReadError logs that packets or streams (what) are no longer received, unless Shutdown was called.
func (t *transport) logReadError(what string, err error) {
	select {
	case <-t.closed:
	default:
		t.log.Warn("gossip hears nothing any more", "of", what, "error", err)
	}
}

func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	a, ok := t.net.Packets.LocalAddr().(*net.UDPAddr)
	if !ok {
		return nil, 0, fmt.Errorf("find the gossip address: %s is not one of UDP", t.net.Packets.LocalAddr())
	}
	return a.IP, a.Port, nil
}

func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return time.Time{}, err
	}
	_, err = t.net.Packets.WriteTo(b, to)
	return time.Now(), err
}

func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return t.net.Dial(ctx, addr)
}

func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// Shutdown closes the socket and the listener and waits for the two goroutines. It ignores errors of closing.
func (t *transport) Shutdown() error {
	t.once.Do(func() {
		close(t.closed)
		_ = t.net.Packets.Close()
		_ = t.net.Listen.Close()
	})
	t.receivers.Wait()
	return nil
}
