package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/drivers/docker"
)

// imageDaemon answers as a daemon that has images and containers, and fetches any image by its name.
type imageDaemon struct {
	dataDir, socket string

	mu       sync.Mutex
	images   map[string][]string // names by id
	fetches  map[string]string   // id that a registry has under a name
	runs     map[string]bool     // ids of images of containers
	requests int
	pulling  chan struct{} // a pull of the name "docker.io/library/slow" sends to it and waits for goOn; nil: it does not
	goOn     chan struct{}
}

func newImageDaemon(tb testing.TB) *imageDaemon {
	f := &imageDaemon{dataDir: tb.TempDir(), images: map[string][]string{}, fetches: map[string]string{}, runs: map[string]bool{}}
	f.socket = mustServeDaemon(tb, f.answer)
	return f
}

// agent returns the driver of an agent that has just started.
func (f *imageDaemon) agent(tb testing.TB) *docker.Driver {
	return (&daemon{name: docker.Docker, socket: f.socket}).mustDriver(tb, "boot", func(c *docker.Config) { c.DataDir = f.dataDir })
}

func (f *imageDaemon) answer(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v"), "/")
	name, isImage := strings.CutPrefix(path, "images/")
	switch {
	case path == "info":
		_, _ = io.WriteString(w, `{"DockerRootDir":"/images"}`)
	case path == "containers/json":
		list := []map[string]any{}
		for id := range f.runs {
			list = append(list, map[string]any{"Id": "c" + id, "ImageID": "sha256:" + id})
		}
		_ = json.NewEncoder(w).Encode(list)
	case path == "images/json":
		list := []map[string]any{}
		for id := range f.images {
			list = append(list, map[string]any{"Id": "sha256:" + id})
		}
		_ = json.NewEncoder(w).Encode(list)
	case path == "images/create":
		f.fetch(strings.TrimPrefix(r.URL.Query().Get("fromImage"), "docker.io/library/") + ":" + r.URL.Query().Get("tag"))
	case isImage && r.Method == http.MethodDelete:
		f.remove(w, name)
	case isImage:
		id, names := f.find(strings.TrimSuffix(name, "/json"))
		if id == "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"Id": "sha256:" + id, "RepoTags": names})
	}
}

// fetch gives an image the name under which it was fetched. The caller holds mu.
func (f *imageDaemon) fetch(name string) {
	if strings.HasPrefix(name, "slow:") && f.pulling != nil {
		f.mu.Unlock()
		f.pulling <- struct{}{}
		<-f.goOn
		f.mu.Lock()
	}
	f.name(f.fetches[name], name)
}

// name gives an image a name, which no other image has then. The caller holds mu.
func (f *imageDaemon) name(id, name string) {
	for other := range f.images {
		f.images[other] = slices.DeleteFunc(f.images[other], func(n string) bool { return n == name })
	}
	f.images[id] = append(f.images[id], name)
}

// find finds an image by a name or its id. The caller holds mu.
func (f *imageDaemon) find(name string) (string, []string) {
	for id, names := range f.images {
		if id == name || slices.Contains(names, name) {
			return id, names
		}
	}
	return "", nil
}

// remove removes a name, and the image with its last one unless a container uses it. The caller holds mu.
func (f *imageDaemon) remove(w http.ResponseWriter, name string) {
	id, names := f.find(name)
	switch {
	case id == "":
		w.WriteHeader(http.StatusNotFound)
	case len(names) > 1:
		f.images[id] = slices.DeleteFunc(names, func(n string) bool { return n == name })
		_, _ = io.WriteString(w, "[]")
	case f.runs[id]:
		w.WriteHeader(http.StatusConflict)
	default:
		delete(f.images, id)
		_, _ = io.WriteString(w, "[]")
	}
}

// change changes the daemon, as somebody else does.
func (f *imageDaemon) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// wantImages compares the ids of the daemon's images.
func (f *imageDaemon) wantImages(tb testing.TB, when string, want ...string) {
	tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := slices.Sorted(maps.Keys(f.images)); !slices.Equal(got, want) {
		tb.Errorf("%s: images %q, want %q", when, got, want)
	}
}

// mustFetch fetches images by their names.
func mustFetch(tb testing.TB, d *docker.Driver, names ...string) {
	tb.Helper()
	for _, name := range names {
		if _, err := d.FetchImage(tb.Context(), map[string]any{"image": name}); err != nil {
			tb.Fatal(err)
		}
	}
}

const week = 7 * 24 * time.Hour

// collectionOf is a collection after a time in which tasks needed images by these names.
func collectionOf(after time.Duration, needed ...string) drivers.ImageCollection {
	return drivers.ImageCollection{
		Elapsed: after, Delay: week,
		Needed: func(context.Context) (configs []map[string]any, err error) {
			for _, name := range needed {
				configs = append(configs, map[string]any{"image": name})
			}
			return configs, nil
		},
	}
}

// mustCollect collects images and compares the names of the removed ones.
func mustCollect(tb testing.TB, d drivers.ImageCollector, c drivers.ImageCollection, want ...string) {
	tb.Helper()
	if removed, err := d.CollectImages(tb.Context(), c); err != nil || !slices.Equal(removed, want) {
		tb.Errorf("removed %q, %v; want %q", removed, err, want)
	}
}

// TestOldImagesAreRemoved: an image that the driver fetched goes when no task has needed it for the delay, which
// counts on over restarts of the agent. The daemon is not asked before.
func TestOldImagesAreRemoved(t *testing.T) {
	f := newImageDaemon(t)
	f.images["0b"] = []string{"base:1"} // somebody else's
	f.fetches = map[string]string{"web:1": "01", "web:2": "02", "also:1": "0b"}
	d := f.agent(t)
	mustFetch(t, d, "web:1", "web:2", "base:1", "also:1")
	asked := f.requests
	mustCollect(t, d, collectionOf(10*week, "web:1", "docker://web:2"))
	mustCollect(t, d, collectionOf(week-2*time.Hour, "web:2"))
	if f.requests != asked {
		t.Errorf("the daemon was asked %d times although no image is due", f.requests-asked)
	}
	d = f.agent(t)
	mustCollect(t, d, collectionOf(time.Hour, "web:2"))
	d = f.agent(t)
	mustCollect(t, d, collectionOf(time.Hour-1, "web:2"))
	f.wantImages(t, "before the delay is over", "01", "02", "0b")
	mustCollect(t, d, collectionOf(1, "web:2"), "web:1")
	f.wantImages(t, "after the delay", "02", "0b")
	mustCollect(t, f.agent(t), collectionOf(100*week), "web:2")
	f.wantImages(t, "when nothing is needed", "0b")
}

// TestNeedBeginsTheDelayAnew, also if the agent restarts right after it.
func TestNeedBeginsTheDelayAnew(t *testing.T) {
	f := newImageDaemon(t)
	f.fetches["web:1"] = "01"
	mustFetch(t, f.agent(t), "web:1")
	mustCollect(t, f.agent(t), collectionOf(week-time.Hour))
	mustCollect(t, f.agent(t), collectionOf(time.Minute, "web:1"))
	mustCollect(t, f.agent(t), collectionOf(week-time.Hour))
	f.wantImages(t, "an hour before the delay is over", "01")
	never := collectionOf(100 * week)
	never.Delay = 0
	mustCollect(t, f.agent(t), never)
	f.wantImages(t, "without a delay", "01")
}

// TestShortDiskTakesTheLongestUnneeded, until it is short no more, and no image that was needed a moment ago.
func TestShortDiskTakesTheLongestUnneeded(t *testing.T) {
	f := newImageDaemon(t)
	d := f.agent(t)
	if info := d.Fingerprint(t.Context()); !info.Healthy {
		t.Fatalf("%+v", info)
	}
	f.fetches = map[string]string{"a:1": "0a", "b:1": "0b", "c:1": "0c", "d:1": "0d"}
	mustFetch(t, d, "a:1", "b:1", "c:1", "d:1")
	short := func(after time.Duration, images int, needed ...string) drivers.ImageCollection {
		c := collectionOf(after, needed...)
		c.IsShort = func(dir string) bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return dir == "/images" && len(f.images) > images
		}
		return c
	}
	mustCollect(t, d, short(time.Minute, 4, "a:1", "c:1", "d:1"))
	mustCollect(t, d, short(2*time.Minute-1, 0, "c:1", "d:1"))
	f.wantImages(t, "all were needed a moment ago", "0a", "0b", "0c", "0d")
	mustCollect(t, d, short(2*time.Minute, 3, "d:1"), "b:1")
	f.wantImages(t, "one is enough", "0a", "0c", "0d")
	mustCollect(t, d, short(time.Hour, 0, "d:1"), "a:1", "c:1")
	f.wantImages(t, "the last one is needed", "0d")
}

// TestUsedImagesStay: those of containers, whoever made them, those that a needed name has too, and all while it is not
// known what tasks need.
func TestUsedImagesStay(t *testing.T) {
	f := newImageDaemon(t)
	f.fetches = map[string]string{"web:1": "01"}
	d := f.agent(t)
	mustFetch(t, d, "web:1")
	f.change(func() { f.runs["01"] = true })
	mustCollect(t, d, collectionOf(week))
	f.change(func() { f.runs, f.images["01"] = nil, []string{"web:1", "other:1"} })
	mustCollect(t, d, collectionOf(week, "other:1"))
	f.wantImages(t, "used", "01")
	unknown := collectionOf(week)
	unknown.Needed = func(context.Context) ([]map[string]any, error) { return nil, errors.New("the journal cannot be read") }
	for _, c := range []drivers.ImageCollection{unknown, collectionOf(week, "web:${VERSION}")} {
		if removed, err := d.CollectImages(t.Context(), c); err == nil || len(removed) > 0 {
			t.Errorf("removed %q, %v; want an error", removed, err)
		}
	}
	f.change(func() { f.images["01"] = []string{"web:1"} })
	changing, asked := collectionOf(week), 0
	changing.Needed = func(context.Context) ([]map[string]any, error) {
		if asked++; asked == 1 {
			return nil, nil
		}
		return []map[string]any{{"image": "web:1"}}, nil // an allocation has come meanwhile
	}
	mustCollect(t, d, changing)
	f.wantImages(t, "needed since a moment ago", "01")
}

// TestImagesOfOthersStay: a name that moved to another image, an image that got a name from somebody, and a copied data
// directory, whose machine may have the images from somebody else.
func TestImagesOfOthersStay(t *testing.T) {
	f := newImageDaemon(t)
	f.fetches = map[string]string{"web:1": "01", "api:1": "02"}
	d := f.agent(t)
	mustFetch(t, d, "web:1", "api:1")
	f.change(func() {
		f.fetches["web:1"] = "03"
		f.name("04", "api:1")   // somebody fetched a newer one
		f.name("02", "saved:1") // and named the older one
	})
	if _, err := d.FetchImage(t.Context(), map[string]any{"image": "web:1", "force_pull": true}); err != nil {
		t.Fatal(err)
	}
	original, copied := f.dataDir, t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(original)); err != nil {
		t.Fatal(err)
	}
	f.dataDir = copied
	mustCollect(t, f.agent(t), collectionOf(100*week))
	f.wantImages(t, "a copy", "01", "02", "03", "04")
	f.dataDir = original
	mustCollect(t, f.agent(t), collectionOf(week, "web:1"), "01")
	mustCollect(t, f.agent(t), collectionOf(week), "web:1")
	f.wantImages(t, "the original", "02", "04")
	if err := os.WriteFile(filepath.Join(original, "images", "docker.json"), []byte(`{"version":1,"images":[{"name":"x","id":"../x"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	mustCollect(t, f.agent(t), collectionOf(week))
}

// TestAStartHoldsItsImage: an image is not removed while a start that needs it is under way.
func TestAStartHoldsItsImage(t *testing.T) {
	f := newImageDaemon(t)
	f.fetches = map[string]string{"slow:1": "01"}
	d := f.agent(t)
	mustFetch(t, d, "slow:1")
	f.change(func() { f.pulling, f.goOn = make(chan struct{}), make(chan struct{}) })
	ended := make(chan error, 1)
	go func() {
		_, err := d.FetchImage(t.Context(), map[string]any{"image": "slow:1", "force_pull": true})
		ended <- err
	}()
	<-f.pulling
	mustCollect(t, d, collectionOf(10*week))
	f.wantImages(t, "while it starts", "01")
	close(f.goOn)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	mustCollect(t, d, collectionOf(10*week), "slow:1")
}

// TestCollectImages has a real daemon fetch, run and lose an image: it stays while a task uses it or may need it, also
// for another agent, and starts without a registry.
func TestCollectImages(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		r := mustRegistry(t, d)
		dir := t.TempDir()
		agent := func() *docker.Driver {
			return d.mustDriver(t, "boot", func(c *docker.Config) { c.DataDir = dir })
		}
		image := r.image(":" + r.tag)
		cfg := newTaskConfig(t, "web", "while :; do sleep 100 & wait $!; done")
		cfg.Config["image"] = image
		_, task := mustStart(t, agent(), cfg)
		if err := r.server.Close(); err != nil { // the link is gone
			t.Fatal(err)
		}
		mustCollect(t, agent(), collectionOf(10*week))
		if err := errors.Join(task.Stop(t.Context(), "SIGKILL", 0), task.Forget(t.Context())); err != nil {
			t.Fatal(err)
		}
		mustCollect(t, agent(), collectionOf(10*week, image))
		cfg.ID = "alloc-1/web/2"
		_, task = mustStart(t, agent(), cfg)
		if err := errors.Join(task.Stop(t.Context(), "SIGKILL", 0), task.Forget(t.Context())); err != nil {
			t.Fatal(err)
		}
		mustCollect(t, agent(), collectionOf(10*week), image)
		if _, err := d.mustClient(t).ImageInspect(t.Context(), image); err == nil {
			t.Error("the image is still there")
		}
		if _, err := d.mustClient(t).ImageInspect(t.Context(), testImage); err != nil {
			t.Errorf("an image that the driver did not fetch: %v", err)
		}
	})
}
