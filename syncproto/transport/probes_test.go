package transport_test

import (
	"testing"

	"skerry/syncproto/transport"
)

func TestProbes(t *testing.T) {
	earlier := transport.Stats{PacketsSent: 7000, PacketsReceived: 9000, BytesSent: 1 << 20, BytesReceived: 1 << 30, Calls: 50}
	for _, tt := range []struct {
		name  string
		since transport.Stats
		want  bool
	}{
		{"nothing", transport.Stats{}, false},
		{"a beat", transport.Stats{PacketsSent: 3, BytesSent: 150, BytesReceived: 100, Calls: 2}, false},
		{"a beat that was lost five times", transport.Stats{PacketsSent: 13, BytesSent: 800, BytesReceived: 100, Calls: 2}, false},
		{"a download", transport.Stats{PacketsSent: 5_000, BytesSent: 200_000, BytesReceived: 12_000_000, Calls: 300}, false},
		{"an upload of which a third is lost", transport.Stats{PacketsSent: 15_000, BytesSent: 18_000_000, BytesReceived: 400_000, Calls: 300}, false},
		{"a shell, key by key", transport.Stats{PacketsSent: 2_000, BytesSent: 90_000, BytesReceived: 90_000, Calls: 1_000}, false},
		{"probes for five seconds", transport.Stats{PacketsSent: 300, BytesSent: 15_000, BytesReceived: 15_000, Calls: 2}, true},
		{"probes for a quarter of an hour", transport.Stats{PacketsSent: 54_000, BytesSent: 2_700_000, BytesReceived: 2_700_000, Calls: 2}, true},
	} {
		now := earlier
		now.PacketsSent += tt.since.PacketsSent
		now.BytesSent += tt.since.BytesSent
		now.BytesReceived += tt.since.BytesReceived
		now.Calls += tt.since.Calls
		if got := now.Probes(earlier); got != tt.want {
			t.Errorf("%s: probes: %t, want %t", tt.name, got, tt.want)
		}
	}
}
