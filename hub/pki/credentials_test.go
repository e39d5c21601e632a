package pki_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/pki"
	"skerry/syncproto/identity"
)

// Whatever an identity's files hold, a start finds an identity or refuses it.
func FuzzLoadCredentials(f *testing.F) {
	now := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	cluster, err := pki.NewCluster("global", now)
	if err != nil {
		f.Fatal(err)
	}
	authority, err := pki.NewAuthority(cluster)
	if err != nil {
		f.Fatal(err)
	}
	id, _, err := authority.Issue(fleet.RoleHub, "hub-1", now)
	if err != nil {
		f.Fatal(err)
	}
	key, err := identity.EncodeKey(id.Key)
	if err != nil {
		f.Fatal(err)
	}
	cert, ca := identity.EncodeCert(id.Cert.Raw), identity.EncodeCert(id.CA.Raw)
	f.Add(cert, key, ca, cluster.GossipKey, []byte(`{"Hubs":["192.0.2.1:4647"]}`))
	f.Add(cert, key, cert, cluster.GossipKey, []byte(`{}`))
	f.Add(cert, key, ca, []byte("short"), []byte(`{"Cluster":{"CACert":7}}`))
	f.Add(ca, key, ca, cluster.GossipKey, []byte(`null`))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n"), []byte{}, []byte{0xff}, []byte{}, []byte("["))
	f.Fuzz(func(t *testing.T, cert, key, ca, gossip, pending []byte) {
		dir := t.TempDir()
		for name, content := range map[string][]byte{
			"hub.pem": cert, "hub-key.pem": key, "ca.pem": ca, "gossip-key": gossip, "pending.json": pending,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, found, err := pki.LoadCredentials(dir)
		if err != nil {
			if e := fleet.AsError(err); e.Code != fleet.CodeInvalid || e.Hint == "" {
				t.Fatalf("refused with %q: %v", e.Code, err)
			}
			return
		}
		if !found || len(gossip) != pki.GossipKeyBytes || !bytes.Contains(cert, []byte("CERTIFICATE")) {
			t.Fatalf("taken: found=%t, gossip key of %d bytes, certificate %q", found, len(gossip), cert)
		}
	})
}
