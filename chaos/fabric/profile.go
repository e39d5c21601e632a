package fabric

import "time"

// Profile is the quality of a link. The zero Profile is a perfect link.
type Profile struct {
	// Latency is the one-way delay of a packet. It varies by up to ± Jitter (uniformly
	// distributed), without changing the order of packets.
	Latency, Jitter time.Duration
	// Fractions (0 to 1) of the packets. Data on streams is never lost: a loss delays it
	// by a retransmission. It is neither duplicated nor reordered.
	Loss, Duplicate float64
	// Reorder is the fraction of packets that are delayed by up to Latency (at least
	// 10 ms) more, so that later packets overtake them.
	Reorder float64
	// Bandwidth is in bits per second; 0: unlimited. Each host that a Shape's a selects
	// has one such line for each direction, and all its packets to and from b share it.
	// Up is the speed of the line for packets from a; 0: Bandwidth.
	Bandwidth, Up int
	// Queue is the number of bytes that may wait for the line; further packets are
	// dropped. 0: the bytes that the line carries in 200 ms, at least 32 KiB.
	Queue int
}

// Satellite is a geostationary link: 600 ms ± 50 ms for a packet and its answer (as
// tc-netem gives when it delays one side; light alone, up and down twice, takes
// 477 ms), 2 % loss, 25 Mbit/s.
var Satellite = Profile{
	Latency: 300 * time.Millisecond, Jitter: 25 * time.Millisecond,
	Loss: 0.02, Bandwidth: 25_000_000, Queue: 1 << 20,
}

// Cellular3G is a phone network's data service. Speeds and round trip (1.6 Mbit/s
// down, 768 kbit/s up, 300 ms) are WebPageTest's profile "3G" (WPO-Foundation/
// webpagetest, settings/connectivity.ini.sample). Losses are rare and delays vary
// widely, since the radio link retransmits (Cano-García, González-Parada, Casilari:
// Experimental Analysis and Characterization of Packet Delay in UMTS Networks,
// NEW2AN 2006): 0.5 % and ± 75 ms. The queue is deep (Jiang, Wang, Lee, Rhee:
// Tackling Bufferbloat in 3G/4G Networks, IMC 2012): 128 KiB, 1.4 s up.
var Cellular3G = Profile{
	Latency: 150 * time.Millisecond, Jitter: 75 * time.Millisecond,
	Loss: 0.005, Bandwidth: 1_600_000, Up: 768_000, Queue: 128 << 10,
}

// lineSpeed returns the bandwidth of one direction, in bits per second.
func (p Profile) lineSpeed(up bool) int {
	if up && p.Up > 0 {
		return p.Up
	}
	return p.Bandwidth
}

// queueCapacity returns the number of bytes that may wait for a line of that speed.
func (p Profile) queueCapacity(speed int) int {
	if p.Queue > 0 {
		return p.Queue
	}
	return max(speed/8/5, 32<<10)
}

// airtime returns the time that a line needs to send a packet. speed is in bits per second.
func airtime(bytes, speed int) time.Duration {
	return time.Duration(float64(bytes) * 8 / float64(speed) * float64(time.Second))
}

// retransmitTimeout returns the time until TCP has repaired a loss (RFC 6298: an RTO is the
// round trip and its variation, on Linux at least 200 ms).
func (p Profile) retransmitTimeout() time.Duration {
	return max(200*time.Millisecond, 2*p.Latency+4*p.Jitter)
}
