package docker_test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/client"

	"skerry/drivers"
	"skerry/fleet"
)

// registry is a registry on the loopback interface that has one image of one layer. It speaks the part of the
// distribution API that a pull needs.
type registry struct {
	listener net.Listener
	server   *http.Server
	tag      string // of the image; another one in each run
	digest   string // of the manifest
	blobs    map[string][]byte
	layer    string // digest of the layer
	config   string // digest of the image's configuration

	// Set before the registry is asked.
	password string // of the user "shop"; "": the registry asks for none
	public   bool   // a token for the image is given to all who name no wrong password, as Docker Hub does
	silent   bool   // it answers nothing

	mu     sync.Mutex
	layers int // times that the layer was fetched
}

// mustRegistry starts a registry on a daemon's listener, with an image of its own.
func mustRegistry(tb testing.TB, d *daemon) *registry {
	tb.Helper()
	var layer bytes.Buffer
	files := mustBusybox(tb, rand.Text()) // Podman remembers layers of earlier runs
	zip := gzip.NewWriter(&layer)
	_, err := zip.Write(files)
	if err == nil {
		err = zip.Close()
	}
	if err != nil {
		tb.Fatal(err)
	}
	listener, err := net.Listen("tcp", d.registry)
	if err != nil {
		tb.Fatal(err)
	}
	r := &registry{listener: listener, tag: strings.ToLower(rand.Text()), blobs: map[string][]byte{}}
	add := func(b []byte) string {
		digest := digestOf(b)
		r.blobs[digest] = b
		return digest
	}
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			tb.Fatal(err)
		}
		return b
	}
	r.layer = add(layer.Bytes())
	config := encode(map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digestOf(files)}},
	})
	r.config = add(config)
	const kind = "application/vnd.docker."
	manifest := encode(map[string]any{
		"schemaVersion": 2, "mediaType": kind + "distribution.manifest.v2+json",
		"config": map[string]any{"mediaType": kind + "container.image.v1+json", "size": len(config), "digest": r.config},
		"layers": []any{map[string]any{"mediaType": kind + "image.rootfs.diff.tar.gzip", "size": layer.Len(), "digest": r.layer}},
	})
	r.digest = add(manifest)
	r.server = &http.Server{Handler: r}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = r.server.Serve(r.listener)
	}()
	tb.Cleanup(func() {
		_ = r.server.Close()
		<-served
	})
	return r
}

// image returns the name of the image with a tag or digest.
func (r *registry) image(suffix string) string {
	return r.listener.Addr().String() + "/shop/web" + suffix
}

func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	parts := strings.Split(q.URL.Path, "/")
	last := parts[len(parts)-1]
	if last == r.tag {
		last = r.digest
	}
	user, password, sent := q.BasicAuth()
	known := user == "shop" && password == r.password
	refuse := func(challenge string) {
		w.Header().Set("WWW-Authenticate", challenge)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`)
	}
	switch {
	case r.silent:
		<-q.Context().Done()
	case r.public && q.URL.Path == "/token" && (known || !sent):
		_, _ = io.WriteString(w, `{"token":"given"}`)
	case r.public && q.Header.Get("Authorization") != "Bearer given":
		refuse(`Bearer realm="http://` + r.listener.Addr().String() + `/token",service="shop"`)
	case r.password != "" && !r.public && !known:
		refuse(`Basic realm="shop"`)
	case q.URL.Path == "/v2/":
	case strings.Contains(q.URL.Path, "/manifests/") && r.blobs[last] != nil:
		w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
		w.Header().Set("Docker-Content-Digest", last)
		_, _ = w.Write(r.blobs[last])
	case strings.Contains(q.URL.Path, "/blobs/") && r.blobs[last] != nil:
		if last == r.layer && q.Method == http.MethodGet {
			r.mu.Lock()
			r.layers++
			r.mu.Unlock()
		}
		_, _ = w.Write(r.blobs[last])
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`)
	}
}

// fetched returns how often the layer was fetched.
func (r *registry) fetched() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.layers
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// An image is pulled once for several tasks, and never again once it is there, by its tag or its digest.
func TestPull(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		r := mustRegistry(t, d)
		driver := d.mustDriver(t, "boot")
		cfg := newTaskConfig(t, "absent", "true")
		cfg.Config["image"] = r.image(":none")
		if _, err := driver.Start(t.Context(), cfg); err == nil || !drivers.IsRecoverable(err) || !strings.Contains(err.Error(), "registry has no such image") {
			t.Errorf("Start: %v, want a recoverable error with a hint", err)
		}
		const tasks = 4
		errs := make([]error, tasks)
		var starting sync.WaitGroup
		for i := range tasks {
			cfg := newTaskConfig(t, fmt.Sprintf("web%d", i), "true")
			cfg.Config["image"] = r.image(":" + r.tag)
			starting.Go(func() {
				var h drivers.Handle
				if h, errs[i] = driver.Start(t.Context(), cfg); errs[i] != nil {
					return
				}
				task, err := driver.Recover(t.Context(), cfg, h)
				if err == nil {
					_, err = task.Wait(t.Context())
				}
				if err == nil {
					err = task.Forget(t.Context())
				}
				errs[i] = err
			})
		}
		starting.Wait()
		for i, err := range errs {
			if err != nil {
				t.Errorf("task %d: %v", i, err)
			}
		}
		if n := r.fetched(); n != 1 {
			t.Errorf("the layer was fetched %d times, want once", n)
		}
		if err := r.server.Close(); err != nil { // the link is gone
			t.Fatal(err)
		}
		for _, suffix := range []string{":" + r.tag, "@" + r.digest} {
			cfg := newTaskConfig(t, "offline", "true")
			cfg.Config["image"] = r.image(suffix)
			_, task := mustStart(t, driver, cfg)
			if exit := mustWait(t, task); !exit.Success() {
				t.Errorf("%s: %+v", suffix, exit)
			}
		}
		cfg = newTaskConfig(t, "forced", "true")
		cfg.Config["image"], cfg.Config["force_pull"] = r.image(":"+r.tag), true
		if _, err := driver.Start(t.Context(), cfg); err == nil || !drivers.IsRecoverable(err) {
			t.Errorf("force_pull without a registry: %v, want a recoverable error", err)
		}
	})
}

// An image is fetched before there is a task, once, and found by the task without a registry.
func TestFetchImage(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		r := mustRegistry(t, d)
		fetcher := d.mustDriver(t, "boot")
		cfg := newTaskConfig(t, "web", "true")
		cfg.Config["image"] = r.image(":" + r.tag)
		early := maps.Clone(cfg.Config)
		early["args"], early["image_pull_timeout"] = []any{"${NOMAD_PORT_http}"}, "${NOMAD_META_timeout}"
		for range 2 {
			if image, err := fetcher.FetchImage(t.Context(), early); err != nil || image != r.image(":"+r.tag) {
				t.Fatalf("%q, %v", image, err)
			}
		}
		if n := r.fetched(); n != 1 {
			t.Errorf("the layer was fetched %d times, want once", n)
		}
		if _, err := fetcher.FetchImage(t.Context(), map[string]any{"image": r.image(":none")}); err == nil || !strings.Contains(err.Error(), "pull image") {
			t.Errorf("an image that is not there: %v", err)
		}
		for _, config := range []map[string]any{{"image": "web:${NOMAD_ALLOC_INDEX}"}, {}, {"image": "web", "unknown": 1}} {
			if _, err := fetcher.FetchImage(t.Context(), config); fleet.CodeOf(err) != fleet.CodeInvalid {
				t.Errorf("%v: %v", config, err)
			}
		}
		if image, err := fetcher.FetchImage(t.Context(), map[string]any{"image": "web", "load": "local/web.tar"}); err != nil || image != "" {
			t.Errorf("an image of a file: %q, %v", image, err)
		}
		if err := r.server.Close(); err != nil { // the link is gone
			t.Fatal(err)
		}
		_, task := mustStart(t, d.mustDriver(t, "boot"), cfg)
		if exit := mustWait(t, task); !exit.Success() {
			t.Errorf("%+v", exit)
		}
	})
}

// An image is loaded from a file in the task's folder, and from nowhere else.
func TestLoad(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		const name = "localhost/skerry-loaded:1"
		c := d.mustClient(t)
		if _, err := c.ImageTag(t.Context(), client.ImageTagOptions{Source: testImage, Target: name}); err != nil {
			t.Fatal(err)
		}
		saved, err := c.ImageSave(t.Context(), []string{name})
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(saved)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ImageRemove(t.Context(), name, client.ImageRemoveOptions{}); err != nil {
			t.Fatal(err)
		}
		cfg := newTaskConfig(t, "web", "echo loaded")
		if err := os.WriteFile(filepath.Join(cfg.LocalDir, "image.tar"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.Config["image"], cfg.Config["load"] = name, "../../etc/passwd"
		if _, err := d.mustDriver(t, "boot").Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "not in the task's folder") {
			t.Errorf("load of a foreign file: %v", err)
		}
		cfg.Config["load"] = "local/image.tar"
		_, task := mustStart(t, d.mustDriver(t, "boot"), cfg)
		if exit := mustWait(t, task); !exit.Success() || readLogs(cfg) != "loaded\n" {
			t.Errorf("%+v, output %q", exit, readLogs(cfg))
		}
	})
}
