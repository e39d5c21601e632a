package api

import (
	"iter"
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

func (a *API) scalingEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/scaling/policies", inRequestNamespace("list-scaling-policies", "read-job"), a.readHandler(a.listScaling)},
		{"GET", "/v1/scaling/policy/{id}", inRequestNamespace("read-scaling-policy", "read-job"), a.readHandler(a.readScaling)},
	}
}

// listScaling lists the scaling policies of a namespace by id. The parameters job and type narrow the list.
func (a *API) listScaling(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	job, typ := r.URL.Query().Get("job"), r.URL.Query().Get("type")
	asked := selectItems(scalingPolicies(v, q), func(p *api.ScalingPolicy) bool {
		return (job == "" || p.Target["Job"] == job) && (typ == "" || p.Type == typ)
	})
	byID := func(p *api.ScalingPolicy) string { return p.ID }
	answer, err := page(r, filterByPrefix(q, asked, byID), byID, (*api.ScalingPolicy).Stub)
	return answer, v.TableIndex("jobs"), err
}

// readScaling answers with the scaling policy whose id is in the path.
func (a *API) readScaling(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	id := r.PathValue("id")
	for p := range scalingPolicies(v, q) {
		if p.ID == id && grantOf(r).allowsItem(p) {
			return p, p.ModifyIndex, nil
		}
	}
	return nil, v.TableIndex("jobs"), fleet.Errorf(fleet.CodeNotFound, "scaling policy %q not found", id)
}

// scalingPolicies iterates over the scaling policies of the namespace's jobs that are not stopped.
func scalingPolicies(v *state.View, q query) iter.Seq[*api.ScalingPolicy] {
	return func(yield func(*api.ScalingPolicy) bool) {
		for j := range v.Jobs(q.namespace, "") {
			if j.Stopped() {
				continue
			}
			for _, p := range jobPolicies(j) {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// jobPolicies returns the scaling policies of a job's groups and tasks.
func jobPolicies(j *fleet.Job) []*api.ScalingPolicy {
	var all []*api.ScalingPolicy
	for _, g := range j.TaskGroups {
		if g.Scaling != nil {
			all = append(all, policyOf(j, g.Name, "", g.Scaling))
		}
		for _, t := range g.Tasks {
			for i := range t.ScalingPolicies {
				all = append(all, policyOf(j, g.Name, t.Name, &t.ScalingPolicies[i]))
			}
		}
	}
	return all
}

// policyOf converts the scaling block of a group, or of a task (not ""), to the API's type. Its id is derived from
// what it scales.
func policyOf(j *fleet.Job, group, task string, s *fleet.ScalingPolicy) *api.ScalingPolicy {
	of := []string{j.Namespace, string(j.ID), group}
	target := map[string]string{"Namespace": j.Namespace, "Job": string(j.ID), "Group": group}
	if task != "" {
		of, target["Task"] = append(of, task), task
	}
	return &api.ScalingPolicy{
		ID: fleet.DeriveUUID("scaling", append(of, s.Type)...), Enabled: s.Enabled, Type: s.Type, Target: target,
		CreateIndex: j.CreateIndex, ModifyIndex: j.JobModifyIndex, Namespace: j.Namespace, Min: s.Min, Max: s.Max, Policy: s.Policy,
	}
}
