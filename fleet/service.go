package fleet

import (
	"regexp"
	"time"
)

// Providers of services, and how a service's address is chosen.
const (
	ProviderConsul = "consul"
	ProviderNomad  = "nomad" // the hub's own catalogue

	AddressAuto   = "auto"
	AddressAlloc  = "alloc"
	AddressAlloc6 = "alloc_ipv6"
	AddressDriver = "driver"
	AddressHost   = "host"
)

// What a failing check means for an update.
const (
	OnUpdateRequireHealthy = "require_healthy"
	OnUpdateIgnoreWarnings = "ignore_warnings"
	OnUpdateIgnore         = "ignore"
)

// Service is what an allocation offers to others: a name, a port, and how its health
// is checked.
type Service struct {
	Name              string // default JOB-GROUP, or JOB-GROUP-TASK
	TaskName          string
	PortLabel         string // a label of the group's ports, or a number
	AddressMode       string // default AddressAuto
	Address           string
	Provider          string // default ProviderConsul
	Cluster           string // default "default"
	OnUpdate          string // default OnUpdateRequireHealthy
	Kind              string
	EnableTagOverride bool
	Tags              []string
	CanaryTags        []string
	Meta              map[string]string
	CanaryMeta        map[string]string
	TaggedAddresses   map[string]string
	Weights           *ServiceWeights
	Checks            []ServiceCheck
	CheckRestart      *CheckRestart // of all checks that have none of their own
	Connect           map[string]any
	Identity          *WorkloadIdentity
}

// ServiceWeights is how often a service is chosen, by its health.
type ServiceWeights struct {
	Passing int
	Warning int
}

// Types of checks.
const (
	CheckHTTP   = "http"
	CheckTCP    = "tcp"
	CheckGRPC   = "grpc"
	CheckScript = "script"
)

// ServiceCheck is one way to see whether a service is healthy.
type ServiceCheck struct {
	Name                   string
	Type                   string
	Command                string
	Args                   []string
	Path                   string
	Protocol               string // of an http check; default http
	Method                 string
	Body                   string
	Header                 map[string][]string
	PortLabel              string
	AddressMode            string
	Advertise              string
	Expose                 bool
	Interval               time.Duration
	Timeout                time.Duration
	InitialStatus          string
	Notes                  string
	TLSServerName          string
	TLSSkipVerify          bool
	GRPCService            string
	GRPCUseTLS             bool
	TaskName               string
	SuccessBeforePassing   int
	FailuresBeforeCritical int
	FailuresBeforeWarning  int
	CheckRestart           *CheckRestart
	OnUpdate               string // default OnUpdateRequireHealthy
}

// CheckRestart restarts a task whose check fails Limit times in a row.
type CheckRestart struct {
	Limit          int // 0: never
	Grace          time.Duration
	IgnoreWarnings bool
}

var serviceName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// ValidServiceName reports whether a name consists of letters, digits and dashes, at most 63.
func ValidServiceName(name string) bool { return serviceName.MatchString(name) }
