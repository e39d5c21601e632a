package consul

import (
	"cmp"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry/edge/logins"
	"skerry/fleet"
)

// Prefixes of the ids of services and checks, as Nomad has them.
const (
	servicePrefix = "_nomad-task-"
	checkPrefix   = "_nomad-check-"
)

// Keys of the meta of each registered service.
const (
	metaSource = "external-source" // Consul's own key; its value is Nomad's, which dashboards look for
	sourceName = "nomad"
	metaNode   = "skerry-node" // the id of the node that registered it, and that alone removes it
)

// Statuses of a check.
const (
	Passing  = "passing"
	Warning  = "warning"
	Critical = "critical"
)

// ttlGrace is how long a check's result counts beyond the time until the next one, as Nomad has it for scripts.
const ttlGrace = 31 * time.Second

// Service is a service that the agent must have.
type Service struct {
	ID              string // begins with servicePrefix
	Name            string
	Tags            []string
	Address         string
	Port            int
	Meta            map[string]string
	TaggedAddresses map[string]string // IP or IP:PORT
	Weights         fleet.ServiceWeights
	// TagOverride leaves the tags to others, once the service is registered.
	TagOverride bool
	Checks      []Check
	Login       *logins.Task // of a service with an identity; nil: it is registered with the token of the node
}

// Check is a check of a service. The edge runs it, and tells the agent its results.
type Check struct {
	ID     string // see CheckID
	Name   string
	Notes  string
	TTL    time.Duration
	Status string // Passing, Warning, Critical; "": it has no result yet
	Output string
}

// CheckID returns the id of the i-th check of a service. It differs for each definition: a changed check is a new one.
func CheckID(service string, c *fleet.ServiceCheck, i int) string {
	sum := sha1.Sum(fmt.Appendf(nil, "%s\x00%d\x00%s\x00%s\x00%s\x00%s", service, i, c.Name, c.Type, CheckTTL(c), c.Notes))
	return checkPrefix + hex.EncodeToString(sum[:])
}

// CheckTTL returns how long a result of a check counts: without another one the agent then calls it critical.
func CheckTTL(c *fleet.ServiceCheck) time.Duration { return c.Interval + c.Timeout + ttlGrace }

// Types of the agent's API, which has names in Go's way.
type (
	agentAddress struct {
		Address string
		Port    int
	}
	agentWeights struct{ Passing, Warning int }
	// agentService is a service as the agent has it.
	agentService struct {
		ID, Service       string
		Tags              []string
		Meta              map[string]string
		Port              int
		Address           string
		TaggedAddresses   map[string]agentAddress
		Weights           agentWeights
		EnableTagOverride bool
	}
	// agentCheck is a check as the agent has it.
	agentCheck struct {
		CheckID, ServiceID, Status string
	}
	registeredService struct {
		ID, Name          string
		Tags              []string
		Meta              map[string]string
		Port              int
		Address           string
		TaggedAddresses   map[string]agentAddress `json:",omitempty"`
		Weights           *agentWeights           `json:",omitempty"`
		EnableTagOverride bool
		Checks            []registeredCheck
	}
	registeredCheck struct {
		CheckID, Name, Notes, TTL, Status string
	}
)

// toRegistration returns the body of the request that registers the service.
func (s *Service) toRegistration() registeredService {
	r := registeredService{
		ID: s.ID, Name: s.Name, Tags: s.Tags, Meta: s.Meta, Port: s.Port, Address: s.Address,
		TaggedAddresses: s.taggedAddresses(), EnableTagOverride: s.TagOverride, Checks: []registeredCheck{},
	}
	if s.Weights != (fleet.ServiceWeights{}) {
		r.Weights = (*agentWeights)(&s.Weights)
	}
	for _, c := range s.Checks {
		r.Checks = append(r.Checks, registeredCheck{CheckID: c.ID, Name: c.Name, Notes: c.Notes, TTL: c.TTL.String(), Status: cmp.Or(c.Status, Critical)})
	}
	return r
}

// taggedAddresses returns the tagged addresses; one without a port has the service's.
func (s *Service) taggedAddresses() map[string]agentAddress {
	found := make(map[string]agentAddress, len(s.TaggedAddresses))
	for tag, text := range s.TaggedAddresses {
		a := agentAddress{Address: text, Port: s.Port}
		if host, port, err := net.SplitHostPort(text); err == nil {
			if number, err := strconv.Atoi(port); err == nil {
				a = agentAddress{Address: host, Port: number}
			}
		}
		found[tag] = a
	}
	return found
}

// registeredAs reports whether the agent has the service as it must be. The agent adds addresses and weights of its
// own, which do not count.
func (s *Service) registeredAs(have *agentService) bool {
	tagged := true
	for tag, a := range s.taggedAddresses() {
		tagged = tagged && have.TaggedAddresses[tag] == a
	}
	weighted := s.Weights == (fleet.ServiceWeights{}) || have.Weights == agentWeights(s.Weights)
	return tagged && weighted && have.Service == s.Name && have.Port == s.Port && have.Address == s.Address &&
		have.EnableTagOverride == s.TagOverride && maps.Equal(have.Meta, s.Meta) &&
		(s.TagOverride || slices.Equal(have.Tags, s.Tags))
}

// ownedBy reports whether a node registered the service. Those of other nodes, of Nomad and of people never are.
func (have *agentService) ownedBy(n fleet.NodeID) bool {
	return strings.HasPrefix(have.ID, servicePrefix) && have.Meta[metaNode] == string(n)
}
