// Package edged is the edge daemon as a command, and the commands that speak to it on
// its own machine. Both skerry and skerry-edge have them; so it must stay small and
// knows nothing of hubs.
package edged

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skerry/cmd/console"
	"skerry/devices"
	"skerry/drivers"
	"skerry/drivers/builtin"
	"skerry/drivers/docker"
	"skerry/drivers/oci"
	"skerry/drivers/qemu"
	"skerry/edge"
	"skerry/edge/artifacts"
	"skerry/edge/consul"
	"skerry/edge/contract"
	"skerry/edge/cores"
	"skerry/edge/diskspace"
	"skerry/edge/fingerprint"
	"skerry/edge/hardware"
	"skerry/edge/identities/files"
	"skerry/edge/logins/tokens"
	"skerry/edge/network"
	"skerry/edge/prefetch"
	"skerry/edge/runner"
	"skerry/edge/secretdirs"
	"skerry/edge/templates"
	"skerry/edge/vault"
	"skerry/edge/volumes"
	"skerry/fleet"
	"skerry/fleet/template"
	"skerry/internal/programs"
)

// defaultStoreMB is the size of the store for artifacts, in MB.
const defaultStoreMB = 4096

// defaultImageDelay is long enough for a job that goes back to the version of last week: its image needs no link then.
const defaultImageDelay = 7 * 24 * time.Hour

// Flags are the flags of an edge's command line.
type Flags struct {
	Config     edge.Config
	Bind       string
	BootID     string
	Network    Network
	Reserved   fleet.Resources
	Log        console.LogFlags
	TotalCPU   int
	TotalMemMB int
	StoreMB    int
	MinFreeMB  int
	Seal       string // place of the machine's key
	TPMDevice  string

	DockerSocket, PodmanSocket string
	Containers                 docker.Permissions
	ImageDelay                 time.Duration // after which unneeded images are removed
	DeniedDrivers              []string
	DeniedEnv                  []string // variables that raw_exec keeps from tasks
	OCIRuntime                 string   // program of exec and java
	Chroot                     []string // PATH or PATH=PATH IN THE TASK
	Machines                   qemu.Permissions
	Consul                     consul.ClientConfig
	Vault                      vault.ClientConfig
}

// Add adds the flags to a command's.
func (f *Flags) Add(flags *pflag.FlagSet) {
	c := &f.Config
	flags.StringVar(&c.DataDir, "data-dir", "", "directory of the edge's data (required)")
	flags.StringSliceVar(&c.Hubs, "hub", nil, "hub to dial, HOST:PORT of its QUIC port; may be repeated or a list with commas")
	flags.StringVar(&c.TokenFile, "token-file", "", "file with the join token; needed until the edge has a certificate")
	flags.StringVar(&c.Name, "name", "", "name of this edge (default: the machine's host name)")
	flags.StringVar(&c.Datacenter, "datacenter", fleet.DefaultDatacenter, "datacenter of this edge")
	flags.StringVar(&c.Site, "site", "", "place where this edge stands, such as a shop or a ship; update blocks limit the unavailable allocations at a site (default: the datacenter)")
	flags.StringVar(&c.TimeZone, "time-zone", "", "time zone of update windows, such as Europe/Berlin (default: UTC)")
	flags.StringVar(&c.NodePool, "node-pool", fleet.DefaultPool, "node pool of this edge")
	flags.StringVar(&c.NodeClass, "node-class", "", "class of hardware, for constraints")
	flags.StringToStringVar(&c.Meta, "meta", nil, "KEY=VALUE for constraints and ${meta.KEY}; may be repeated")
	flags.StringVar(&f.Bind, "bind", "", "local address to dial hubs from (default: any)")
	flags.StringVar(&c.LocalGroup, "local-group", "", "unix group whose members may use 'skerry local' (default: only the agent's user)")
	flags.BoolVar(&c.RequireSiteCode, "require-site-code", false, "everybody but root needs a site code for 'skerry local': see 'skerry acl site-code create'")
	flags.StringVar(&c.DNS, "dns", "", "address, HOST:PORT, of a DNS server for NAME.service.skerry (default: no DNS server)")
	f.addKeyFlags(flags)
	f.Network.addNetworkFlags(flags)
	f.addConsulFlags(flags)
	f.addVaultFlags(flags)
	flags.DurationVar(&c.BackoffCap, "backoff-cap", time.Minute, "longest pause between attempts to reach a hub")
	flags.IntVar(&c.KeepTerminal, "keep-ended", 50, "number of ended allocations whose folders, with their logs, are kept")
	flags.IntVar(&f.StoreMB, "store-size", defaultStoreMB, "size in MB of the store for artifacts; at most a quarter of the disk is used")
	flags.Float64Var(&c.Collect.DiskPercent, "gc-disk-usage-threshold", diskspace.DefaultDiskPercent, "percent of the disk in use above which ended allocations, unneeded stored contents and unneeded images are removed")
	flags.Float64Var(&c.Collect.InodePercent, "gc-inode-usage-threshold", diskspace.DefaultInodePercent, "percent of the disk's inodes in use above which ended allocations and unneeded images are removed")
	flags.IntVar(&f.MinFreeMB, "min-free-disk", diskspace.DefaultMinFree>>20, "disk space in MB that must be free for new allocations to start; at most a twentieth of the disk is needed")
	flags.IntVar(&f.Reserved.CPU, "reserved-cpu", 0, "CPU in MHz that tasks may not use")
	flags.IntVar(&f.Reserved.MemoryMB, "reserved-memory", 0, "memory in MB that tasks may not use")
	flags.IntVar(&f.Reserved.DiskMB, "reserved-disk", 0, "disk in MB that tasks may not use")
	flags.IntVar(&f.TotalCPU, "total-cpu", 0, "CPU of this machine in MHz, if the detected value is wrong")
	flags.IntVar(&f.TotalMemMB, "total-memory", 0, "memory of this machine in MB, if the detected value is wrong")
	f.addContainerFlags(flags)
	flags.StringVar(&f.BootID, "boot-id", "", "boot id in place of the kernel's: reboots a machine in tests")
	console.HideFlag(flags, "boot-id")
	f.addDriverFlags(flags)
	f.Log.AddLogFlags(flags)
}

// addContainerFlags adds the flags of the drivers docker and podman.
func (f *Flags) addContainerFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.DockerSocket, "docker-socket", docker.DefaultDockerSocket, "socket of the Docker daemon")
	flags.StringVar(&f.PodmanSocket, "podman-socket", docker.DefaultPodmanSocket, "socket of Podman's API service")
	flags.DurationVar(&f.ImageDelay, "docker-image-delay", defaultImageDelay, "time after which an image that this edge pulled and no allocation needs is removed; 0: only when the disk is short")
	flags.BoolVar(&f.Containers.AllowPrivileged, "docker-allow-privileged", false, "let docker and podman tasks be privileged or share the machine's PID, IPC, UTS and user namespaces")
	flags.BoolVar(&f.Containers.AllowVolumes, "docker-volumes", false, "let docker and podman tasks mount any folder of this machine")
	flags.StringSliceVar(&f.Containers.AllowCaps, "docker-allow-caps", docker.DefaultCapabilities, "capabilities that cap_add of docker and podman tasks may name; ALL permits any")
}

// addConsulFlags adds the flags of the Consul agent beside this edge.
func (f *Flags) addConsulFlags(flags *pflag.FlagSet) {
	c := &f.Consul
	flags.StringVar(&c.Address, "consul-address", "", "Consul agent beside this edge, such as 127.0.0.1:8500, that gets services with provider = \"consul\" (default: none)")
	flags.StringVar(&c.TokenFile, "consul-token-file", "", "file with the token for the Consul agent")
	flags.StringVar(&c.TaskMethod, "consul-task-auth-method", "", "auth method of Consul by which tasks log in (default: "+consul.DefaultAuthMethod+")")
	flags.StringVar(&c.ServiceMethod, "consul-service-auth-method", "", "auth method of Consul by which services with an identity log in (default: "+consul.DefaultAuthMethod+")")
	flags.StringVar(&c.CAFile, "consul-ca-file", "", "certificates of the CA of a Consul agent with https:// (default: the system's)")
	flags.StringVar(&c.CertFile, "consul-cert-file", "", "certificate for a Consul agent that asks for one")
	flags.StringVar(&c.KeyFile, "consul-key-file", "", "key of --consul-cert-file")
}

// consulClient returns the client of the Consul agent, and the function that reads its attributes; nil: there is none.
func (f *Flags) consulClient() (*consul.Client, func(context.Context) map[string]string, error) {
	if f.Consul.Address == "" {
		if f.Consul != (consul.ClientConfig{}) {
			return nil, nil, fleet.Errorf(fleet.CodeInvalid, "the Consul agent has no address").WithHint("add --consul-address, such as 127.0.0.1:8500")
		}
		return nil, nil, nil
	}
	client, err := consul.NewClient(f.Consul)
	if err != nil {
		return nil, nil, err
	}
	return client, client.Attributes, nil
}

// addVaultFlags adds the flags of the Vault in which tasks log in.
func (f *Flags) addVaultFlags(flags *pflag.FlagSet) {
	c := &f.Vault
	flags.StringVar(&c.Address, "vault-address", "", "Vault in which tasks with a vault block log in, such as https://vault.example.com:8200 (default: none)")
	flags.StringVar(&c.Namespace, "vault-namespace", "", "namespace of Vault for tasks whose vault block has none")
	flags.StringVar(&c.JWTPath, "vault-jwt-path", "", "where the JWT auth method of Vault is mounted (default: "+vault.DefaultJWTPath+")")
	flags.StringVar(&c.Role, "vault-role", "", "role of the JWT auth method for tasks whose vault block has none (default: the method's default role)")
	flags.StringVar(&c.CAFile, "vault-ca-file", "", "certificates of the CA of Vault (default: the system's)")
	flags.StringVar(&c.CertFile, "vault-cert-file", "", "certificate for a Vault that asks for one")
	flags.StringVar(&c.KeyFile, "vault-key-file", "", "key of --vault-cert-file")
	flags.StringVar(&c.ServerName, "vault-tls-server-name", "", "name in Vault's certificate (default: that of the address)")
}

// vaultClient returns the client of Vault, and the function that reads its attributes; nil: there is none.
func (f *Flags) vaultClient() (*vault.Client, func(context.Context) map[string]string, error) {
	if f.Vault.Address == "" {
		if f.Vault != (vault.ClientConfig{}) {
			return nil, nil, fleet.Errorf(fleet.CodeInvalid, "the Vault has no address").WithHint("add --vault-address, such as https://vault.example.com:8200")
		}
		return nil, nil, nil
	}
	client, err := vault.NewClient(f.Vault)
	if err != nil {
		return nil, nil, err
	}
	return client, client.Attributes, nil
}

// Command is the daemon's command, named use.
func Command(use, version string) *cobra.Command {
	var f Flags
	cmd := &cobra.Command{
		Use: use, Short: "Run an edge: the agent on remote hardware", Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return console.CompleteFlags(cmd.Flags(), os.Environ()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.Run(cmd.Context(), version)
		},
	}
	f.Add(cmd.Flags())
	console.AddConfigFlag(cmd.Flags())
	cmd.AddCommand(keyCommand())
	return cmd
}

// Run runs the edge until ctx ends.
func (f *Flags) Run(ctx context.Context, version string) error {
	log, err := f.Log.NewLog()
	if err != nil {
		return err
	}
	if len(f.Config.Hubs) == 0 {
		log.Warn("no hub is named: only hubs that the journal knows are dialed", "flag", "--hub")
	}
	cfg, err := f.EdgeConfig(log, version)
	if err != nil {
		return err
	}
	e, err := edge.Open(cfg)
	if err != nil {
		return err
	}
	started := time.AfterFunc(startTime, saveMemory)
	defer started.Stop()
	return errors.Join(e.Run(ctx), e.Close())
}

// EdgeConfig makes the configuration that the flags ask for, with the drivers and the
// devices of this release.
func (f *Flags) EdgeConfig(log *slog.Logger, version string) (cfg edge.Config, err error) {
	cfg = f.Config
	if cfg.DataDir == "" {
		return cfg, fleet.Errorf(fleet.CodeInvalid, "an edge needs a data directory").WithHint("name it with --data-dir")
	}
	cfg.Version, cfg.Log, cfg.BootID = version, log, fleet.BootID(f.BootID)
	if cfg.KeyPlace, cfg.KeyKeepers, err = f.machineKey(); err != nil {
		return cfg, err
	}
	if f.Bind != "" {
		addr := net.ParseIP(f.Bind)
		if addr == nil {
			return cfg, fleet.Errorf(fleet.CodeInvalid, "bind address %q: not an IP address", f.Bind)
		}
		cfg.ListenPacket = func(context.Context) (net.PacketConn, error) {
			return net.ListenUDP("udp", &net.UDPAddr{IP: addr})
		}
	}
	network, err := f.Network.networkOfNode()
	if err != nil {
		return cfg, err
	}
	chroot, err := chrootFolders(f.Chroot)
	if err != nil {
		return cfg, err
	}
	if err := checkDenylist(f.DeniedDrivers); err != nil {
		return cfg, err
	}
	var node atomic.Pointer[func() fleet.Node] // of the machine; set before the first task starts
	answers := programs.Open(filepath.Join(cfg.DataDir, programsFile))
	known, err := builtin.New(builtin.Config{
		BootID: f.BootID, DataDir: cfg.DataDir, DockerSocket: f.DockerSocket, PodmanSocket: f.PodmanSocket,
		Containers: f.Containers, Machines: f.Machines, Log: log, DeniedEnv: f.DeniedEnv,
		Isolation: oci.Config{Runtime: f.OCIRuntime, Chroot: chroot}, Programs: answers,
		TotalMHz: func() int {
			if read := node.Load(); read != nil {
				return (*read)().Resources.CPU
			}
			return 0
		},
	})
	if err != nil {
		return cfg, err
	}
	if err := f.fillSpace(&cfg); err != nil {
		return cfg, err
	}
	networks, err := f.Network.newHook(cfg.DataDir, cfg.BootID, known, answers, log)
	if err != nil {
		return cfg, err
	}
	secrets, err := newSecretsHook(cfg.DataDir, cfg.BootID, log)
	if err != nil {
		return cfg, err
	}
	var consulAttributes func(context.Context) map[string]string
	if cfg.Consul, consulAttributes, err = f.consulClient(); err != nil {
		return cfg, err
	}
	var vaultAttributes func(context.Context) map[string]string
	if cfg.Vault, vaultAttributes, err = f.vaultClient(); err != nil {
		return cfg, err
	}
	kinds := deviceKinds()
	cfg.Runners = func(m edge.Machine) (contract.New, error) {
		node.Store(&m.Node)
		removeOldNetworks(m, networks)
		removeOldSecrets(secrets, m.Ended, log)
		return newRunners(m, known, kinds, secrets, networks, f.DeniedDrivers)
	}
	cfg.KeptTemplates = templates.Kept
	cfg.Contents = func(m edge.Machine) prefetch.Contents {
		return artifacts.NewPrefetcher(newFetcher(m), m.Node, known)
	}
	cfg.RemoveOrphans = func(ctx context.Context, keep func(fleet.AllocID) bool) {
		removeOrphans(ctx, known, keep, log)
		removeOldSecrets(secrets, func(id fleet.AllocID) bool { return !keep(id) }, log)
	}
	images := &imageCollector{known: known, delay: f.ImageDelay, failures: map[string]string{}, log: log}
	cfg.CollectImages = images.collectImages
	cfg.Describe = func(configured fleet.Node) (edge.Describer, error) {
		return fingerprint.New(fingerprint.Config{
			Node: f.describeNode(configured, network), DataDir: cfg.DataDir, Drivers: known, Denied: f.DeniedDrivers,
			Programs: answers, Finders: kinds, Address: f.advertisedAddress, Networks: networks.Attributes, Secrets: secrets.Attributes, Consul: consulAttributes, Vault: vaultAttributes, Log: log,
		})
	}
	return cfg, nil
}

// programsFile is the file in the data directory with what programs of the machine answered.
const programsFile = "programs.json"

// fillSpace fills in what the flags say of the space on the disk, and checks it.
func (f *Flags) fillSpace(cfg *edge.Config) error {
	if f.StoreMB < 0 {
		return fleet.Errorf(fleet.CodeInvalid, "--store-size may not be negative: %d", f.StoreMB)
	}
	cfg.StoreBytes = int64(cmp.Or(f.StoreMB, defaultStoreMB)) << 20
	if f.MinFreeMB < 0 {
		return fleet.Errorf(fleet.CodeInvalid, "--min-free-disk may not be negative: %d", f.MinFreeMB)
	}
	if cfg.Collect.MinFree = int64(f.MinFreeMB) << 20; f.MinFreeMB == 0 {
		cfg.Collect.MinFree = -1
	}
	if f.ImageDelay < 0 {
		return fleet.Errorf(fleet.CodeInvalid, "--docker-image-delay may not be negative: %v", f.ImageDelay)
	}
	return nil
}

// describeNode adds to the configured node what the flags say of its resources and networks.
func (f *Flags) describeNode(configured, network fleet.Node) fleet.Node {
	configured.Reserved, configured.HostVolumes = f.Reserved, network.HostVolumes
	configured.HostNetworks, configured.ReservedPorts = network.HostNetworks, network.ReservedPorts
	configured.MinDynamicPort, configured.MaxDynamicPort = network.MinDynamicPort, network.MaxDynamicPort
	configured.Resources = fleet.Resources{CPU: f.TotalCPU, MemoryMB: f.TotalMemMB}
	return configured
}

// advertisedAddress is the one by which others reach what runs on this edge.
func (f *Flags) advertisedAddress() string {
	if f.Network.Advertise != "" {
		return f.Network.Advertise
	}
	if bind := net.ParseIP(f.Bind); bind != nil && !bind.IsUnspecified() {
		return bind.String()
	}
	return fingerprint.Address(f.Config.Hubs)
}

// newRunners makes runners that keep their folders below the edge's data directory.
func newRunners(m edge.Machine, known map[string]drivers.Driver, kinds []devices.Finder, secrets *secretdirs.Hook, networks *network.Hook, denied []string) (contract.New, error) {
	dirs := runner.Dirs{Allocs: filepath.Join(m.DataDir, "allocs"), State: filepath.Join(m.DataDir, "tasks")}
	fetch, err := artifacts.NewHook(newFetcher(m), dirs.State)
	if err != nil {
		return nil, err
	}
	gear, err := hardware.New(hardware.Config{Finders: kinds, Reporter: m.Devices, Log: m.Log})
	if err != nil {
		return nil, err
	}
	mounts, err := volumes.New(volumes.Config{
		Drivers: known, Log: m.Log,
		Locks: volumes.Locks{Dir: volumes.DefaultLockDir(), DataDir: m.DataDir, BootID: m.BootID, Ended: m.Ended},
	})
	if err != nil {
		return nil, err
	}
	factory := &runner.Factory{
		Drivers: known, Node: m.Node, BootID: m.BootID, Mono: m.Mono, Now: m.Now, Log: m.Log, Dirs: dirs, MemoryDir: secrets.MemoryDir,
		Hooks: []runner.Hook{
			runner.DriverDenylist(denied), secrets, networks, mounts, gear, cores.New(known, m.Log), fetch,
			&files.Hook{Keeper: m.Identities, Log: m.Log.With("component", "identities")},
		},
	}
	factory.Hooks = append(factory.Hooks, serverHooks(m)...)
	factory.Hooks = append(factory.Hooks, runner.DriverHealth{Drivers: known}, runner.DriverAddress{Drivers: known})
	return factory.NewRunner, nil
}

// serverHooks returns the hooks that give tasks their tokens of Vault and Consul, and render templates with them, in that order.
func serverHooks(m edge.Machine) []runner.Hook {
	ofVault := tokens.ForVault(m.Vault, m.Identities, m.Log.With("component", "vault"))
	ofConsul := tokens.ForConsul(m.Consul, m.Identities, m.Log.With("component", "consul"))
	render := templates.NewHook(templates.Config{
		Services: m.Services, Variable: m.Variable, Secret: secretsOf(m.Vault), Pairs: pairsOf(m.Consul), Key: m.Key, Away: m.Away,
		Now: m.Now, Jitter: rand.Float64, Log: m.Log.With("component", "templates"),
		KeepValid: func(ctx context.Context, p *runner.Preparation) error {
			return errors.Join(ofVault.KeepValid(ctx, p), ofConsul.KeepValid(ctx, p))
		},
	})
	return []runner.Hook{ofVault, ofConsul, render, &tokens.Environment{Vault: m.Vault, Consul: m.Consul}}
}

// secretsOf returns what reads secrets of Vault for tasks; nil: this edge has no Vault.
func secretsOf(k *vault.Keeper) func(context.Context, fleet.AllocID, *fleet.Task, string, bool) (template.Secret, error) {
	if k == nil {
		return nil
	}
	return func(ctx context.Context, alloc fleet.AllocID, t *fleet.Task, path string, list bool) (template.Secret, error) {
		return k.Secret(ctx, k.Client().Task(alloc, t.Name, t.Vault), path, list)
	}
}

// pairsOf returns what reads keys of Consul for tasks; nil: this edge has no Consul in which tasks log in.
func pairsOf(k *consul.Keeper) func(context.Context, fleet.AllocID, *fleet.Task, template.KeyQuery) ([]template.Pair, error) {
	if k == nil {
		return nil
	}
	return func(ctx context.Context, alloc fleet.AllocID, t *fleet.Task, q template.KeyQuery) ([]template.Pair, error) {
		return k.Pairs(ctx, k.Client().Task(alloc, t.Name), q)
	}
}

// newFetcher makes what fetches artifacts into the edge's store.
func newFetcher(m edge.Machine) *artifacts.Fetcher {
	return artifacts.NewFetcher(artifacts.Config{Store: m.Store, Hidden: m.DataDir, Now: m.Now, Log: m.Log.With("component", "artifacts")})
}

// removeOrphans lets each driver remove the tasks of allocations that keep does not know.
func removeOrphans(ctx context.Context, known map[string]drivers.Driver, keep func(fleet.AllocID) bool, log *slog.Logger) {
	for name, d := range known {
		remover, ok := d.(drivers.OrphanRemover)
		if !ok {
			continue
		}
		removed, err := remover.RemoveOrphans(ctx, keep)
		if err != nil && ctx.Err() == nil {
			log.Warn("tasks of unknown allocations not removed: trying again", "driver", name, "error", err)
		}
		for _, task := range removed {
			log.Warn("task of an unknown allocation removed", "driver", name, "task", task)
		}
	}
}
