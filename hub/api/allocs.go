package api

import (
	"iter"
	"net/http"
	"strings"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/timeline"
	"skerry/hub/state"
)

func (a *API) allocEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/allocations", inRequestNamespace("read-job"), a.readHandler(a.listAllocs)},
		{"GET", "/v1/allocation/{id}", inObjectNamespace("read-job"), readObject(a, "allocs", needAlloc, a.readAlloc)},
		{writes, "/v1/allocation/{id}/stop", inObjectNamespace("alloc-lifecycle"), a.writeHandler(a.stopAlloc)},
		{"GET", "/v1/allocation/{id}/history", inObjectNamespace("read-job"), readObject(a, "allocs", needAlloc, a.allocHistory)},
		{"GET", "/v1/client/fs/logs/{id}", inObjectNamespace("read-logs", "read-fs"), a.streamTaskLogs},
	}
}

// allocStub returns the list item of an allocation, without its resources.
func allocStub(al *fleet.Alloc) api.AllocStub {
	stub := api.AllocStub{
		ID: al.ID, EvalID: al.EvalID, Name: al.Name, Namespace: al.Namespace, NodeID: al.NodeID,
		NodeName: al.NodeName, JobID: al.JobID, JobVersion: al.JobVersion, TaskGroup: al.TaskGroup,
		DesiredStatus: al.DesiredStatus, DesiredDescription: al.DesiredDescription, DesiredTransition: al.DesiredTransition, Retired: al.Retired,
		ClientStatus: al.ClientStatus, ClientDescription: al.ClientDescription, TaskStates: al.TaskStates, Held: al.Held,
		DeploymentStatus: al.DeploymentStatus,
		FollowupEvalID:   al.FollowupEvalID, PreviousAllocation: al.PreviousAllocation, NextAllocation: al.NextAllocation,
		RescheduleTracker: al.RescheduleTracker, CreateIndex: al.CreateIndex, ModifyIndex: al.ModifyIndex,
		PreemptedAllocations: al.PreemptedAllocations, PreemptedByAllocation: al.PreemptedByAllocation,
		CreateTime: al.CreateTime, ModifyTime: al.ModifyTime,
	}
	if al.Job != nil {
		stub.JobType = al.Job.Type
	}
	return stub
}

// allocStubs returns the function that makes list items of allocations. The request's parameters resources and
// task_states say whether an item has the resources and the states of the tasks.
func allocStubs(r *http.Request) (func(*fleet.Alloc) api.AllocStub, error) {
	resources, err := queryFlag(r, "resources", false)
	if err != nil {
		return nil, err
	}
	states, err := queryFlag(r, "task_states", true)
	return func(al *fleet.Alloc) api.AllocStub {
		stub := allocStub(al)
		if resources {
			stub.AllocatedResources = al.ResourcesShape()
		}
		if !states {
			stub.TaskStates = nil
		}
		return stub
	}, err
}

// pageAllocs is page for allocations, with the items that allocStubs makes.
func pageAllocs(r *http.Request, items iter.Seq[*fleet.Alloc], key func(*fleet.Alloc) string) (pageOfItems, error) {
	show, err := allocStubs(r)
	if err != nil {
		return pageOfItems{}, err
	}
	return page(r, items, key, show)
}

// listAllocs lists the allocations of a namespace from the oldest to the newest; with a prefix of the id, by id.
func (a *API) listAllocs(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	key := func(al *fleet.Alloc) string { return ageKey(q, al.CreateIndex, string(al.ID)) }
	answer, err := pageAllocs(r, v.Allocs(q.namespace, q.prefix), key)
	return answer, v.TableIndex("allocs"), err
}

// allocKey is the order key of lists that are ordered by allocation id.
func allocKey(al *fleet.Alloc) string { return string(al.ID) }

// needAlloc returns the allocation whose id is in the request's path. CodeNotFound: the state does not have it.
func needAlloc(v *state.View, r *http.Request) (*fleet.Alloc, error) {
	id := fleet.AllocID(r.PathValue("id"))
	al, ok := v.Alloc(id)
	missing := fleet.Errorf(fleet.CodeNotFound, "allocation %q not found", id)
	if !ok {
		return nil, missing
	}
	return al, grantOf(r).checkObject(al, missing)
}

// readAlloc answers with the whole allocation.
func (a *API) readAlloc(_ *state.View, _ *http.Request, _ query, al *fleet.Alloc) (any, fleet.Index, error) {
	return al, al.ModifyIndex, nil
}

// freshAlloc waits until this hub has caught up with the leader, and returns a view and the allocation whose id is
// in the request's path. Requests that change an allocation use it.
func (a *API) freshAlloc(r *http.Request) (*state.View, *fleet.Alloc, error) {
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, nil, err
	}
	v := a.cfg.State.View()
	al, err := needAlloc(v, r)
	return v, al, err
}

// stopAlloc stops an allocation and creates an evaluation of its job, which replaces it. With no_shutdown_delay=true
// tasks stop without their shutdown_delay; with reschedule=true it is replaced even if it fails before it stops.
func (a *API) stopAlloc(r *http.Request) (any, fleet.Index, error) {
	without, err := noDelay(r)
	if err != nil {
		return nil, 0, err
	}
	reschedule, err := queryFlag(r, "reschedule", false)
	if err != nil {
		return nil, 0, err
	}
	_, al, err := a.freshAlloc(r)
	if err != nil {
		return nil, 0, err
	}
	return commitAnswer(a, r, state.AllocStop{
		Allocs: []fleet.AllocID{al.ID}, EvalSeed: a.cfg.NewID(), Now: a.cfg.Now().UnixNano(), NoShutdownDelay: without, Reschedule: reschedule,
	}, func(res state.Result) api.AllocStopAnswer {
		return api.AllocStopAnswer{EvalID: res.Eval, Index: res.Index}
	})
}

// noDelay reads the parameter no_shutdown_delay: true means that tasks stop without their shutdown_delay.
func noDelay(r *http.Request) (bool, error) { return queryFlag(r, "no_shutdown_delay", false) }

// allocHistory answers with the allocation's timeline, which merges the records of hubs and edge.
func (a *API) allocHistory(v *state.View, _ *http.Request, _ query, al *fleet.Alloc) (any, fleet.Index, error) {
	return api.HistoryAnswer{Alloc: allocStub(al), Entries: timeline.Order(v.History(al.ID)), Dropped: v.HistoryDropped(al.ID)}, al.ModifyIndex, nil
}

// taskOf returns the task with the name, or for "" the only task of the allocation's group. It fails if there is no
// such task, or several for "". If the state lacks the allocation's job, it returns name unchecked.
func taskOf(al *fleet.Alloc, name string) (string, error) {
	g := al.Group()
	if g == nil {
		return name, nil
	}
	names := make([]string, 0, len(g.Tasks))
	for _, t := range g.Tasks {
		if t.Name == name {
			return name, nil
		}
		names = append(names, t.Name)
	}
	switch {
	case name != "":
		return "", fleet.Errorf(fleet.CodeNotFound, "allocation %s has no task %q", fleet.Short(al.ID), name).
			WithHint("it has: %s", strings.Join(names, ", "))
	case len(names) == 1:
		return names[0], nil
	}
	return "", fleet.Errorf(fleet.CodeInvalid, "allocation %s has more than one task", fleet.Short(al.ID)).
		WithHint("name one of: %s", strings.Join(names, ", "))
}
