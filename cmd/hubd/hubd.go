// Package hubd is the hub daemon as a command. skerry has it, and the harness runs
// it with another clock.
package hubd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"skerry/cmd/console"
	"skerry/drivers/builtin"
	"skerry/fleet"
	"skerry/hub"
)

// Flags are what a hub is told on the command line.
type Flags struct {
	Config hub.Config
	Log    console.LogFlags
}

// Add adds the flags to a command's.
func (f *Flags) Add(flags *pflag.FlagSet) {
	cfg := &f.Config
	flags.StringVar(&cfg.DataDir, "data-dir", "", "directory of the hub's data (required)")
	flags.BoolVar(&cfg.Bootstrap, "bootstrap", false, "create a new cluster with this hub as its first; ignored if the hub is in one already")
	flags.StringSliceVar(&cfg.Join, "join", nil, "hub to join, HOST:PORT of its QUIC port; may be repeated or a list with commas")
	flags.StringVar(&cfg.TokenFile, "token-file", "", "file with the join token")
	flags.StringVar(&cfg.Name, "name", "", "name of this hub (default: the machine's host name)")
	flags.StringVar(&cfg.Region, "region", fleet.DefaultRegion, "region of the cluster")
	flags.StringVar(&cfg.Bind, "bind", "127.0.0.1", "address to listen on")
	flags.StringVar(&cfg.Advertise, "advertise", "", "address at which others reach this hub (default: that of --bind)")
	flags.IntVar(&cfg.HTTPPort, "http-port", hub.DefaultHTTPPort, "TCP port of the HTTP API")
	flags.IntVar(&cfg.QUICPort, "quic-port", hub.DefaultQUICPort, "UDP port of edges and hubs")
	flags.IntVar(&cfg.GossipPort, "gossip-port", hub.DefaultGossipPort, "TCP and UDP port of gossip between hubs")
	flags.StringVar(&cfg.HTTPBind, "http-bind", "", "address of the HTTP API (default: that of --bind)")
	flags.StringSliceVar(&cfg.HTTPHosts, "http-host", nil, "name by which HTTP requests may address this hub, besides localhost and its own addresses (a proxy's, this machine's in the DNS); may be repeated or a list with commas")
	flags.BoolVar(&cfg.HTTPInsecure, "http-insecure", false, "serve the HTTP API beyond loopback also without HTTPS, tokens or client certificates")
	flags.BoolVar(&cfg.HTTPTLS, "http-tls", false, "serve HTTPS, with a certificate of the cluster's CA for --http-host and this hub's addresses; the hub renews it")
	flags.StringVar(&cfg.HTTPTLSCert, "http-tls-cert", "", "serve HTTPS with the certificate of this file (PEM, with its chain); it is read again when it changes")
	flags.StringVar(&cfg.HTTPTLSKey, "http-tls-key", "", "file with the key of --http-tls-cert (PEM)")
	flags.StringVar(&cfg.HTTPTLSClientCA, "http-tls-client-ca", "", "let in only HTTPS clients with a certificate of an authority in this file (PEM)")
	flags.BoolVar(&cfg.ACLEnabled, "acl-enabled", false, "serve the HTTP API only to tokens, also before skerry acl bootstrap turns access control on for the cluster")
	flags.StringVar(&cfg.OIDCIssuer, "oidc-issuer", "", "URL at which others reach the hubs to verify the identities of tasks (JWT), which name it as their issuer; the same on all hubs")
	f.addKeyringFlags(flags)
	flags.StringVar(&cfg.AuditCollector, "audit-collector", "", "URL that gets each entry of the audit (JSON lines by POST): https://HOST:PORT/PATH")
	flags.StringVar(&cfg.AuditCollectorAuthorization, "audit-collector-authorization", "", "file with the value of the header Authorization for --audit-collector; it is read before each request")
	flags.StringVar(&cfg.AuditCollectorCA, "audit-collector-ca", "", "file with the authorities (PEM) of the certificate of --audit-collector (default: the machine's)")
	flags.StringVar(&cfg.AuditSyslog, "audit-syslog", "", "syslog server that gets each entry of the audit: local, tls://HOST:PORT, tcp://HOST:PORT or udp://HOST:PORT")
	flags.StringVar(&cfg.AuditSyslogCA, "audit-syslog-ca", "", "file with the authorities (PEM) of the certificate of --audit-syslog (default: the machine's)")
	flags.BoolVar(&cfg.Debug, "debug", false, "serve profiles of this process under /debug/pprof, to clients on this machine alone")
	flags.IntVar(&cfg.Workers, "workers", 0, "number of schedulers on this hub (default: one for each processor, at least 2)")
	flags.DurationVar(&cfg.Heartbeat.MinTTL, "heartbeat-min-ttl", 0, "shortest heartbeat interval of an edge (default 10s)")
	flags.DurationVar(&cfg.Heartbeat.Grace, "heartbeat-grace", 0, "how much longer than its heartbeat interval an edge may be silent (default 10s)")
	flags.Float64Var(&cfg.Heartbeat.MaxRate, "heartbeat-max-rate", 0, "heartbeats a second that this hub accepts (default 500)")
	flags.DurationVar(&cfg.EdgeCertValidity, "edge-cert-validity", 0, "how long an edge's certificate is valid; edges renew it by themselves (default 8760h)")
	flags.DurationVar(&cfg.EdgeCertGrace, "edge-cert-grace", 0, "how long after its end hubs still accept an edge's certificate; an edge that was away for longer needs a join token (default 8760h)")
	f.Log.AddLogFlags(flags)
}

// addKeyringFlags adds the flags of the key that encrypts the cluster's secrets.
func (f *Flags) addKeyringFlags(flags *pflag.FlagSet) {
	t := &f.Config.KeyringTransit
	flags.StringVar(&f.Config.Keyring, "keyring", "file", "how this hub keeps the key that encrypts the cluster's secrets on its disk: file (in clear, mode 0600) or transit (wrapped by the transit engine of Vault)")
	flags.StringVar(&t.Address, "keyring-transit-address", "", "server of the transit engine, https://HOST:PORT")
	flags.StringVar(&t.KeyName, "keyring-transit-key-name", "", "name of the key in the transit engine")
	flags.StringVar(&t.MountPath, "keyring-transit-mount-path", "", "path of the transit engine (default: transit)")
	flags.StringVar(&t.Namespace, "keyring-transit-namespace", "", "namespace of the transit engine, in Vault Enterprise")
	flags.StringVar(&t.TokenFile, "keyring-transit-token-file", "", "file with the token for the transit engine; it is read before each request")
	flags.StringVar(&t.CACert, "keyring-transit-ca-cert", "", "file with the authorities (PEM) of the certificate of --keyring-transit-address (default: the machine's)")
}

// Command is the daemon's command.
func Command(version string) *cobra.Command {
	var f Flags
	cmd := &cobra.Command{
		Use: "hub", Short: "Run a hub: one of the servers that keep the desired state and schedule jobs", Args: cobra.NoArgs,
		Example: `  skerry hub --bootstrap --data-dir /var/lib/skerry --bind 192.0.2.10
  skerry hub --join 192.0.2.10:4647 --token-file hub-join-token --data-dir /var/lib/skerry --bind 192.0.2.11
  skerry hub --bootstrap --data-dir /var/lib/skerry --bind 192.0.2.10 --http-tls --http-host hub1.example.com --http-tls-client-ca clients.pem`,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return console.CompleteFlags(cmd.Flags(), os.Environ()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.Run(cmd.Context(), version, cmd.OutOrStdout())
		},
	}
	f.Add(cmd.Flags())
	console.AddConfigFlag(cmd.Flags())
	return cmd
}

// Run runs the hub until ctx ends, and says where it is once it serves.
func (f *Flags) Run(ctx context.Context, version string, out io.Writer) error {
	log, err := f.Log.NewLog()
	if err != nil {
		return err
	}
	cfg := f.Config
	if cfg.DataDir == "" {
		return fleet.Errorf(fleet.CodeInvalid, "a hub needs a data directory").WithHint("name it with --data-dir")
	}
	cfg.Log, cfg.Version, cfg.Drivers = log, version, builtin.Known()
	h, err := hub.Open(ctx, cfg)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return h.Run(ctx) })
	group.Go(func() error {
		select {
		case <-h.Ready():
		case <-ctx.Done():
			return nil
		}
		fmt.Fprintf(out, "hub ready: HTTP %s, QUIC %s, gossip %s\n", h.HTTPURL(), h.QUICAddr(), h.GossipAddr())
		if hash := h.HTTPCAHash(); hash != "" {
			fmt.Fprintf(out, "operators begin with: skerry context add NAME %s --ca-hash %s\n", h.HTTPURL(), hash)
		}
		if cfg.Bootstrap && h.JoinToken() != "" {
			fmt.Fprintf(out, "join tokens: for edges in %s, for hubs in %s\n",
				filepath.Join(cfg.DataDir, "join-token"), filepath.Join(cfg.DataDir, "hub-join-token"))
		}
		return nil
	})
	return errors.Join(group.Wait(), h.Close())
}
