package fabric_test

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"skerry/chaos/fabric"
)

func TestPauseHoldsPackets(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		x, y := mustPacketConn(t, a, 1), mustPacketConn(t, b, 1)
		start := time.Now()
		mustWriteTo(t, x, []byte("under way"), y.LocalAddr())
		f := b.Pause()
		mustBe(t, "pause again", b.Pause(), f)
		mustWriteTo(t, x, []byte("there"), y.LocalAddr())
		mustWriteTo(t, y, []byte("back"), x.LocalAddr())
		var wg sync.WaitGroup
		wg.Go(func() {
			got, _ := mustReadFrom(t, y)
			mustBe(t, "first packet", got, "under way")
			mustBe(t, "read after", time.Since(start), time.Minute)
		})
		wg.Go(func() {
			mustReadFrom(t, x)
			mustBe(t, "answer after", time.Since(start), time.Minute+fabric.LANLatency)
		})
		time.Sleep(time.Minute)
		mustBe(t, "held", f.Count(), fabric.Count{Held: 3})
		f.Heal()
		f.Heal()
		wg.Wait()
		mustBe(t, "received", fmt.Sprint(receivedPackets(t, y)), "[there]")

		// Both buffers are bounded: 212,992 bytes, of 1,840 for each packet.
		f = b.Pause()
		for range 1000 {
			mustWriteTo(t, x, make([]byte, 1200), y.LocalAddr())
			mustWriteTo(t, y, make([]byte, 1200), x.LocalAddr())
		}
		time.Sleep(time.Second)
		mustBe(t, "held, and dropped", f.Count(), fabric.Count{Held: 115 + 115, Dropped: 885 + 885})
		f.Heal()
		mustBe(t, "received by b", len(receivedPackets(t, y)), 115)
		mustBe(t, "received by a", len(receivedPackets(t, x)), 115)
	})
}

func TestPauseHoldsStreams(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		c, s := mustStream(t, a, b)
		l := mustListen(t, b, 80)
		start := time.Now()
		f := b.Pause()
		mustWrite(t, c, "there")
		mustWrite(t, s, "back")
		var wg sync.WaitGroup
		wg.Go(func() {
			mustBe(t, "read there", mustRead(t, s), "there")
			mustBe(t, "read there after", time.Since(start), time.Hour)
		})
		wg.Go(func() {
			mustBe(t, "read back", mustRead(t, c), "back")
			mustBe(t, "read back after", time.Since(start), time.Hour+fabric.LANLatency)
		})
		wg.Go(func() {
			d := mustDial(t, a, "b:80") // by b's system, not by its process
			mustBe(t, "dialed after", time.Since(start), 2*fabric.LANLatency)
			mustWrite(t, d, "dialed")
		})
		wg.Go(func() {
			d, err := l.Accept()
			mustBeNil(t, err)
			mustBe(t, "accepted after", time.Since(start), time.Hour)
			mustBe(t, "read after accept", mustRead(t, d), "dialed")
		})
		time.Sleep(time.Hour)
		mustBe(t, "held", f.Count(), fabric.Count{Held: 1})
		f.Heal()
		wg.Wait()
	})
}

func TestCrash(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		x, y := mustPacketConn(t, a, 1), mustPacketConn(t, b, 1)
		l := mustListen(t, b, 80)
		c, s := mustStream(t, a, b)
		mustWriteTo(t, x, []byte("under way"), y.LocalAddr())
		mustWriteTo(t, y, []byte("under way"), x.LocalAddr())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, err := y.ReadFrom(nil)
			mustFail(t, "read a packet", err, net.ErrClosed)
		})
		wg.Go(func() {
			_, err := s.Read(make([]byte, 9))
			mustFail(t, "read", err, net.ErrClosed)
		})
		wg.Go(func() {
			_, err := l.Accept()
			mustFail(t, "accept", err, net.ErrClosed)
		})
		time.Sleep(time.Microsecond)
		f := b.Crash()
		wg.Wait()
		mustBe(t, "killed, and lost", f.Count(), fabric.Count{Killed: 3, Dropped: 1})

		// The dead write into the void; nothing answers to the living.
		mustWriteTo(t, y, []byte("from the dead"), x.LocalAddr())
		mustWrite(t, s, "from the dead")
		mustBe(t, "received", fmt.Sprint(receivedPackets(t, x)), "[under way]")
		mustWriteTo(t, x, []byte("to the dead"), y.LocalAddr())
		mustBe(t, "lost", f.Count(), fabric.Count{Killed: 3, Dropped: 2})
		start := time.Now()
		mustWrite(t, c, "to the dead")
		wg.Go(func() {
			_, err := a.Dial(t.Context(), "b:80")
			mustBeNil(t, err)
			// Attempts at 0, 1, 3, 7, 15 s; it is back after 10.
			mustBe(t, "dialed after", time.Since(start), 15*time.Second+2*fabric.LANLatency)
		})
		_, err := b.Dial(t.Context(), "a:80")
		mustFail(t, "dial from the dead", err, syscall.ENETDOWN)
		time.Sleep(10 * time.Second)
		y2, l2 := mustPacketConn(t, b, 1), mustListen(t, b, 80)
		mustWriteTo(t, x, []byte("to the new one"), y.LocalAddr())
		mustBe(t, "received", fmt.Sprint(receivedPackets(t, y2)), "[to the new one]")
		_, err = l2.Accept()
		mustBeNil(t, err)
		wg.Wait()
		mustBeNil(t, y.Close())
		mustBeNil(t, s.Close())
		mustBeNil(t, l.Close())
		if _, err := b.ListenPacket(1); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("the dead socket's Close took the new one's port: %v", err)
		}
	})
}

// TestCrashInAPause: nothing of what the process held back is ever sent.
func TestCrashInAPause(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		x, y := mustPacketConn(t, a, 1), mustPacketConn(t, b, 1)
		pause := b.Pause()
		mustWriteTo(t, y, []byte("held"), x.LocalAddr())
		b.Crash()
		pause.Heal()
		y = mustPacketConn(t, b, 1)
		mustWriteTo(t, y, []byte("after"), x.LocalAddr())
		mustBe(t, "received", fmt.Sprint(receivedPackets(t, x)), "[after]")
	})
}

func TestStreamsOutliveACrashUntilTheyWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		writing, _ := mustStream(t, a, b)
		reading, _ := mustStream(t, a, b)
		b.Crash()
		start := time.Now()
		mustWrite(t, writing, "to the dead")
		mustListen(t, b, 80)
		mustWrite(t, writing, "to the next life")
		_, err := writing.Read(make([]byte, 9))
		mustFail(t, "read after a write", err, syscall.ECONNRESET)
		mustBe(t, "after", time.Since(start), 2*fabric.LANLatency)
		_, err = reading.Read(make([]byte, 9))
		mustFail(t, "read", err, syscall.ETIMEDOUT)
		mustBe(t, "after", time.Since(start), 150*time.Second)
	})
}
