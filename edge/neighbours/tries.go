package neighbours

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/syncproto"
)

const (
	tryEvery   = 15 * time.Second // pause between two rounds
	tryTimeout = 3 * time.Second
	maxTries   = 8 // at once
	maxFailure = 200
)

// result is the newest result of trying to connect to an address.
type result struct {
	tried    bool      // since the link is gone
	answered bool      // it did so at least once since the agent started
	failure  string    // why it does not; "": it does
	since    time.Time // of failure, by the wall clock
}

// isTried reports whether this edge has to find out itself whether a service answers: there is no link, or its own edge
// has none. The caller holds k.mu.
func (k *Keeper) isTried(d *syncproto.DeliveredService) bool {
	return !k.exact || k.unreachable[d.Node]
}

// addressOf returns HOST:PORT of a service, or "" if there is none to connect to.
func addressOf(d *syncproto.DeliveredService) string {
	if d.Address == "" || d.Port == 0 {
		return ""
	}
	return net.JoinHostPort(d.Address, strconv.Itoa(d.Port))
}

// runTries tries the services that are to be tried, in rounds, until ctx ends. Without any it sleeps.
func (k *Keeper) runTries(ctx context.Context) {
	for {
		addresses, at := k.addressesToTry()
		var timer <-chan time.Time
		if len(addresses) > 0 {
			timer = time.After(time.Until(at))
		}
		select {
		case <-k.wakeTries:
		case <-timer:
			k.tryAddresses(ctx, addresses)
		case <-ctx.Done():
			return
		}
	}
}

// addressesToTry returns the addresses of the next round, sorted, and when it begins.
func (k *Keeper) addressesToTry() ([]string, time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := map[string]bool{}
	for _, d := range k.services {
		if a := addressOf(&d); a != "" && k.isTried(&d) {
			found[a] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), k.nextTries
}

// tryAddresses connects to each address, some at once, and records the results.
func (k *Keeper) tryAddresses(ctx context.Context, addresses []string) {
	var g errgroup.Group
	g.SetLimit(maxTries)
	for _, address := range addresses {
		g.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			within, cancel := context.WithTimeout(ctx, tryTimeout)
			defer cancel()
			conn, err := k.cfg.Dial(within, "tcp", address)
			if err == nil {
				err = conn.Close()
			}
			if ctx.Err() == nil {
				k.recordTry(address, err)
			}
			return nil
		})
	}
	_ = g.Wait() // no error is returned
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dropOldResults()
	k.nextTries = time.Now().Add(tryEvery)
}

// recordTry records the result of one try.
func (k *Keeper) recordTry(address string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.results[address]
	before := r.failure
	r.tried = true
	if err == nil {
		r.answered, r.failure, r.since = true, "", time.Time{}
	} else {
		text := err.Error()
		r.failure = text[:min(len(text), maxFailure)]
		if before == "" {
			r.since = k.cfg.Now()
		}
	}
	k.results[address] = r
	if (before == "") != (r.failure == "") {
		k.cfg.Log.Debug("a neighbour's service answers or does not", "address", address, "error", r.failure)
	}
}

// dropOldResults forgets the results of addresses that no service has, and keeps of those that are not tried now only
// whether they ever answered. The caller holds k.mu.
func (k *Keeper) dropOldResults() {
	kept := map[string]result{}
	for _, d := range k.services {
		a := addressOf(&d)
		r, known := k.results[a]
		switch {
		case !known:
		case k.isTried(&d):
			kept[a] = r
		case !kept[a].tried:
			kept[a] = result{answered: r.answered}
		}
	}
	k.results = kept
}
