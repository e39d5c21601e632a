package artifacts

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"skerry/drivers"
	"skerry/edge/store"
	"skerry/fleet"
	"skerry/fleet/placement"
	"skerry/fleet/taskenv"
)

// Prefetcher fetches the artifacts of jobs into the store, and their images through drivers, before an allocation is
// placed. It is safe for concurrent use.
type Prefetcher struct {
	fetcher *Fetcher
	node    func() fleet.Node
	drivers map[string]drivers.Driver
}

// NewPrefetcher makes a Prefetcher for a node. It does no I/O.
func NewPrefetcher(f *Fetcher, node func() fleet.Node, known map[string]drivers.Driver) *Prefetcher {
	return &Prefetcher{fetcher: f, node: node, drivers: known}
}

// wantedImage is the image of a task.
type wantedImage struct {
	task    string
	fetcher drivers.ImageFetcher
	config  map[string]any
}

// Fetch fetches the artifacts and images of the groups of a job that can run on this node, and pins the artifacts for
// owner. It skips those that are here already. It continues after an error, and returns all errors.
func (p *Prefetcher) Fetch(ctx context.Context, owner string, job *fleet.Job) (summary string, err error) {
	node := p.node()
	var requests []Request
	var images []wantedImage
	var errs []error
	fitting, why := 0, ""
	for i := range job.TaskGroups {
		g := &job.TaskGroups[i]
		if unfit := p.whyUnfit(&node, job, g); unfit != "" {
			why = unfit
			continue
		}
		fitting++
		for k := range g.Tasks {
			env := taskenv.NewBefore(job, g.Name, g.Tasks[k].Name, &node)
			found, image, err := p.needsOf(&g.Tasks[k], env)
			requests, images, errs = append(requests, found...), append(images, image...), append(errs, err)
		}
	}
	if fitting == 0 {
		return "no group of the job can run on this node: " + why, nil
	}
	keys := make([]store.Key, len(requests))
	for i := range requests {
		keys[i] = requests[i].Source.Key(requests[i].Headers)
	}
	if err := p.fetcher.cfg.Store.Pin(pinOf(owner), keys...); err != nil {
		return "", err
	}
	for _, r := range requests {
		r.Owner = pinOf(owner)
		errs = append(errs, p.fetcher.FetchToStore(ctx, r))
	}
	for _, m := range images {
		if _, err := m.fetcher.FetchImage(ctx, m.config); err != nil {
			errs = append(errs, fmt.Errorf("fetch the image of task %s: %w", m.task, err))
		}
	}
	return fmt.Sprintf("artifacts: %d, images: %d", len(requests), len(images)), errors.Join(errs...)
}

// Release allows the eviction of the artifacts that were fetched for owner.
func (p *Prefetcher) Release(owner string) error {
	return p.fetcher.cfg.Store.Unpin(pinOf(owner))
}

// Owners lists the owners that have pinned artifacts.
func (p *Prefetcher) Owners() []string {
	var owners []string
	for _, id := range p.fetcher.cfg.Store.PinnedAllocs() {
		if owner, ours := strings.CutPrefix(string(id), store.PrefetchPin); ours {
			owners = append(owners, owner)
		}
	}
	return owners
}

func pinOf(owner string) fleet.AllocID { return fleet.AllocID(store.PrefetchPin + owner) }

// whyUnfit returns why a group cannot run on a node, or "". It considers only reasons that stay: pool, datacenter,
// drivers and constraints.
func (p *Prefetcher) whyUnfit(n *fleet.Node, job *fleet.Job, g *fleet.TaskGroup) string {
	if !job.InPool(n.NodePool) || !job.InDatacenter(n.Datacenter) {
		return fmt.Sprintf("it is in node pool %s and datacenter %s", n.NodePool, n.Datacenter)
	}
	all := append(append([]fleet.Constraint{}, job.Constraints...), g.Constraints...)
	for i := range g.Tasks {
		all = append(all, g.Tasks[i].Constraints...)
		if d := n.Drivers[g.Tasks[i].Driver]; !d.Detected && !n.HasDriver(g.Tasks[i].Driver) {
			return fmt.Sprintf("it has no driver %s", g.Tasks[i].Driver)
		}
	}
	conditions, err := placement.Conditions(all)
	if err != nil {
		return err.Error()
	}
	for _, c := range conditions {
		if !c.Holds(n) {
			return "constraint " + c.Constraint().String()
		}
	}
	return ""
}

// needsOf returns the artifacts and the image of a task. Its error names the artifacts that depend on the allocation.
func (p *Prefetcher) needsOf(t *fleet.Task, env taskenv.Env) (requests []Request, images []wantedImage, err error) {
	var errs []error
	for i := range t.Artifacts {
		a := &t.Artifacts[i]
		known := true
		r, err := contentOf(a, func(s string) string {
			s = env.Replace(s)
			known = known && !strings.Contains(s, "${")
			return s
		})
		if !known {
			err = fleet.Errorf(fleet.CodeInvalid, "its source, options or headers have a variable that only an allocation knows").
				WithHint("it is fetched when the allocation starts: use variables of the job and the node")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("artifact %d of task %s: %w", i+1, t.Name, err))
			continue
		}
		requests = append(requests, r)
	}
	f, ok := p.drivers[t.Driver].(drivers.ImageFetcher)
	switch {
	case ok && len(fleet.SecretReferencesIn(t.Config[fleet.ConfigAuth])) > 0:
		errs = append(errs, fleet.Errorf(fleet.CodeInvalid, "image of task %s: the password of its registry is a secret that only a start knows", t.Name).
			WithHint("it is fetched when the allocation starts; store load brings it before"))
	case ok:
		images = append(images, wantedImage{t.Name, f, env.ReplaceAll(t.Config)})
	}
	return requests, images, errors.Join(errs...)
}
