package artifacts_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"skerry/drivers"
	"skerry/edge/artifacts"
	"skerry/edge/store"
	"skerry/fleet"
)

// imageDriver is a driver that fetches images.
type imageDriver struct {
	drivers.Driver
	fetched []string
	fail    error
}

func (d *imageDriver) FetchImage(_ context.Context, config map[string]any) (string, error) {
	d.fetched = append(d.fetched, config["image"].(string))
	return "", d.fail
}

// siteNode is a node with a driver of images, and one without.
func siteNode() fleet.Node {
	works := fleet.DriverInfo{Detected: true, Healthy: true}
	return fleet.Node{
		ID: "n1", Name: "shop-1", Datacenter: "dc1", NodePool: "default", Meta: map[string]string{"lang": "de"},
		Drivers: map[string]fleet.DriverInfo{"docker": {Detected: true}, "raw_exec": works},
	}
}

func jobWith(groups ...fleet.TaskGroup) *fleet.Job {
	return &fleet.Job{ID: "shop", Name: "shop", Namespace: "default", Datacenters: []string{"*"}, TaskGroups: groups}
}

func groupWith(name string, t fleet.Task) fleet.TaskGroup {
	t.Name = "web"
	return fleet.TaskGroup{Name: name, Count: 1, Tasks: []fleet.Task{t}}
}

func newPrefetcher(s *site, images *imageDriver) *artifacts.Prefetcher {
	return artifacts.NewPrefetcher(s.fetcher, siteNode, map[string]drivers.Driver{"docker": images, "raw_exec": nil})
}

// The task finds what was fetched before, without a network. It stays after a restart and while allocations end, and
// may be evicted once it is let go.
func TestPrefetchedArtifactNeedsNoNetwork(t *testing.T) {
	srv, n := serve(t, map[string][]byte{"prices-de": []byte("content"), "more": []byte("more")})
	source := srv.URL + "/prices-${meta.lang}"
	task := newTask(t, fleet.TaskArtifact{GetterSource: srv.URL + "/prices-de", GetterHeaders: map[string]string{"X-Job": "shop"}})
	images := &imageDriver{}
	p := newPrefetcher(task.site, images)
	job := jobWith(
		groupWith("web", fleet.Task{Driver: "raw_exec", Artifacts: []fleet.TaskArtifact{{GetterSource: source, GetterHeaders: map[string]string{"X-Job": "${NOMAD_JOB_ID}"}}}}),
		groupWith("till", fleet.Task{Driver: "docker", Config: map[string]any{"image": "till:${NOMAD_META_v}", "args": []any{"${NOMAD_PORT_http}"}}, Meta: map[string]string{"v": "7"}}),
	)
	for range 2 {
		if said, err := p.Fetch(t.Context(), "p1", job); err != nil || said != "artifacts: 1, images: 1" {
			t.Fatalf("%q, %v", said, err)
		}
	}
	if n.Load() != 1 || len(images.fetched) != 2 || images.fetched[0] != "till:7" {
		t.Errorf("%d requests, images %q", n.Load(), images.fetched)
	}
	srv.Close()
	if err := task.prepare(t); err != nil { // an agent that has just started
		t.Fatal(err)
	}
	task.mustHave(t, "web/local/prices-de", "content")
	p = newPrefetcher(task.site, images)
	if got := p.Owners(); len(got) != 1 || got[0] != "p1" {
		t.Fatalf("owners after a restart: %q", got)
	}
	if err := errors.Join(task.store.Unpin("alloc-1"), p.Release("p1"), p.Release("p1")); err != nil {
		t.Fatal(err)
	}
	if len(p.Owners()) != 0 || len(task.store.PinnedAllocs()) != 0 {
		t.Errorf("owners %q, pins %q", p.Owners(), task.store.PinnedAllocs())
	}
}

// One content that cannot be fetched keeps no other from being fetched.
func TestPrefetchGoesOnAfterAFailure(t *testing.T) {
	srv, n := serve(t, map[string][]byte{"a": []byte("content")})
	s := newSite(t)
	images := &imageDriver{fail: errors.New("no registry")}
	said, err := newPrefetcher(s, images).Fetch(t.Context(), "p1", jobWith(
		groupWith("web", fleet.Task{Driver: "docker", Config: map[string]any{"image": "web:1"}, Artifacts: []fleet.TaskArtifact{
			{GetterSource: srv.URL + "/missing"}, {GetterSource: srv.URL + "/${NOMAD_ALLOC_INDEX}"}, {GetterSource: "svn::x"},
			{GetterSource: srv.URL + "/a", GetterOptions: map[string]string{"checksum": "md5:9a0364b9e99bb480dd25e1f0284c8555"}},
			{GetterSource: srv.URL + "/a", GetterHeaders: map[string]string{"Key": "${NOMAD_ALLOC_ID}"}},
		}})))
	for _, want := range []string{"404", "artifact 2 of task web: its source, options or headers have a variable that only an allocation knows", "artifact 3", "artifact 5", "fetch the image of task web: no registry"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
	if !s.store.Has(store.Key{Source: srv.URL + "/a", Checksum: "md5:9a0364b9e99bb480dd25e1f0284c8555"}) || n.Load() != 2 {
		t.Errorf("%q, %d requests", said, n.Load())
	}
}

// Nothing is fetched for a group that this node cannot run.
func TestPrefetchOfGroupsThatDoNotFit(t *testing.T) {
	s := newSite(t)
	never := fleet.TaskArtifact{GetterSource: "https://never.invalid/a"}
	for want, change := range map[string]func(*fleet.Job){
		"it is in node pool default":      func(j *fleet.Job) { j.NodePool = "ships" },
		"it is in node pool default and ": func(j *fleet.Job) { j.Datacenters = []string{"dc2"} },
		"it has no driver podman":         func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Driver = "podman" },
		"constraint ${meta.lang} = fr": func(j *fleet.Job) {
			j.Constraints = []fleet.Constraint{{LTarget: "${meta.lang}", RTarget: "fr", Operand: "="}}
		},
	} {
		job := jobWith(groupWith("web", fleet.Task{Driver: "raw_exec", Artifacts: []fleet.TaskArtifact{never}}))
		change(job)
		said, err := newPrefetcher(s, nil).Fetch(t.Context(), "p1", job)
		if err != nil || !strings.HasPrefix(said, "no group of the job can run on this node: "+want) {
			t.Errorf("%q: %q, %v", want, said, err)
		}
	}
	fits := jobWith(groupWith("web", fleet.Task{Driver: "raw_exec"}), groupWith("ship", fleet.Task{Driver: "podman", Artifacts: []fleet.TaskArtifact{never}}))
	if said, err := newPrefetcher(s, nil).Fetch(t.Context(), "p1", fits); err != nil || said != "artifacts: 0, images: 0" {
		t.Errorf("a group without needs: %q, %v", said, err)
	}
}
