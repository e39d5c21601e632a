package docker_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/drivers"
	"skerry/drivers/docker"
)

// checkRefusal starts a task whose image cannot be had. The error, which becomes the text of an event, must have all words of want and
// none of the other hints.
func checkRefusal(t *testing.T, driver *docker.Driver, cfg drivers.TaskConfig, recoverable bool, want ...string) {
	t.Helper()
	_, err := driver.Start(t.Context(), cfg)
	if err == nil {
		t.Fatal("the task was started")
	}
	for _, words := range want {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%v\ndoes not say %q", err, words)
		}
	}
	if strings.Contains(err.Error(), "\n") || strings.Count(err.Error(), " (") != 1 {
		t.Errorf("%v\nhas several lines, or not one hint", err)
	}
	if drivers.IsRecoverable(err) != recoverable {
		t.Errorf("%v\nis recoverable: %v, want %v", err, !recoverable, recoverable)
	}
}

// TestDamagedImage: a registry that sends other bytes than the digests say is named as the cause, and not the link.
func TestDamagedImage(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		for name, damage := range map[string]func(r *registry, cfg drivers.TaskConfig){
			"layer": func(r *registry, _ drivers.TaskConfig) {
				r.blobs[r.layer] = bytes.Repeat([]byte("x"), len(r.blobs[r.layer]))
			},
			"short layer": func(r *registry, _ drivers.TaskConfig) { r.blobs[r.layer] = r.blobs[r.layer][:100] },
			"config": func(r *registry, _ drivers.TaskConfig) {
				r.blobs[r.config] = bytes.Repeat([]byte(" "), len(r.blobs[r.config]))
			},
			"page": func(r *registry, _ drivers.TaskConfig) { r.blobs[r.digest] = []byte("<html>") },
			"digest": func(r *registry, cfg drivers.TaskConfig) {
				other := digestOf([]byte(r.tag))
				r.blobs[other], cfg.Config["image"] = r.blobs[r.digest], r.image("@"+other)
			},
		} {
			t.Run(name, func(t *testing.T) {
				r, cfg := mustRegistry(t, d), newTaskConfig(t, "web", "true")
				cfg.Config["image"] = r.image(":" + r.tag)
				damage(r, cfg)
				checkRefusal(t, d.mustDriver(t, "boot"), cfg, true, "pull image "+r.image(""), "(the registry sent other bytes than the image's digests say: ")
			})
		}
	})
}

// TestUnusableFile: a file of an image that is missing, cut or no image is a permanent error with a hint.
func TestUnusableFile(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		for _, tc := range []struct {
			name, load string
			content    []byte
			want       string
		}{
			{"missing", "local/absent.tar", nil, "(fetch it with an artifact block"},
			{"folder", "local", nil, "(fetch it with an artifact block"},
			{"empty", "local/image.tar", []byte{}, "(the file must be a whole archive of an image, as " + d.name + " save makes it"},
			{"damaged", "local/image.tar", bytes.Repeat([]byte("junk"), 1000), "(the file must be a whole archive of an image"},
			{"of files", "local/image.tar", mustBusybox(t, ""), "(the file must be a whole archive of an image"},
		} {
			t.Run(tc.name, func(t *testing.T) {
				cfg := newTaskConfig(t, "web", "true")
				cfg.Config["image"], cfg.Config["load"] = "localhost/absent:1", tc.load
				if tc.content != nil {
					if err := os.WriteFile(filepath.Join(cfg.LocalDir, "image.tar"), tc.content, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				checkRefusal(t, d.mustDriver(t, "boot"), cfg, false, "load image from "+tc.load, tc.want)
			})
		}
	})
}

// TestAuth: a registry that asks for credentials gets those of auth, and the error of wrong ones names them.
func TestAuth(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		const hint = "credentials in auth { username, password })"
		auth := func(password string) map[string]any {
			return map[string]any{"username": "shop", "password": password, "server_address": d.registry}
		}
		for _, tc := range []struct {
			name   string
			public bool
			config map[string]any
			want   []string // nil: the task runs
		}{
			{"right", false, map[string]any{"auth": auth("right")}, nil},
			{"wrong", false, map[string]any{"auth": auth("wrong")}, []string{"unauthorized", hint}},
			{"none", false, nil, []string{hint}},
			{"wrong and not needed", true, map[string]any{"auth": auth("wrong"), "auth_soft_fail": true}, nil},
			{"wrong but needed", false, map[string]any{"auth": auth("wrong"), "auth_soft_fail": true}, []string{"with the credentials of auth: ", "unauthorized", "; without: ", hint}},
			{"wrong without soft fail", true, map[string]any{"auth": auth("wrong")}, []string{"unauthorized", hint}},
		} {
			t.Run(tc.name, func(t *testing.T) {
				r, driver, cfg := mustRegistry(t, d), d.mustDriver(t, "boot"), newTaskConfig(t, "web", "true")
				r.password, r.public = "right", tc.public
				cfg.Config["image"] = r.image(":" + r.tag)
				for k, v := range tc.config {
					cfg.Config[k] = v
				}
				if tc.want != nil {
					checkRefusal(t, driver, cfg, true, tc.want...)
					return
				}
				_, task := mustStart(t, driver, cfg)
				if exit := mustWait(t, task); !exit.Success() {
					t.Errorf("%+v", exit)
				}
			})
		}
	})
}

// TestPullTimeout: a registry that answers nothing is given up after image_pull_timeout.
func TestPullTimeout(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		r, cfg := mustRegistry(t, d), newTaskConfig(t, "web", "true")
		r.silent = true
		cfg.Config["image"], cfg.Config["image_pull_timeout"] = r.image(":"+r.tag), "1s"
		checkRefusal(t, d.mustDriver(t, "boot"), cfg, true, "not complete within 1s", "(set image_pull_timeout for a slow link)")
	})
}
