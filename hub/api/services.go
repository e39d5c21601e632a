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

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/taskenv"
	"skerry/hub/state"
)

func (a *API) serviceEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/services", onServices, a.readHandler(a.listServices)},
		{"GET", "/v1/service/{name}", onServices, a.readHandler(a.readService)},
		{"DELETE", "/v1/service/{name}/{registration}", inRequestNamespace("submit-job"), a.writeHandler(a.deleteService)},
		{"GET", "/v1/job/{id}/services", inRequestNamespace("read-job"), a.readHandler(a.jobServices)},
		{"GET", "/v1/allocation/{id}/services", inObjectNamespace("read-job"), readObject(a, "allocs", needAlloc, a.allocServices)},
	}
}

// visibleServices iterates over the service registrations of a job, or of the namespace for "". Unreachable ones are
// left out unless the request has unreachable=true.
func (a *API) visibleServices(v *state.View, r *http.Request, ns string, job fleet.JobID) (iter.Seq[*fleet.ServiceRegistration], error) {
	all, err := queryFlag(r, "unreachable", false)
	if err != nil {
		return nil, err
	}
	g := grantOf(r)
	return func(yield func(*fleet.ServiceRegistration) bool) {
		for s := range v.Services(ns, job, a.cfg.Cluster.Self().Region) {
			if g.allowsItem(&s) && (all || s.Status == fleet.ServiceReachable) && !yield(&s) {
				return
			}
		}
	}, nil
}

// listServices lists the services by namespace and name, each with the tags of all its registrations.
func (a *API) listServices(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	index := v.TableIndex("services")
	found, err := a.visibleServices(v, r, q.namespace, "")
	if err != nil {
		return nil, index, err
	}
	p, err := parsePages(r)
	if err != nil {
		return nil, index, err
	}
	tags := map[offeredService]map[string]bool{}
	for s := range filterByPrefix(q, found, serviceName) {
		if ok, err := p.passesFilter(s); err != nil {
			return nil, index, err
		} else if !ok {
			continue
		}
		name := offeredService{s.Namespace, s.ServiceName}
		if tags[name] == nil {
			tags[name] = map[string]bool{}
		}
		for _, tag := range s.Tags {
			tags[name][tag] = true
		}
	}
	p.filter = nil // it was applied to the registrations above
	list, next, err := cutItems(p, maps.Keys(tags), offeredService.pageKey)
	return pageOfItems{byNamespace(list, tags), next}, index, err
}

// offeredService names a service. Several allocations may register it.
type offeredService struct{ namespace, name string }

// pageKey is the order key of lists of services.
func (o offeredService) pageKey() string { return o.namespace + "\x00" + o.name }

func serviceName(s *fleet.ServiceRegistration) string { return s.ServiceName }

// byNamespace groups an ordered list of services by namespace, and adds their tags.
func byNamespace(list []offeredService, tags map[offeredService]map[string]bool) []api.ServiceList {
	answer := []api.ServiceList{}
	for _, o := range list {
		if len(answer) == 0 || answer[len(answer)-1].Namespace != o.namespace {
			answer = append(answer, api.ServiceList{Namespace: o.namespace})
		}
		last := &answer[len(answer)-1]
		last.Services = append(last.Services, api.ServiceStub{ServiceName: o.name, Tags: append([]string{}, slices.Sorted(maps.Keys(tags[o]))...)})
	}
	return answer
}

// readService lists the registrations of a service. With choose=NUMBER|KEY it answers with a stable choice of them.
func (a *API) readService(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	index := v.TableIndex("services")
	found, err := a.visibleServices(v, r, q.namespace, "")
	if err != nil {
		return nil, index, err
	}
	name := r.PathValue("name")
	named := selectItems(found, func(s *fleet.ServiceRegistration) bool { return s.ServiceName == name })
	choose := r.URL.Query().Get("choose")
	if choose != "" && (r.URL.Query().Has("per_page") || r.URL.Query().Has("next_token")) {
		return nil, index, fleet.Errorf(fleet.CodeInvalid, "read service %q: the parameter choose picks from all registrations, not from a page", name).
			WithHint("leave out per_page and next_token")
	}
	answer, err := page(r, filterByPrefix(q, named, registrationID), registrationKey, unchangedItem[*fleet.ServiceRegistration])
	if err == nil && choose != "" {
		answer.answer, err = chooseRegistrations(answer.answer.(shownList[*fleet.ServiceRegistration]), choose)
	}
	return answer, index, err
}

func registrationID(s *fleet.ServiceRegistration) string { return s.ID }

// registrationKey is the order key of lists of registrations.
func registrationKey(s *fleet.ServiceRegistration) string { return s.Namespace + "\x00" + s.ID }

// chooseRegistrations returns as many registrations as choose, "NUMBER|KEY", says. A key always gets the same ones
// while they exist; different keys are spread over all. It reorders list.
func chooseRegistrations(list []*fleet.ServiceRegistration, choose string) ([]*fleet.ServiceRegistration, error) {
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

// deleteService always fails: registrations follow from running allocations. The error names the allocation to stop,
// or says that there is no such registration.
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
		if s.ServiceName == name && s.ID == id && grantOf(r).allowsItem(&s) {
			return nil, v.Index(), fleet.Errorf(fleet.CodeConflict, "delete a registration of service %q: its allocation %s is running", name, fleet.Short(s.AllocID)).
				WithHint("it goes when the allocation ends: stop that, or register its job without the service")
		}
	}
	return nil, v.Index(), fleet.Errorf(fleet.CodeNotFound, "service %q has no registration %q", name, id)
}

// jobServices lists the service registrations of a job's allocations.
func (a *API) jobServices(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	index := v.TableIndex("services")
	job := fleet.JobID(r.PathValue("id"))
	there, ok := v.Job(q.namespace, job)
	if !ok || !grantOf(r).allowsItem(there) {
		return nil, max(index, v.TableIndex("jobs")), fleet.Errorf(fleet.CodeNotFound, "job %q not found", job)
	}
	found, err := a.visibleServices(v, r, q.namespace, job)
	if err != nil {
		return nil, index, err
	}
	answer, err := page(r, filterByPrefix(q, found, registrationID), registrationKey, unchangedItem[*fleet.ServiceRegistration])
	return answer, max(index, there.CreateIndex), err
}

// allocServices lists the service registrations of an allocation, also unreachable ones.
func (a *API) allocServices(v *state.View, r *http.Request, q query, al *fleet.Alloc) (any, fleet.Index, error) {
	n, _ := v.Node(al.NodeID)
	found := func(yield func(*fleet.ServiceRegistration) bool) {
		for _, s := range taskenv.Registrations(al, n, a.cfg.Cluster.Self().Region) {
			if !yield(&s) {
				return
			}
		}
	}
	answer, err := page(r, filterByPrefix(q, found, registrationID), registrationKey, unchangedItem[*fleet.ServiceRegistration])
	return answer, al.ModifyIndex, err
}
