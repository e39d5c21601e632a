package login

import (
	"net/netip"
	"sync"
	"time"
)

// Bounds of logins at one hub. Those who log in have no token yet.
const (
	maxAtOnce     = 64
	maxFailures   = 30 // of one source, in failureWindow
	failureWindow = time.Minute
	maxSources    = 1 << 14
)

// Tries bounds how many log in at once, and how often one source fails. It is safe for concurrent use.
type Tries struct {
	now func() time.Time

	mu       sync.Mutex
	running  int
	failures map[string]failureCount // by source
}

// failureCount counts the failures of a source since a time.
type failureCount struct {
	since time.Time
	count int
}

// NewTries returns Tries without any failure.
func NewTries(now func() time.Time) *Tries {
	return &Tries{now: now, failures: map[string]failureCount{}}
}

// Begin reports whether a source may try now. If so, the caller has to call End.
func (t *Tries) Begin(source string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	failed := t.failures[networkOf(source)]
	if t.running >= maxAtOnce || failed.count >= maxFailures && t.now().Sub(failed.since) < failureWindow {
		return false
	}
	t.running++
	return true
}

// End notes the end of a try, and whether it failed.
func (t *Tries) End(source string, failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	if !failed {
		return
	}
	now, network := t.now(), networkOf(source)
	counted := t.failures[network]
	if now.Sub(counted.since) >= failureWindow {
		counted = failureCount{since: now}
	}
	counted.count++
	if len(t.failures) >= maxSources {
		clear(t.failures)
	}
	t.failures[network] = counted
}

// networkOf returns what counts as one source: an address, or the network of an IPv6 address, which has many.
func networkOf(source string) string {
	addr, err := netip.ParseAddr(source)
	if err != nil || addr.Unmap().Is4() {
		return source
	}
	network, err := addr.WithZone("").Prefix(64)
	if err != nil {
		return source
	}
	return network.String()
}
