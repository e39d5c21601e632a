package edge

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/fleet/taskenv"
	"skerry/internal/pace"
)

// imageInterval is the time between two collections of images.
const imageInterval = time.Minute

// ImageCollection says which images of tasks may be removed from this machine.
type ImageCollection struct {
	// Needed returns the config blocks of a driver's tasks whose images must stay: those of allocations that have not
	// ended or that a person on site stopped, and those of prefetched jobs. An error keeps all images.
	Needed func(ctx context.Context, driver string) ([]map[string]any, error)
	// Elapsed is the time since the last collection, by a monotonic clock.
	Elapsed time.Duration
	// IsShort reports whether the use of the disk of a folder is above the thresholds.
	IsShort func(dir string) bool
}

// collectImages calls Config.CollectImages regularly until ctx ends.
func (e *Edge) collectImages(ctx context.Context) {
	if e.cfg.CollectImages == nil {
		return
	}
	for last := time.Now(); pace.Rest(ctx, imageInterval); {
		now := time.Now()
		e.cfg.CollectImages(ctx, ImageCollection{Needed: e.configsWithImages, Elapsed: now.Sub(last), IsShort: e.isDiskShort})
		last = now
	}
}

// isDiskShort reports whether the use of the disk of a folder is above the thresholds for collections. An unknown use
// is not.
func (e *Edge) isDiskShort(dir string) bool {
	u, err := e.measureDiskOf(dir)
	return err == nil && e.cfg.Collect.IsShort(u)
}

// configsWithImages returns the config blocks of a driver's tasks whose images must stay.
func (e *Edge) configsWithImages(ctx context.Context, driver string) ([]map[string]any, error) {
	want, err := e.journal.Desired(ctx)
	if err != nil {
		return nil, err
	}
	node := e.nodeWithVolumes()
	configs, err := configsOfAllocs(driver, want.Allocs, e.journal.States(), &node)
	if err != nil {
		return nil, err
	}
	for _, job := range e.prefetch.Jobs() {
		for i := range job.TaskGroups {
			g := &job.TaskGroups[i]
			for k := range g.Tasks {
				if t := &g.Tasks[k]; t.Driver == driver {
					configs = append(configs, taskenv.NewBefore(job, g.Name, t.Name, &node).ReplaceAll(t.Config))
				}
			}
		}
	}
	return configs, nil
}

// configsOfAllocs returns the config blocks of a driver's tasks in allocations that run or may start again, with ${…}
// replaced where it is known before the start. It returns an error while the job of such an allocation is not known.
func configsOfAllocs(driver string, desired map[fleet.AllocID]journal.DesiredAlloc, states map[fleet.AllocID]journal.State, node *fleet.Node) ([]map[string]any, error) {
	var configs []map[string]any
	for _, id := range slices.Sorted(maps.Keys(desired)) {
		w, s := desired[id], states[id]
		if s.Terminal() && s.Held == nil && !w.KeptStopped || w.Stop && w.Alloc.JobHash == "" {
			continue // it has ended for good, or only its stop is known
		}
		if w.Alloc.Job == nil {
			return nil, fmt.Errorf("the job of allocation %s is not here yet", fleet.Short(id))
		}
		group := w.Alloc.Group()
		if group == nil {
			continue
		}
		for i := range group.Tasks {
			t := &group.Tasks[i]
			switch {
			case t.Driver != driver:
			case slices.ContainsFunc(t.Templates, func(template fleet.Template) bool { return template.Envvars }):
				configs = append(configs, t.Config) // its templates may replace any variable
			default:
				env := taskenv.New(taskenv.Place{Alloc: &w.Alloc, Node: node, Task: t.Name, Region: w.Alloc.Job.Region})
				configs = append(configs, env.ReplaceAll(t.Config))
			}
		}
	}
	return configs, nil
}
