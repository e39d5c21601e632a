package pki

import (
	"context"
	"crypto/x509"
	"time"

	"skerry/hub/state"
)

// SignForHTTP returns the chain that a hub shows to clients of its HTTP API. keys are those of the CAs, by number.
func SignForHTTP(cas state.CAs, keys map[uint64][]byte, now time.Time) (chain []*x509.Certificate, err error) {
	plan, err := planAuthorities(cas, now)
	if err != nil {
		return nil, err
	}
	web, err := parseAuthority(plan.web.Cert, keys[plan.web.Number])
	if err != nil {
		return nil, err
	}
	made, err := web.SignHTTP("one", []string{"hub.example"}, now, plan.webChain)
	if err != nil {
		return nil, err
	}
	for _, der := range made.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		chain = append(chain, cert)
	}
	return chain, nil
}

// UnwrapAll unwraps the keys, and leaves the file as it is.
func (s *StateKeys) UnwrapAll(ctx context.Context) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	return s.unwrapKept(ctx)
}

// ServeStateKey and StoreStateKey answer the calls of other hubs.
func (k *Keyring) ServeStateKey(ctx context.Context, from, id string) ([]byte, error) {
	return k.serveStateKey(ctx, from, id)
}

func (k *Keyring) StoreStateKey(ctx context.Context, from string, key []byte) (struct{}, error) {
	return k.storeStateKey(ctx, from, key)
}
