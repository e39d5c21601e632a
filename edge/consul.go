package edge

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"skerry/edge/checks"
	"skerry/edge/consul"
	"skerry/edge/logins"
	"skerry/fleet"
	"skerry/fleet/taskenv"
)

// openConsul makes the syncer of the services that are registered with a Consul agent, if one is configured.
func (e *Edge) openConsul() (err error) {
	if e.cfg.Consul == nil {
		return nil
	}
	cfg := consul.Config{Client: e.cfg.Consul, Node: e.node, Services: e.consulServices, Changed: e.journal.Appended, Log: e.log.With("component", "consul")}
	if e.consulLogins != nil {
		cfg.Token = e.serviceToken
	}
	if e.consul, err = consul.NewSyncer(cfg); err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	return nil
}

// openConsulLogins makes the keeper of the tokens of Consul, if one is configured at which tasks can log in.
func (e *Edge) openConsulLogins() (err error) {
	if e.cfg.Consul == nil || !e.cfg.Consul.LetsLogIn() {
		return nil
	}
	e.consulLogins, err = consul.OpenKeeper(e.cfg.Consul, logins.Config{
		Journal: e.journal, Sealer: e.machine, Needs: e.needsSecrets, Log: e.log.With("component", "consul"),
	})
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	return nil
}

// serviceToken returns the newest token of a service. With renew it is renewed first if that is due.
func (e *Edge) serviceToken(ctx context.Context, login logins.Task, renew bool) (string, error) {
	task, _, _ := strings.Cut(login.Name, "/")
	jwt, _, _ := e.identities.Token(login.Alloc, task, login.Identity)
	return e.consulLogins.ServiceToken(ctx, login, jwt, renew)
}

// consulServices returns the services that the Consul agent must have now, with the results of their checks.
func (e *Edge) consulServices(ctx context.Context) ([]consul.Service, error) {
	offered, err := e.offeredServices(ctx, fleet.ProviderConsul)
	if err != nil {
		return nil, err
	}
	var found []consul.Service
	for a, offers := range offered {
		results := e.checks.Results(a.ID)
		for i := range offers {
			s := consulService(a, &offers[i], results)
			if w := offers[i].Service.Identity; w != nil {
				login := e.cfg.Consul.ServiceLogin(a.ID, offers[i].Task, w.Name)
				s.Login = &login
			}
			found = append(found, s)
		}
	}
	return found, nil
}

// consulStatuses are Consul's words for the statuses of checks. A pending one has no result to tell.
var consulStatuses = map[string]string{checks.Success: consul.Passing, checks.Warning: consul.Warning, checks.Failure: consul.Critical}

// consulService returns one service for the Consul agent.
func consulService(a *fleet.Alloc, o *taskenv.Offer, results map[string]fleet.CheckResult) consul.Service {
	s := consul.Service{
		ID: o.ID, Name: o.ServiceName, Tags: o.Tags, Address: o.Address, Port: o.Port, Meta: o.Meta,
		TaggedAddresses: o.Service.TaggedAddresses, TagOverride: o.Service.EnableTagOverride,
	}
	if o.Service.Weights != nil {
		s.Weights = *o.Service.Weights
	}
	for i := range o.Service.Checks {
		c := &o.Service.Checks[i]
		one := consul.Check{ID: consul.CheckID(s.ID, c, i), Name: cmp.Or(c.Name, checks.DefaultName(o.ServiceName)), Notes: c.Notes, TTL: consul.CheckTTL(c)}
		r, runs := results[checks.ResultID(a.ID, o.Task, &o.Service, i)]
		switch {
		case runs:
			one.Status, one.Output = consulStatuses[r.Status], r.Output
		case waitingTask(a) != "":
			one.Status, one.Output = consul.Critical, fmt.Sprintf("task %s does not run", waitingTask(a))
		}
		s.Checks = append(s.Checks, one)
	}
	return s
}

// waitingTask returns a task of an allocation that must run and does not; "": there is none. The checks of a group's
// services do not run meanwhile.
func waitingTask(a *fleet.Alloc) string {
	g := a.Group()
	for i := range g.Tasks {
		if t := &g.Tasks[i]; t.RunsUntilStopped() && a.TaskStates[t.Name].State != fleet.TaskRunning {
			return t.Name
		}
	}
	return ""
}
