package api

import (
	"cmp"
	"hash/fnv"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"skerry/fleet"
	"skerry/hub/state"
)

func (a *API) serviceRoutes() {
	a.mux.HandleFunc("GET /v1/services", a.read(a.listServices))
	a.mux.HandleFunc("GET /v1/service/{name}", a.read(a.readService))
	a.mux.HandleFunc("DELETE /v1/service/{name}/{registration}", a.write(a.deleteService))
	a.mux.HandleFunc("GET /v1/job/{id}/services", a.read(a.jobServices))
	a.mux.HandleFunc("GET /v1/allocation/{id}/services", a.read(a.allocServices))
}

// ServiceList are the services of one namespace.
type ServiceList struct {
	Namespace string
	Services  []ServiceStub
}

// ServiceStub is a service in a list: what all that offer it are tagged with.
type ServiceStub struct {
	ServiceName string
	Tags        []string
}

// catalogue lists what is registered for a job, or all for "". What nobody can reach at
// the moment is there only where the request asks for it.
func (a *API) catalogue(v *state.View, r *http.Request, ns string, job fleet.JobID) (iter.Seq[*fleet.ServiceRegistration], error) {
	all := false
	if s := r.URL.Query().Get("unreachable"); s != "" {
		var err error
		if all, err = strconv.ParseBool(s); err != nil {
			return nil, fleet.Errorf(fleet.CodeInvalid, "read the parameter unreachable: %q is neither true nor false", s)
		}
	}
	return func(yield func(*fleet.ServiceRegistration) bool) {
		for s := range v.Services(ns, job, a.cfg.Cluster.Self().Region) {
			if (all || s.Status == fleet.ServiceReachable) && !yield(&s) {
				return
			}
		}
	}, nil
}

func (a *API) listServices(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	index := v.TableIndex("services")
	found, err := a.catalogue(v, r, q.namespace, "")
	if err != nil {
		return nil, index, err
	}
	p, err := parsePages(r)
	if err != nil {
		return nil, index, err
	}
	tags := map[string]map[string]map[string]bool{} // by namespace and name
	for s := range found {
		if ok, err := p.passes(s); err != nil {
			return nil, index, err
		} else if !ok || !strings.HasPrefix(s.ServiceName, q.prefix) {
			continue
		}
		if tags[s.Namespace] == nil {
			tags[s.Namespace] = map[string]map[string]bool{}
		}
		if tags[s.Namespace][s.ServiceName] == nil {
			tags[s.Namespace][s.ServiceName] = map[string]bool{}
		}
		for _, tag := range s.Tags {
			tags[s.Namespace][s.ServiceName][tag] = true
		}
	}
	answer := []ServiceList{}
	for _, ns := range slices.Sorted(maps.Keys(tags)) {
		list := ServiceList{Namespace: ns}
		for _, name := range slices.Sorted(maps.Keys(tags[ns])) {
			list.Services = append(list.Services, ServiceStub{name, append([]string{}, slices.Sorted(maps.Keys(tags[ns][name]))...)})
		}
		answer = append(answer, list)
	}
	return answer, index, nil
}

// readService lists who offers a service: all, or as many as are chosen for a caller.
func (a *API) readService(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	index := v.TableIndex("services")
	found, err := a.catalogue(v, r, q.namespace, "")
	if err != nil {
		return nil, index, err
	}
	name := r.PathValue("name")
	named := func(yield func(*fleet.ServiceRegistration) bool) {
		for s := range found {
			if s.ServiceName == name && !yield(s) {
				return
			}
		}
	}
	answer, err := page(r, named, registrationKey, same[*fleet.ServiceRegistration])
	if choose := r.URL.Query().Get("choose"); err == nil && choose != "" {
		answer.answer, err = chosen(answer.answer.([]*fleet.ServiceRegistration), choose)
	}
	return answer, index, err
}

func registrationKey(s *fleet.ServiceRegistration) string { return s.Namespace + "\x00" + s.ID }

// chosen picks of a list as many as "NUMBER|KEY" says, so that one key always has the
// same ones as long as they are there, and different keys have different ones.
func chosen(list []*fleet.ServiceRegistration, choose string) ([]*fleet.ServiceRegistration, error) {
	number, key, ok := strings.Cut(choose, "|")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 || key == "" {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the parameter choose: %q is not NUMBER|KEY", choose).
			WithHint("write it like 2|ALLOCATION-ID")
	}
	weigh := func(s *fleet.ServiceRegistration) uint64 {
		sum := fnv.New64a()
		_, _ = sum.Write([]byte(key + "\x00" + s.ID)) // never fails
		return sum.Sum64()
	}
	slices.SortFunc(list, func(x, y *fleet.ServiceRegistration) int {
		return cmp.Or(cmp.Compare(weigh(y), weigh(x)), strings.Compare(x.ID, y.ID))
	})
	return list[:min(n, len(list))], nil
}

// deleteService refuses: a registration lasts as long as what it follows from.
func (a *API) deleteService(r *http.Request) (any, fleet.Index, error) {
	q, err := parseQuery(r)
	if err != nil {
		return nil, 0, err
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	v := a.cfg.State.View()
	name, id := r.PathValue("name"), r.PathValue("registration")
	for s := range v.Services(q.namespace, "", a.cfg.Cluster.Self().Region) {
		if s.ServiceName == name && s.ID == id {
			return nil, v.Index(), fleet.Errorf(fleet.CodeConflict, "delete service %q: allocation %s offers it, and runs", name, fleet.Short(s.AllocID)).
				WithHint("it goes when the allocation ends: stop that, or register its job without the service")
		}
	}
	return nil, v.Index(), fleet.Errorf(fleet.CodeNotFound, "service %q has no registration %q", name, id)
}

func (a *API) jobServices(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	index := v.TableIndex("services")
	job := fleet.JobID(r.PathValue("id"))
	if _, ok := v.Job(q.namespace, job); !ok {
		return nil, index, fleet.Errorf(fleet.CodeNotFound, "job %q not found", job)
	}
	found, err := a.catalogue(v, r, q.namespace, job)
	if err != nil {
		return nil, index, err
	}
	answer, err := page(r, found, registrationKey, same[*fleet.ServiceRegistration])
	return answer, index, err
}

// allocServices lists what one allocation offers, reachable or not.
func (a *API) allocServices(v *state.View, r *http.Request, _ query) (any, fleet.Index, error) {
	al, err := needAlloc(v, r)
	if err != nil {
		return nil, v.TableIndex("allocs"), err
	}
	n, _ := v.Node(al.NodeID)
	return append([]fleet.ServiceRegistration{}, al.Registrations(n, a.cfg.Cluster.Self().Region)...), al.ModifyIndex, nil
}
