package edge

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/edge/allocs"
	"skerry/edge/audit"
	"skerry/edge/checks"
	"skerry/edge/consul"
	"skerry/edge/diskspace"
	"skerry/edge/hostvolumes"
	"skerry/edge/identities"
	"skerry/edge/journal"
	"skerry/edge/link"
	"skerry/edge/local"
	"skerry/edge/machinekey"
	"skerry/edge/names"
	"skerry/edge/neighbours"
	"skerry/edge/prefetch"
	"skerry/edge/sitecodes"
	"skerry/edge/store"
	"skerry/edge/variables"
	"skerry/edge/vault"
	"skerry/fleet"
	"skerry/fleet/cron"
	"skerry/internal/datadir"
	"skerry/internal/logtap"
	"skerry/syncproto"
	"skerry/syncproto/identity"
)

// dataVersion is the version of the data directory's layout. Newer versions are refused.
const dataVersion = 1

// defaultReserve is enough for ten tasks to restart a few times and for some days of rows.
const defaultReserve = 8 << 20

// Names below the data directory.
const (
	journalFile = "journal.db"
	socketFile  = "local.sock"
	allocsDir   = "allocs"
	volumesDir  = "host_volumes"
	tasksDir    = "tasks"
	storeDir    = "store"
)

// Edge is the edge daemon: it runs the allocations of one machine. Open makes it, Run works, Close releases it.
type Edge struct {
	// Set once, by Open.
	cfg        Config
	log        *slog.Logger
	tap        *logtap.Monitor // the log goes through it
	started    time.Time       // when Open was called
	dir        *datadir.Dir
	node       fleet.NodeID
	instance   fleet.InstanceID // of this process
	boot       fleet.BootID
	token      identity.Token // only without a certificate
	journal    *journal.Journal
	describer  Describer
	store      *store.Store // nil: none is configured
	checks     *checks.Checks
	allocs     *allocs.Allocs
	volumes    *hostvolumes.Keeper
	space      *diskspace.Keeper
	prefetch   *prefetch.Keeper
	machine    *machinekey.Key
	keyStore   *machinekey.Store
	variables  *variables.Keeper
	identities *identities.Keeper
	siteCodes  *sitecodes.Keeper
	neighbours *neighbours.Keeper
	audit      *audit.Log
	server     *local.Server
	names      *names.Server  // nil: no DNS queries are answered
	consul     *consul.Syncer // nil: no Consul agent is configured
	vault      *vault.Keeper  // nil: no Vault is configured
	// consulLogins has the Consul tokens of tasks and services; nil: no Consul is configured in which they can log in.
	consulLogins *consul.Keeper

	renewals   chan struct{}   // capacity 1; wakes keepCertificate
	answerTime link.AnswerTime // of hubs, in enrolments and on the link

	saving sync.Mutex // held while files of the identity are written, and before mu

	mu          sync.Mutex
	identity    *identity.Identity  // nil: not enrolled yet
	heldCAs     string              // names of the CAs of identity
	accepted    []*x509.Certificate // CAs of which hubs are to be accepted, as a hub said; the first one signs; nil: none did
	link        *link.Link          // nil: not enrolled yet
	enrolErr    error               // error of the last attempt to enrol
	renewErr    error               // error of the last attempt to renew the certificate
	certRefused bool                // a hub said that the certificate ended too long ago
	caEnded     bool                // a hub said that the certificate's CA is accepted no longer
	desired     fleet.Index         // newest journaled index
}

// Open checks cfg, locks the data directory and opens the journal. It needs no network. An error that
// needs a person is a *fleet.Error: the directory is not writable, in use, full or of a newer version,
// or the join token is missing or malformed.
func Open(cfg Config) (*Edge, error) {
	started := time.Now()
	cfg, err := cfg.checkAndFillDefaults()
	if err != nil {
		return nil, err
	}
	dir, err := datadir.Open(cfg.DataDir, datadir.Kind{
		Owner: "an edge", Version: dataVersion, Reserve: cfg.Reserve, Free: cfg.FreeSpace, Step: cfg.Step,
	})
	if err != nil {
		return nil, err
	}
	tap := logtap.New()
	cfg.Log = tap.WrapLogger(cfg.Log)
	e := &Edge{cfg: cfg, tap: tap, log: cfg.Log, started: started, dir: dir, instance: fleet.InstanceID(fleet.NewUUID(nil)), renewals: make(chan struct{}, 1)}
	for _, open := range []func() error{e.makePrivate, e.openIdentity, e.openJournal, e.openComponents} {
		if err := open(); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	return e, nil
}

// checkAndFillDefaults returns the configuration with its defaults, or an error if it is invalid.
func (c Config) checkAndFillDefaults() (Config, error) {
	if c.DataDir == "" || c.Runners == nil || c.Describe == nil {
		return c, fleet.Errorf(fleet.CodeInvalid, "open edge: a data directory, a factory of runners and a describer of the machine are required")
	}
	for _, hub := range c.Hubs {
		if _, _, err := net.SplitHostPort(hub); err != nil {
			return c, fleet.Errorf(fleet.CodeInvalid, "open edge: the hub %q is not HOST:PORT", hub)
		}
	}
	if err := cron.CheckZone(c.TimeZone); err != nil {
		return c, fmt.Errorf("open edge: time zone of the site: %w", err)
	}
	if c.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("open edge: no name is configured, and the host name cannot be read: %w", err)
		}
		c.Name = name
	}
	c.Datacenter = cmp.Or(c.Datacenter, fleet.DefaultDatacenter)
	c.NodePool = cmp.Or(c.NodePool, fleet.DefaultPool)
	c.Reserve = cmp.Or(c.Reserve, defaultReserve)
	if err := c.checkAndFillSpace(); err != nil {
		return c, err
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.ListenPacket == nil {
		c.ListenPacket = func(context.Context) (net.PacketConn, error) { return net.ListenUDP("udp", nil) }
	}
	if c.ListenLocal == nil {
		c.ListenLocal = local.Listen
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c, nil
}

// openJournal opens the journal and sets e.boot and e.journal. The clock is that of the machine, or of the
// configured boot.
func (e *Edge) openJournal() error {
	boot, mono, relative, err := bootClock()
	if e.cfg.BootID != "" {
		// The clock of a simulated boot starts with it.
		boot, relative, err = e.cfg.BootID, true, nil
		start := time.Now()
		mono = func() time.Duration { return time.Since(start) }
		if e.cfg.Mono != nil {
			mono, relative = e.cfg.Mono, false
		}
	}
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	e.boot = boot
	e.journal, err = journal.Open(journal.Config{
		Path: e.dir.File(journalFile), Expected: e.isEnrolled(),
		BootID: boot, Mono: mono, MonoRelative: relative, Now: e.cfg.Now,
		MaxBytes: e.cfg.JournalMaxBytes, FreeReserve: e.dir.ReleaseReserve, Step: e.cfg.Step,
		Log: e.log.With("component", "journal"),
	})
	return err
}

// openComponents makes the components that use the journal, and opens the local API's socket. It starts no
// goroutine.
func (e *Edge) openComponents() error {
	want, err := e.journal.Desired(context.Background())
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	e.desired = want.Index
	e.describer, err = e.cfg.Describe(fleet.Node{
		ID: e.node, Name: e.cfg.Name, Datacenter: e.cfg.Datacenter, Site: e.cfg.Site, TimeZone: e.cfg.TimeZone, NodePool: e.cfg.NodePool,
		NodeClass: e.cfg.NodeClass, Meta: e.cfg.Meta, Version: e.cfg.Version,
	})
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	if _, err := syncproto.EncodeMessage(syncproto.Heartbeat{Node: new(e.describer.Node())}); err != nil {
		return fmt.Errorf("open edge: encode this node for the hubs: %w", fleet.AsError(err).WithHint("shorten the --meta values"))
	}
	for _, open := range []func() error{e.openStore, e.openVolumes, e.openMachineKey, e.openVariables, e.openIdentities, e.openVault, e.openConsulLogins, e.openSiteCodes, e.openNeighbours, e.openAudit} {
		if err := open(); err != nil {
			return err
		}
	}
	machine := Machine{
		DataDir: e.dir.File(), BootID: e.boot, Mono: e.journal.Mono, Away: e.journal.AwayAtMost, Now: e.cfg.Now, Node: e.nodeWithVolumes, Store: e.store, Log: e.log,
		Ended: e.hasEnded, Services: e.Services, Devices: missingDevices{e}, Key: e.machine, Variable: e.variables.Variable, Identities: e.identities, Vault: e.vault, Consul: e.consulLogins,
	}
	newRunner, err := e.cfg.Runners(machine)
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	if err := e.openPrefetch(machine); err != nil {
		return err
	}
	e.checks, err = checks.New(checks.Config{
		Node: e.describer.Node, Mono: e.journal.Mono, Now: e.cfg.Now, Dial: e.cfg.DialCheck, Journal: e.journal, Log: e.log.With("component", "checks"),
		Changed: func(fleet.AllocID) {
			e.allocs.TriggerReconcile()
			if e.consul != nil {
				e.consul.Wake()
			}
		},
		Exec: func(ctx context.Context, id fleet.AllocID, task string, x fleet.Exec) (int, error) {
			return e.allocs.Exec(ctx, id, task, x)
		},
		Unhealthy: func(ctx context.Context, id fleet.AllocID, task, why string) error {
			return e.allocs.Unhealthy(ctx, id, task, why)
		},
	})
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	e.allocs, err = allocs.New(allocs.Config{
		Journal: e.journal, NewRunner: newRunner,
		BootID: e.boot, Dir: e.dir.File(allocsDir), TasksDir: e.dir.File(tasksDir), KeepEnded: e.cfg.KeepTerminal, TimeZone: e.cfg.TimeZone,
		Checks: e.checks, WhyFull: func() string { return e.space.WhyFull() }, Now: e.cfg.Now, Log: e.log.With("component", "allocs"),
	})
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	if err := e.openSpace(); err != nil {
		return err
	}
	if err := e.openConsul(); err != nil {
		return err
	}
	socket, err := e.cfg.ListenLocal(e.Socket())
	if err != nil {
		return err
	}
	if e.cfg.LocalGroup != "" {
		if err := local.Share(e.Socket(), e.cfg.LocalGroup); err != nil {
			return errors.Join(err, socket.Close())
		}
	}
	if e.cfg.DNS != "" {
		if e.names, err = names.Listen(e.cfg.DNS, e, e.log.With("component", "names")); err != nil {
			return errors.Join(fmt.Errorf("open edge: %w", err), socket.Close())
		}
	}
	e.server = local.New(e.Socket(), socket, agent{e}, e.log.With("component", "local"))
	return nil
}

// openVolumes opens the keeper of the dynamic host volumes.
func (e *Edge) openVolumes() (err error) {
	e.volumes, err = hostvolumes.Open(hostvolumes.Config{
		Journal: e.journal, Dir: e.dir.File(volumesDir), Log: e.log.With("component", "volumes"),
		Used: func(ctx context.Context, namespace, name string) (bool, error) {
			return e.allocs.UsesVolume(ctx, namespace, name)
		},
	})
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	return nil
}

// openPrefetch opens the keeper of what is fetched before rollouts.
func (e *Edge) openPrefetch(m Machine) (err error) {
	cfg := prefetch.Config{Journal: e.journal, Log: e.log.With("component", "prefetch")}
	if e.cfg.Contents != nil && e.store != nil {
		cfg.Contents = e.cfg.Contents(m)
	}
	if e.prefetch, err = prefetch.Open(cfg); err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	return nil
}

// nodeWithVolumes returns this machine's node with the dynamic host volumes that its tasks may use.
func (e *Edge) nodeWithVolumes() fleet.Node {
	n := e.describer.Node()
	dynamic := e.volumes.Offered()
	if len(dynamic) == 0 {
		return n
	}
	maps.Copy(dynamic, n.HostVolumes) // those that the edge is configured with come first
	n.HostVolumes = dynamic
	return n
}

// Run recovers and starts the allocations of the journal, enrols if there is no certificate, and runs the link.
// It returns nil when ctx ends, and tasks go on; or the first error that needs a person.
func (e *Edge) Run(ctx context.Context) error {
	e.recordAgentStart(ctx)
	if _, err := e.identities.RenewOffline(ctx); err != nil {
		e.log.Warn("identities of tasks not renewed at the start; trying again", "error", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return e.allocs.Run(ctx) })
	g.Go(func() error { e.reportRecovered(ctx); return nil })
	g.Go(func() error { return e.volumes.Run(ctx) })
	g.Go(func() error { return e.prefetch.Run(ctx) })
	g.Go(func() error { return e.keyStore.Run(ctx) })
	g.Go(func() error { return e.variables.Run(ctx) })
	g.Go(func() error { return e.identities.Run(ctx) })
	g.Go(func() error { return e.neighbours.Run(ctx) })
	g.Go(func() error { return e.audit.Run(ctx) })
	g.Go(func() error { return e.server.Run(ctx) })
	if e.names != nil {
		g.Go(func() error { return e.names.Run(ctx) })
	}
	if e.consul != nil {
		g.Go(func() error { e.consul.Run(ctx); return nil })
	}
	if e.consulLogins != nil {
		g.Go(func() error { return e.consulLogins.Run(ctx) })
	}
	if e.vault != nil {
		g.Go(func() error { return e.vault.Run(ctx) })
	}
	g.Go(func() error { return e.describer.Run(ctx) })
	g.Go(func() error { e.followMachine(ctx); return nil })
	g.Go(func() error { e.removeOrphans(ctx); return nil })
	g.Go(func() error { e.collectImages(ctx); return nil })
	g.Go(func() error { e.dir.WatchSpace(ctx, e.reportSpace); return nil })
	g.Go(func() error { e.endStart(ctx); return nil })
	g.Go(func() error { e.space.Run(ctx); return nil })
	g.Go(func() error { return e.keepLink(ctx) })
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// reportSpace logs that the disk is full, or no longer full.
func (e *Edge) reportSpace(s datadir.Space) {
	if s.Full() {
		e.log.Error("the disk is full: free some space; starts and the journal use the reserve",
			"free_kib", s.Free>>10, "reserve_kib", s.Reserve>>10, "reserved_kib", s.Reserved>>10)
		return
	}
	e.log.Info("the disk has free space again: the reserve is filled", "free_kib", s.Free>>10, "reserve_kib", s.Reserve>>10)
}

// followMachine makes the allocations reconcile whenever this machine's node changes, because checks use its
// address, or new allocations may start again. It records changes of the drivers' health. It returns when ctx ends.
func (e *Edge) followMachine(ctx context.Context) {
	changed, space := e.describer.Changed(), e.space.Changed()
	e.allocs.TriggerReconcile() // the node may have changed since the start
	paused := e.recordDriverHealth(ctx)
	for {
		select {
		case <-changed:
			changed = e.describer.Changed()
			e.allocs.TriggerReconcile()
			if paused == nil {
				paused = e.recordDriverHealth(ctx)
			}
		case <-paused:
			paused = e.recordDriverHealth(ctx)
		case <-space:
			space = e.space.Changed()
			e.allocs.TriggerReconcile()
		case <-ctx.Done():
			return
		}
	}
}

// recordAgentStart reads this machine's node, and records in a row that the agent started. Errors are only
// logged, because tasks must not wait for it.
func (e *Edge) recordAgentStart(ctx context.Context) {
	for _, q := range e.journal.Quarantined() {
		e.log.Warn("a damaged journal was set aside", "path", q.Path, "reason", q.Reason, "salvaged", q.Salvaged, "lost", q.Lost)
	}
	if _, err := e.describer.Read(ctx); err != nil {
		e.log.Warn("the machine's description is incomplete", "error", err)
	}
	row := fleet.Transition{Kind: fleet.TransitionAgent, Message: "agent started, version " + e.cfg.Version}
	if err := e.journal.Record(ctx, row); err != nil {
		e.log.Error("start of the agent not recorded", "error", err)
	}
	if key := e.keyStore.Status(); key.Error != "" {
		row.Message = "key of secrets is not kept as it should be: " + key.Error
		if err := e.journal.Record(ctx, row); err != nil {
			e.log.Error("state of the machine's key not recorded", "error", err)
		}
	}
	h := e.journal.Head()
	e.log.Info("edge started", "node_id", string(e.node), "name", e.cfg.Name, "boot_id", string(e.boot),
		"enrolled", e.isEnrolled(), "last_seq", uint64(h.Last), "unacknowledged", uint64(h.Last-h.Acknowledged))
}

// reportRecovered waits until the tasks of the journal run or have ended, and logs how long that took.
func (e *Edge) reportRecovered(ctx context.Context) {
	select {
	case <-e.allocs.Recovered():
		running := 0
		for _, s := range e.journal.States() {
			if s.ClientStatus == fleet.ClientRunning {
				running++
			}
		}
		e.log.Info("tasks running", "after", time.Since(e.started).Round(time.Millisecond), "allocations", running)
	case <-ctx.Done():
	}
}

// keepLink enrols the edge if it has no certificate, and then runs the link and the renewal of the certificate
// until ctx ends.
func (e *Edge) keepLink(ctx context.Context) error {
	if !e.isEnrolled() {
		if err := e.enrolWithRetry(ctx); err != nil {
			return err
		}
	}
	l, err := link.New(link.Config{
		Node: e.node, Boot: e.boot, Instance: e.instance, Agent: e.cfg.Version, Hubs: e.cfg.Hubs,
		Journal: e.journal, Edge: linkEdge{e},
		Socket: e.cfg.ListenPacket, TLS: e.clientTLS,
		Silence: e.allocs.MaxSilence, Uptime: e.journal.Mono, Now: e.cfg.Now, BackoffCap: e.cfg.BackoffCap, AnswerTime: &e.answerTime,
		Answered: e.noteHeartbeatAck, Ended: e.noteSessionEnd, AcceptCAs: e.acceptCAs, NoteIndex: e.noteIndex,
		FenceChanged: e.allocs.TriggerReconcile, // a fence holds back starts
		Received:     e.cfg.Received,
		Log:          e.log.With("component", "link"),
	})
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.link = l
	e.mu.Unlock()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.Run(ctx) })
	g.Go(func() error { return e.keepCertificate(ctx) })
	g.Go(func() error {
		for {
			changed, space, hushed := e.describer.Changed(), e.space.Changed(), e.allocs.SilenceShortened()
			select {
			case <-changed:
				l.RequestHeartbeat()
			case <-space:
				l.RequestHeartbeat()
			case <-hushed:
				l.RequestHeartbeat()
			case <-ctx.Done():
				return nil
			}
		}
	})
	return g.Wait()
}

// Close releases the socket, the journal and the data directory. Run must have returned. Tasks go on.
func (e *Edge) Close() error {
	var errs []error
	if e.server != nil {
		errs = append(errs, e.server.Close())
	}
	if e.names != nil {
		errs = append(errs, e.names.Close())
	}
	if e.audit != nil {
		errs = append(errs, e.audit.Close())
	}
	if e.journal != nil {
		errs = append(errs, e.journal.Close())
	}
	return errors.Join(append(errs, e.dir.Close())...)
}

// NodeID returns the id of this machine's node, which the first Open draws.
func (e *Edge) NodeID() fleet.NodeID { return e.node }

// Recovered returns a channel that is closed when all tasks of the journal run or have ended.
func (e *Edge) Recovered() <-chan struct{} { return e.allocs.Recovered() }

// Socket returns the path of the local API's unix socket, DATA/local.sock.
func (e *Edge) Socket() string { return e.dir.File(socketFile) }
