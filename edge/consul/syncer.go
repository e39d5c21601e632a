// Package consul registers the services of this edge's allocations with the Consul agent beside it: those of jobs with
// provider = "consul". Tasks and services log in there as package logins says. It keeps the agent as it must be: it registers, and removes, what differs, also after the agent
// or this edge was away, or the agent has lost its data.
//
// cmd/edged makes a Client. edge runs a Syncer with it, and edge/fingerprint asks it for the node's attributes. Run is
// one goroutine, and nobody waits for it: a task never depends on Consul. The edge runs the checks itself
// (edge/checks); the agent gets their results as TTL checks. Of services nothing is stored: the agent says what it has.
package consul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"skerry/edge/logins"
	"skerry/fleet"
	"skerry/internal/pace"
	"skerry/internal/remoteapi"
)

const (
	// syncInterval is the time after which the agent is compared at the latest. It is less than half of the shortest TTL.
	syncInterval = 10 * time.Second
	// settleTime is how long changes are collected.
	settleTime = 100 * time.Millisecond
	// loginTime is how long one comparison waits for logins before it goes on with the tokens that services have.
	loginTime = 2 * time.Second
)

// Config of a Syncer. Client, Node, Services and Changed are required.
type Config struct {
	Client *Client
	Node   fleet.NodeID
	// Services returns the services that the agent must have now, with the results of their checks.
	Services func(ctx context.Context) ([]Service, error)
	// Token returns the newest token of a service that logs in. With renew it is renewed first if that is due. nil: none can log in.
	Token func(ctx context.Context, login logins.Task, renew bool) (string, error)
	// Changed returns a channel that is closed when Services may next return something else.
	Changed func() <-chan struct{}
	Log     *slog.Logger
}

// Syncer keeps the services of one agent up to date. Only Run uses it, apart from Wake.
type Syncer struct {
	cfg  Config
	wake chan struct{} // capacity 1

	// Owned by Run.
	last     map[string]Service   // what the last comparison left the agent with; nil: it failed
	told     map[string]time.Time // when the agent was told the result of a check, by the check's id
	tokens   map[string]string    // with which services are registered, by their ids; the node's own: none
	problems string               // of the last comparison, as logged
}

// NewSyncer makes a Syncer. It starts nothing.
func NewSyncer(cfg Config) (*Syncer, error) {
	if cfg.Client == nil || cfg.Node == "" || cfg.Services == nil || cfg.Changed == nil {
		return nil, errors.New("register services with Consul: Client, Node, Services and Changed are required")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Syncer{cfg: cfg, wake: make(chan struct{}, 1), told: map[string]time.Time{}, tokens: map[string]string{}}, nil
}

// Wake makes Run look at the services again. It does not block.
func (s *Syncer) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run keeps the agent's services up to date until ctx ends. Then they stay registered, as the tasks go on.
func (s *Syncer) Run(ctx context.Context) {
	tick := time.NewTicker(syncInterval)
	defer tick.Stop()
	for due := true; ; {
		changed := s.cfg.Changed()
		s.syncServices(ctx, due)
		select {
		case <-tick.C:
			due = true
		case <-changed:
			due = false
		case <-s.wake:
			due = false
		case <-ctx.Done():
			return
		}
		if !due && !pace.Rest(ctx, settleTime) {
			return
		}
	}
}

// syncServices compares the agent with what it must have, and changes the agent. Unless due, it does nothing if that is
// the same as after the last comparison. It logs what went wrong when that changes.
func (s *Syncer) syncServices(ctx context.Context, due bool) {
	list, err := s.cfg.Services(ctx)
	if err == nil {
		want := make(map[string]Service, len(list))
		for _, one := range list {
			one.Meta = maps.Clone(one.Meta)
			if one.Meta == nil {
				one.Meta = map[string]string{}
			}
			one.Meta[metaSource], one.Meta[metaNode] = sourceName, string(s.cfg.Node)
			want[one.ID] = one
		}
		if !due && s.last != nil && reflect.DeepEqual(want, s.last) {
			return
		}
		if err = s.settleAgent(ctx, want); err == nil {
			s.last = want
		} else {
			s.last = nil
		}
	}
	if ctx.Err() != nil {
		return
	}
	problems := ""
	if err != nil {
		problems = err.Error()
	}
	switch {
	case problems == s.problems:
	case problems == "":
		s.cfg.Log.Info("services registered with Consul again", "addr", s.cfg.Client.cfg.Address)
	default:
		s.cfg.Log.Warn("services not registered with Consul: trying again", "addr", s.cfg.Client.cfg.Address, "error", err)
	}
	s.problems = problems
}

// settleAgent registers the wanted services that the agent lacks or has differently, removes those of this node that
// are not wanted, and tells the results of checks. A refused request does not keep it from the others, and slow logins do not delay
// the results of checks until their TTL is over.
func (s *Syncer) settleAgent(ctx context.Context, want map[string]Service) error {
	have, err := s.cfg.Client.listServices(ctx)
	if err != nil {
		return err
	}
	checks, err := s.cfg.Client.listChecks(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, id := range slices.Sorted(maps.Keys(have)) {
		one := have[id]
		if _, wanted := want[id]; wanted || !one.ownedBy(s.cfg.Node) {
			continue
		}
		if err := s.cfg.Client.deregisterService(ctx, id); err != nil {
			if failed = append(failed, err); remoteapi.RefusalOf(err) == nil {
				return errors.Join(failed...)
			}
		}
	}
	s.forgetChecks(want)
	waited := time.Duration(0) // for logins
	for _, id := range slices.Sorted(maps.Keys(want)) {
		one, asked := want[id], time.Now()
		token, err := s.tokenOf(ctx, &one, waited < loginTime)
		waited += time.Since(asked)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if err := s.settleService(ctx, &one, token, have, checks); err != nil {
			if failed = append(failed, err); remoteapi.RefusalOf(err) == nil {
				break
			}
		}
	}
	return errors.Join(failed...)
}

// forgetChecks drops what is known of checks that are not wanted any more.
func (s *Syncer) forgetChecks(want map[string]Service) {
	wanted := map[string]bool{}
	for _, one := range want {
		for _, c := range one.Checks {
			wanted[c.ID] = true
		}
	}
	maps.DeleteFunc(s.told, func(id string, _ time.Time) bool { return !wanted[id] })
	maps.DeleteFunc(s.tokens, func(id, _ string) bool { return want[id].Login == nil })
}

// tokenOf returns the token of a service; "": that of the node. With renew the token is renewed first if that is due.
func (s *Syncer) tokenOf(ctx context.Context, one *Service, renew bool) (string, error) {
	if one.Login == nil {
		return "", nil
	}
	if s.cfg.Token == nil {
		return "", fleet.Errorf(fleet.CodeUnsupported, "register service %s with Consul: its token would cross the network in clear", one.Name).
			WithHint("let --consul-address be one of this machine, or https")
	}
	token, err := s.cfg.Token(ctx, *one.Login, renew)
	if err == nil && token == "" {
		err = fleet.Errorf(fleet.CodeUnavailable, "it has no token yet, and Consul answers the logins of other services too slowly: it logs in with the next comparison")
	}
	if err != nil {
		return "", fmt.Errorf("register service %s with Consul: %w", one.Name, err)
	}
	return token, nil
}

// settleService registers one service if the agent has it differently, and tells the agent those results of its checks
// that are new, or old enough to be told again.
func (s *Syncer) settleService(ctx context.Context, one *Service, token string, services map[string]agentService, checks map[string]agentCheck) error {
	have, there := services[one.ID]
	register := !there || !one.registeredAs(&have) || !one.hasItsChecks(checks) || s.tokens[one.ID] != token
	if register {
		if there && one.TagOverride {
			one.Tags = have.Tags
		}
		if err := s.cfg.Client.registerService(ctx, token, one); err != nil {
			return err
		}
		s.tokens[one.ID] = token
	}
	for i := range one.Checks {
		c := &one.Checks[i]
		if c.Status == "" {
			continue // the agent keeps the status that it has, until there is a result
		}
		old := time.Since(s.told[c.ID]) >= c.TTL/3
		if !register && !old && checks[c.ID].Status == c.Status {
			continue
		}
		if err := s.cfg.Client.updateCheck(ctx, token, c); err != nil {
			return err
		}
		s.told[c.ID] = time.Now()
	}
	return nil
}

// hasItsChecks reports whether the agent has exactly the checks of the service, apart from those that others added.
func (s *Service) hasItsChecks(checks map[string]agentCheck) bool {
	count := 0
	for id, c := range checks {
		if c.ServiceID == s.ID && strings.HasPrefix(id, checkPrefix) {
			count++
		}
	}
	for _, c := range s.Checks {
		if checks[c.ID].ServiceID != s.ID {
			return false
		}
	}
	return count == len(s.Checks)
}
