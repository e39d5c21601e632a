package liveness_test

import (
	"testing"
	"time"

	"skerry/hub/liveness"
)

func TestTTL(t *testing.T) {
	p := liveness.Policy{MinTTL: 10 * time.Second, Grace: 10 * time.Second, MaxRate: 500}
	for _, c := range []struct {
		name        string
		nodes, hubs int
		pool, want  time.Duration
	}{
		{"nobody", 0, 3, 0, 10 * time.Second},
		{"a few", 100, 1, 0, 10 * time.Second},
		{"as many as one hub takes at the shortest", 5000, 1, 0, 10 * time.Second},
		{"one more: rounded up to a second", 5001, 1, 0, 11 * time.Second},
		{"10,000 on one hub", 10000, 1, 0, 20 * time.Second},
		{"10,000 on three", 10000, 3, 0, 10 * time.Second},
		{"100,000 on three: 33,334 each", 100000, 3, 0, 67 * time.Second},
		{"hubs not known yet count as one", 10000, 0, 0, 20 * time.Second},
		{"a pool's own is longer", 100, 3, 15 * time.Minute, 15 * time.Minute},
		{"a pool's own is shorter", 100, 3, time.Second, time.Second},
		{"a pool's own gives way to the rate", 100000, 3, time.Second, 67 * time.Second},
	} {
		if got := p.TTL(c.nodes, c.hubs, c.pool); got != c.want {
			t.Errorf("%s: TTL(%d nodes, %d hubs, pool %s) = %s, want %s", c.name, c.nodes, c.hubs, c.pool, got, c.want)
		}
	}
	unbounded := liveness.Policy{MinTTL: time.Second}
	if got := unbounded.TTL(1e6, 1, 0); got != time.Second {
		t.Errorf("without a rate: TTL = %s, want 1s", got)
	}
}

func TestTTLKeepsTheRate(t *testing.T) {
	p := liveness.Policy{MinTTL: 10 * time.Second, MaxRate: 500}
	for nodes := 1; nodes < 1e6; nodes = nodes*3/2 + 1 {
		for hubs := 1; hubs <= 5; hubs += 2 {
			ttl := p.TTL(nodes, hubs, 0)
			if rate := float64(nodes) / float64(hubs) / ttl.Seconds(); rate > 500 {
				t.Errorf("%d nodes on %d hubs: TTL %s gives %.1f beats/s on each", nodes, hubs, ttl, rate)
			}
		}
	}
	exact := liveness.Policy{MaxRate: 1 << 30} // a nanosecond above a second counts as another second
	if got := exact.TTL(1<<30+2, 1, time.Millisecond); got != 2*time.Second {
		t.Errorf("TTL %s for two nodes more than the rate allows in a second, want 2s", got)
	}
}
