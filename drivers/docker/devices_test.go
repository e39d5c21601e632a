package docker_test

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"

	"skerry/drivers/docker"
)

// TestDevicesByName: devices are asked for by name of a daemon that lists them all, and of no other. The daemon is made
// here, because the Docker of most distributions lists none.
func TestDevicesByName(t *testing.T) {
	const gpu, other = "nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-2"
	request := []container.DeviceRequest{{Driver: "cdi", DeviceIDs: []string{gpu}}}
	for _, c := range []struct {
		driver, lists string
		names         []string
		want          []container.DeviceRequest
	}{
		{docker.Docker, `[{"Source":"cdi","ID":"` + gpu + `"}]`, []string{gpu}, request},
		{docker.Docker, `[{"Source":"cdi","ID":"` + gpu + `"}]`, []string{gpu, other}, nil},
		{docker.Docker, `[{"Source":"other","ID":"` + gpu + `"}]`, []string{gpu}, nil},
		{docker.Docker, `null`, []string{gpu}, nil},
		{docker.Docker, `[{"Source":"cdi","ID":"` + gpu + `"}]`, nil, nil},
		{docker.Podman, `[{"Source":"cdi","ID":"` + gpu + `"}]`, []string{gpu}, nil},
	} {
		d, err := docker.New(docker.Config{
			Name: c.driver, Socket: mustServeInfo(t, `{"DiscoveredDevices":`+c.lists+`}`), BootID: "boot", Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := d.RequestDevices(t.Context(), c.names...); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s that lists %s, for %v: %+v, %v; want %+v", c.driver, c.lists, c.names, got, err, c.want)
		}
	}
}

// mustServeInfo serves a daemon's description on a socket, and returns its path.
func mustServeInfo(tb testing.TB, info string) string {
	tb.Helper()
	return mustServeDaemon(tb, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/info") {
			_, _ = io.WriteString(w, info)
		}
	})
}

// mustServeDaemon answers requests as a daemon would on a socket, and returns its path.
func mustServeDaemon(tb testing.TB, answer http.HandlerFunc) string {
	tb.Helper()
	socket := filepath.Join(tb.TempDir(), "d.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		tb.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer(w, r)
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	tb.Cleanup(func() {
		if err := server.Close(); err != nil {
			tb.Error(err)
		}
		<-ended
	})
	return socket
}
