// Package api serves a hub's HTTP API: Nomad's /v1 in its shapes (field names,
// status codes, the X-Nomad-Index header, blocking queries), and what Skerry
// adds to it (an allocation's history, the state of the fleet).
//
// hub.Open gives it what it needs and serves the Handler. Reads are answered
// from this hub's own state after it has caught up with the leader (not with
// ?stale), writes go through the replicated log. It starts no goroutine of its
// own beyond the server's, and persists nothing.
package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/state"
	"skerry/internal/logtap"
	"skerry/syncproto"
)

// Bounds of a request.
const (
	// MaxBody is the largest request body taken, in bytes.
	MaxBody = 4 << 20
	// DefaultWait and MaxWait bound a blocking query.
	DefaultWait = 5 * time.Minute
	MaxWait     = 10 * time.Minute
)

// Cluster is what the API asks about the hubs and their agreement.
type Cluster interface {
	state.Applier // through the leader
	// CatchUp returns when this hub's state holds everything that was committed
	// before the call, as the leader knows it.
	CatchUp(ctx context.Context) error
	// Leader is who leads, as this hub knows it.
	Leader() (fleet.HubID, bool)
	// Members are the hubs that gossip knows, this one included.
	Members() []Member
	// Peers are the hubs of the newest Raft configuration that this one knows, and
	// how far its own log goes.
	Peers() ([]state.HubPeer, fleet.Index, error)
	// RemovePeer puts a hub out of the Raft configuration and of those that edges dial.
	RemovePeer(ctx context.Context, hub fleet.HubID) error
	// TransferLead has another hub lead: that one, or with none whichever is furthest.
	TransferLead(ctx context.Context, hub fleet.HubID) error
	// Standing asks a hub how far it is.
	Standing(ctx context.Context, hub fleet.HubID) (Standing, error)
	// Restore replaces the state by a snapshot of size bytes with the SHA-256 sum, on
	// all hubs, and returns the entry that did it. What was checked before (see
	// state.View.TryRestore) is checked again when it is applied.
	Restore(ctx context.Context, snapshot io.Reader, size int64, sum []byte) (fleet.Index, error)
	// LastContact is when the leader last heard of each node, since it leads.
	LastContact(ctx context.Context) (map[fleet.NodeID]time.Time, error)
	// Self describes this hub: its configuration and figures, for people.
	Self() Self
}

// Member is one hub as gossip sees it.
type Member struct {
	ID     fleet.HubID
	Addr   string // host of its gossip address
	Port   uint16
	Tags   map[string]string
	Status string // "alive", "failed" or "left"
}

// Self is this hub.
type Self struct {
	ID     fleet.HubID
	Region string
	Term   uint64
	Config map[string]any
	Stats  map[string]map[string]string
}

// Edges reaches into edges over their own connections.
type Edges interface {
	// Logs opens a task's output, or what else a request asks of an allocation. The
	// node's link has to be up.
	Logs(ctx context.Context, node fleet.NodeID, req syncproto.Request) (io.ReadCloser, error)
	// Talk is Logs for a request whose edge goes on listening.
	Talk(ctx context.Context, node fleet.NodeID, req syncproto.Request) (io.ReadWriteCloser, error)
}

// Jobs parses job files and tries jobs out.
type Jobs interface {
	// Parse reads an HCL or JSON job file; vars is the content of a variables file.
	Parse(src, vars string) (*fleet.Job, error)
	// DryRun is what the scheduler would do if job were registered now.
	DryRun(ctx context.Context, job *fleet.Job) (DryRun, error)
	// Outlook says what becomes of a deployment; nil where it is over or paused.
	Outlook(v *state.View, d *fleet.Deployment, now time.Time) *fleet.DeploymentOutlook
}

// Events follows what happens in the cluster.
type Events interface {
	// Open reads what a client asks for: topics, a namespace, and the first entry (0: the oldest
	// that is kept). The stream begins behind the entry after. It writes one line at a time, until
	// ctx ends or a line cannot be written.
	Open(topics []string, namespace string, from fleet.Index) (after fleet.Index, stream func(ctx context.Context, lines io.Writer) error, err error)
}

// DryRun is what registering a job would lead to.
type DryRun struct {
	Groups map[string]fleet.DesiredUpdates
	Failed map[string]*fleet.AllocMetric // by group, where there is no node for some
	// Reasons is one line a decision.
	Reasons []string
	// Created are the evaluations that would wait for a time, or for capacity.
	Created []*fleet.Evaluation
}

// Garbage is what nobody needs any more.
type Garbage interface {
	// Force removes all that is over, however new it is.
	Force(ctx context.Context) error
}

// Config of the API.
type Config struct {
	State   *state.Store
	Cluster Cluster
	Edges   Edges
	Jobs    Jobs
	Garbage Garbage
	Events  Events
	Metrics prometheus.Gatherer
	Drivers []string // that a job may name
	Configs validate.ConfigChecks
	Now     func() time.Time
	NewID   func() string
	Logs    *logtap.Monitor // what this hub logs goes through it; nil: nothing is heard
	// EdgeHealth says what is wrong with the edge in this process; nil where there is none.
	EdgeHealth func() error
	Debug      bool // serve /debug/pprof, to clients on this machine alone
	// Hosts are names and addresses (a port is not looked at) that requests may be for,
	// beside loopback and the address that a connection came in on.
	Hosts []string
	Log   *slog.Logger
}

// API answers requests.
type API struct {
	cfg   Config
	hosts []string // Config.Hosts as hostName has them
	mux   *http.ServeMux
}

// New returns the API over cfg.
func New(cfg Config) (*API, error) {
	if cfg.State == nil || cfg.Cluster == nil || cfg.Edges == nil || cfg.Jobs == nil || cfg.Garbage == nil || cfg.Events == nil {
		return nil, errors.New("make the HTTP API: State, Cluster, Edges, Jobs, Garbage and Events are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = func() string { return fleet.NewUUID(nil) }
	}
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	if cfg.Logs == nil {
		cfg.Logs = logtap.New()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	a := &API{cfg: cfg, mux: http.NewServeMux()}
	for _, host := range cfg.Hosts {
		a.hosts = append(a.hosts, hostName(host))
	}
	a.registerRoutes()
	return a, nil
}

// ServeHTTP answers one request, unless a web page of somebody else may have made it.
// What is for another region is not passed on, and never done here instead.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := a.checkBrowser(r); err != nil {
		a.writeError(w, err)
		return
	}
	if region := r.URL.Query().Get("region"); region != "" && region != fleet.DefaultRegion {
		if own := a.cfg.Cluster.Self().Region; region != own {
			a.writeError(w, fleet.Errorf(fleet.CodeInvalid, "no path to region %q: this cluster's is %q", region, own).WithHint(oneRegion))
			return
		}
	}
	a.mux.ServeHTTP(w, r)
}

func (a *API) registerRoutes() {
	a.jobRoutes()
	a.nodeRoutes()
	a.drainRoutes()
	a.systemRoutes()
	a.childRoutes()
	a.stepRoutes()
	a.allocRoutes()
	a.allocClientRoutes()
	a.actionRoutes()
	a.evalRoutes()
	a.deploymentRoutes()
	a.clusterRoutes()
	a.eventRoutes()
	a.searchRoutes()
	a.fileRoutes()
	a.operatorRoutes()
	a.schedulingRoutes()
	a.serviceRoutes()
	a.scalingRoutes()
	a.namespaceRoutes()
	a.tokenRoutes()
	a.mux.HandleFunc("GET /v1/metrics", a.serveMetrics)
	a.mux.HandleFunc(catchAllPattern, a.serveUnrouted)
	if a.cfg.Debug {
		a.mux.HandleFunc("/debug/pprof/", a.onLoopback(pprof.Index))
		a.mux.HandleFunc("/debug/pprof/profile", a.onLoopback(pprof.Profile))
		a.mux.HandleFunc("/debug/pprof/symbol", a.onLoopback(pprof.Symbol))
		a.mux.HandleFunc("/debug/pprof/trace", a.onLoopback(pprof.Trace))
	}
}

// onLoopback serves h to clients on this machine alone.
func (a *API) onLoopback(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().Unmap().IsLoopback() {
			a.writeError(w, fleet.Errorf(fleet.CodeForbidden, "read a profile: a hub serves profiles only to clients on its own machine"))
			return
		}
		h(w, r)
	}
}

// handlePutAndPost registers a handler for PUT and POST, which mean the same here.
func (a *API) handlePutAndPost(path string, h http.HandlerFunc) {
	a.mux.HandleFunc("PUT "+path, h)
	a.mux.HandleFunc("POST "+path, h)
}
