package engine

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"skerry/chaos/schedule"
)

// cutUntilExpired cuts edges off from all hubs. Its Heal waits until their certificates have expired, which are
// not renewed without a link, and then heals the links. It hits only if one expired.
func cutUntilExpired(_ context.Context, p *Faults, f schedule.Fault) (Active, error) {
	edges := p.Topology.EdgesOf(f)
	cut, err := p.CutEdges(edges, schedule.Params{Way: schedule.WayBoth})
	if err != nil {
		return cut, err
	}
	var expired atomic.Bool
	return Active{
		Heal: func(ctx context.Context) error {
			var errs []error
			for _, e := range edges {
				end, err := certificateEnd(p.DataDir(e))
				if errs = append(errs, err); err == nil && Pause(ctx, time.Until(end)+time.Second) {
					expired.Store(true)
				}
			}
			return errors.Join(append(errs, cut.Heal(ctx))...)
		},
		Evidence: func() (uint64, string) {
			if !expired.Load() {
				return 0, "no certificate expired meanwhile"
			}
			return cut.Evidence()
		},
	}, nil
}

// certificateEnd returns the end of validity of the certificate in an edge's data directory.
func certificateEnd(dir string) (time.Time, error) {
	path := filepath.Join(dir, "identity", "cert.pem")
	b, err := os.ReadFile(path)
	if err != nil {
		return time.Time{}, fmt.Errorf("read a certificate: %w", err)
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return time.Time{}, fmt.Errorf("read the certificate %s: it is not PEM", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the certificate %s: %w", path, err)
	}
	return cert.NotAfter, nil
}
