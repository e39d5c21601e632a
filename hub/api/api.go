// Package api serves a hub's HTTP API: Nomad's /v1 in its shapes (field names,
// status codes, the X-Nomad-Index header, blocking queries), and Skerry's
// additions (an allocation's history, the state of the fleet).
//
// hub.Open creates the API and serves it. Reads are answered from this hub's own
// state after it has caught up with the leader (not with ?stale). Writes go through
// the replicated log. The package persists nothing; besides the HTTP server's
// goroutines it starts those that carry a command's input and pings.
package api

import (
	"cmp"
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
	"skerry/hub/access"
	"skerry/hub/login"
	"skerry/hub/state"
	"skerry/internal/logtap"
	"skerry/syncproto"
)

// Bounds of requests.
const (
	// MaxBody is the largest request body that is accepted, in bytes.
	MaxBody = 4 << 20
	// DefaultWait is how long a blocking query waits that names no time, MaxWait the longest wait.
	DefaultWait = 5 * time.Minute
	MaxWait     = 10 * time.Minute
)

// Cluster gives the API access to the hubs, to Raft and to gossip.
type Cluster interface {
	state.Applier // through the leader
	// CatchUp waits until this hub's state holds everything that was committed before the call. It asks the leader
	// for that index, and fails without a leader.
	CatchUp(ctx context.Context) error
	// Leader returns the leader that this hub knows; false: it knows none.
	Leader() (fleet.HubID, bool)
	// Members lists the hubs that gossip knows, also failed ones, and this hub.
	Members() []Member
	// Peers returns the hubs of the newest Raft configuration that this hub knows, and the index of its last log
	// entry.
	Peers() ([]state.HubPeer, fleet.Index, error)
	// RemovePeer removes a hub from the Raft configuration and from the addresses that edges dial.
	RemovePeer(ctx context.Context, hub fleet.HubID) error
	// TransferLead hands the leadership to a hub; "": to the one with the newest log.
	TransferLead(ctx context.Context, hub fleet.HubID) error
	// Standing asks a hub for its Raft term and its last log index. It fails if the hub does not answer in time.
	Standing(ctx context.Context, hub fleet.HubID) (Standing, error)
	// Restore replaces the state of all hubs by a snapshot of size bytes with the SHA-256 digest sum, and returns
	// the index of the log entry that did so. Applying that entry repeats the checks of state.View.TryRestore.
	Restore(ctx context.Context, snapshot io.ReadSeeker, size int64, sum []byte) (fleet.Index, error)
	// LastContact asks the leader when it last heard of each node. Nodes that it has not heard of since it leads, nor
	// before in a session of its own, are left out.
	LastContact(ctx context.Context) (map[fleet.NodeID]time.Time, error)
	// Self names this hub. Requests call it, so that it must be cheap.
	Self() Self
	// Describe returns the configuration and the statistics of this hub. It reads the disk.
	Describe() (config map[string]any, stats map[string]map[string]string)
}

// Member is one hub as gossip knows it.
type Member struct {
	ID     fleet.HubID
	Addr   string // host of its gossip address
	Port   uint16
	Tags   map[string]string
	Status string // "alive", "failed" or "left"
}

// Self names the hub that answers.
type Self struct {
	ID     fleet.HubID
	Region string
	Term   uint64
}

// Edges sends requests to edges over the sessions that they have with any hub.
type Edges interface {
	// Logs sends a request to the node's edge and returns the answer as a stream: log text, file content or JSON. It
	// fails if the node has no session. The caller closes the stream.
	Logs(ctx context.Context, node fleet.NodeID, req syncproto.Request) (io.ReadCloser, error)
	// Talk is Logs for requests (commands, actions) whose caller also writes to the edge.
	Talk(ctx context.Context, node fleet.NodeID, req syncproto.Request) (io.ReadWriteCloser, error)
}

// Jobs parses job files and predicts the effects of jobs and deployments.
type Jobs interface {
	// Parse reads an HCL or JSON job file; vars is the content of a variables file.
	Parse(src, vars string) (*fleet.Job, error)
	// DryRun returns the decisions of the scheduler if the job were registered now. It changes nothing.
	DryRun(ctx context.Context, job *fleet.Job) (DryRun, error)
	// Outlook predicts how a deployment ends if no further allocation becomes healthy; nil: it is over or paused.
	Outlook(v *state.View, d *fleet.Deployment, now time.Time) *fleet.DeploymentOutlook
}

// Events serves the event stream.
type Events interface {
	// Open checks a client's request: topics, namespace, and the first log entry (0: the oldest that is kept). It
	// returns the index after which the stream begins, and the function that writes the stream: one line for each
	// entry, until ctx ends, a write fails, or sees does. sees is asked before each line: it returns which events the
	// client may have at that time, and reads what this depends on from the view.
	Open(topics []string, namespace string, from fleet.Index, sees func(*state.View) (func(*state.Event) bool, error)) (after fleet.Index, stream func(ctx context.Context, lines io.Writer) error, err error)
}

// Secrets encrypts the items of variables, and decrypts them.
type Secrets interface {
	// Decrypt decrypts the items of a variable. CodeUnavailable: this hub lacks a key, and the error says what to do.
	Decrypt(v *state.Variable) (fleet.VariableItems, error)
	// Commit encrypts items and commits the command that has them.
	Commit(ctx context.Context, ns, path string, items fleet.VariableItems, command func(state.SealedItems) state.Command) (state.Result, error)
	// Rotate makes a new root key active. With full all variables are encrypted with it, in the background.
	Rotate(ctx context.Context, full bool) (fleet.RootKey, error)
	// CheckKeys returns an error if this hub could not decrypt the variables in v, such as those of a snapshot, or encrypt others.
	CheckKeys(v *state.View) error
}

// CA replaces the cluster's certificate authority.
type CA interface {
	// Begin commits another CA. grace is how long edges get in with a certificate of the one that is replaced.
	Begin(ctx context.Context, grace time.Duration) (state.CA, fleet.Index, error)
}

// Locks keeps the locks of variables alive.
type Locks interface {
	// RenewLock starts the TTL of a lock again. CodeConflict: the variable does not have that lock any more.
	RenewLock(ctx context.Context, ns, path, id string) error
}

// DryRun is the predicted effect of registering a job.
type DryRun struct {
	Groups map[string]fleet.DesiredUpdates
	Failed map[string]*fleet.AllocMetric // by group, for placements that found no node
	// Reasons explains the decisions, one line each.
	Reasons []string
	// Created are the evaluations that would be left: those that wait for a time or for capacity.
	Created []*fleet.Evaluation
}

// Garbage removes ended objects from the state.
type Garbage interface {
	// Force removes all ended jobs, evaluations, allocations, deployments and nodes now, whatever their age.
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
	Secrets Secrets
	Locks   Locks
	Audit   Audit // nil: none is kept
	CA      CA    // nil: it cannot be replaced
	// StateKeys replaces the state key; nil: it cannot be replaced.
	StateKeys StateKeys
	Access    *access.Resolver // who may do what; nil: everybody everything
	Logins    *login.Logins    // who may log in by an auth method; nil: nobody
	Metrics   prometheus.Gatherer
	Drivers   validate.KnownDrivers
	Now       func() time.Time
	NewID     func() string
	Logs      *logtap.Monitor // copies this hub's log records to listeners; nil: none
	// EdgeHealth returns why the edge in this process is unhealthy, or nil; a nil function: there is no edge.
	EdgeHealth func() error
	Debug      bool // serve /debug/pprof, to clients on this machine alone
	// Hosts are the names and addresses that a request's Host may have, besides loopback and the address that the
	// connection came in on. Ports are not compared. Certified (nil: none) reports whether the hub's HTTPS certificate
	// is for a host: a browser shows it no other page.
	Hosts     []string
	Certified func(host string) bool
	// NeedsCertificate refuses clients that have shown no certificate that the TLS server has verified.
	NeedsCertificate bool
	Issuer           string // of the identities of workloads; "": OIDC discovery is off
	// ACLResetFile is the file with the index that lets access control be bootstrapped again; "": none.
	ACLResetFile string
	Log          *slog.Logger
}

// API is the http.Handler of /v1.
type API struct {
	cfg   Config
	hosts []string // Config.Hosts as hostName has them
	mux   *http.ServeMux
	// endpoints are the declarations of all endpoints, and byRoute has what serves them by METHOD and path.
	endpoints []endpoint
	byRoute   map[string]http.HandlerFunc
	tries     *login.Tries // of those who log in
	keys      keyCache
}

// New returns the API with all its routes. It starts nothing. It fails if a required field of cfg is nil.
func New(cfg Config) (*API, error) {
	if cfg.State == nil || cfg.Cluster == nil || cfg.Edges == nil || cfg.Jobs == nil || cfg.Garbage == nil || cfg.Events == nil || cfg.Secrets == nil || cfg.Locks == nil {
		return nil, errors.New("make the HTTP API: State, Cluster, Edges, Jobs, Garbage, Events, Secrets and Locks are required")
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
	a := &API{cfg: cfg, mux: http.NewServeMux(), tries: login.NewTries(cfg.Now)}
	for _, host := range cfg.Hosts {
		a.hosts = append(a.hosts, hostName(host))
	}
	if err := a.serveEndpoints(a.declareEndpoints()); err != nil {
		return nil, err
	}
	return a, nil
}

// ServeHTTP serves one request, and appends it to the audit if it has to be there.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.cfg.Audit == nil {
		a.serveRequest(w, r)
		return
	}
	a.serveAudited(w, r)
}

// serveRequest serves one request. It refuses requests that a foreign web page may have sent (checkBrowser), clients
// without the certificate that they need, and requests for another region: a hub does not forward them.
func (a *API) serveRequest(w http.ResponseWriter, r *http.Request) {
	if err := cmp.Or(a.checkBrowser(r), a.checkCertificate(r)); err != nil {
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

// declareEndpoints returns the declarations of all endpoints.
func (a *API) declareEndpoints() []endpoint {
	all := []endpoint{{"GET", "/v1/metrics", public, a.serveMetrics}}
	for _, some := range [][]endpoint{
		a.jobEndpoints(),
		a.nodeEndpoints(),
		a.drainEndpoints(),
		a.wellKnownEndpoints(),
		a.systemEndpoints(),
		a.childEndpoints(),
		a.stepEndpoints(),
		a.allocEndpoints(),
		a.allocClientEndpoints(),
		a.actionEndpoints(),
		a.evalEndpoints(),
		a.deploymentEndpoints(),
		a.clusterEndpoints(),
		a.eventEndpoints(),
		a.searchEndpoints(),
		a.fileEndpoints(),
		a.operatorEndpoints(),
		a.schedulingEndpoints(),
		a.serviceEndpoints(),
		a.scalingEndpoints(),
		a.namespaceEndpoints(),
		a.volumeEndpoints(),
		a.prefetchEndpoints(),
		a.tokenEndpoints(),
		a.keyringEndpoints(),
		a.caEndpoints(),
		a.stateKeyEndpoints(),
		a.variableEndpoints(),
		a.auditEndpoints(),
		a.aclEndpoints(),
		a.authMethodEndpoints(),
		a.bindingRuleEndpoints(),
		a.siteCodeEndpoints(),
		a.loginEndpoints(),
	} {
		all = append(all, some...)
	}
	if a.cfg.Debug {
		all = append(all, a.profileEndpoints()...)
	}
	return all
}

// profileEndpoints serve this hub's profiles to clients on its machine.
func (a *API) profileEndpoints() []endpoint {
	return []endpoint{
		{"", "/debug/pprof/", onAgents("write"), a.onLoopback(pprof.Index)},
		{"", "/debug/pprof/profile", onAgents("write"), a.onLoopback(pprof.Profile)},
		{"", "/debug/pprof/symbol", onAgents("write"), a.onLoopback(pprof.Symbol)},
		{"", "/debug/pprof/trace", onAgents("write"), a.onLoopback(pprof.Trace)},
	}
}

// onLoopback returns h for clients on this machine, and an error for all others.
func (a *API) onLoopback(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().Unmap().IsLoopback() {
			a.writeError(w, fleet.Errorf(fleet.CodeForbidden, "read a profile: a hub serves profiles only to clients on its own machine"))
			return
		}
		h(w, r)
	}
}
