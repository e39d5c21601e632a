package real_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"skerry/chaos/real"
	"skerry/drivers/docker"
	"skerry/drivers/docker/dockertest"
)

// examples is the folder of the job files that people try first.
var examples = filepath.Join("..", "..", "examples")

// TestDemoInContainers runs the demo on a Docker Engine that is there already, in which it leaves nothing.
func TestDemoInContainers(t *testing.T) {
	if testing.Short() {
		t.Skip("short: make test-real runs the demo on a real Docker Engine")
	}
	if err := dockertest.Missing(docker.Docker); err != nil {
		t.Skipf("no Docker Engine: %v", err)
	}
	g, _ := mustGround(t)
	engine, err := dockertest.New(dockertest.Config{Name: docker.Docker, Dir: filepath.Join(g.Dir, "engine")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Remove(); err != nil {
			t.Error(err)
		}
	})
	if err := engine.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_HOST", "unix://"+engine.Socket)
	if err := (real.Demo{Ground: g, Examples: examples, Driver: real.DockerDriver}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/containers/json?all=true", "/images/json"} {
		if left := mustAsk(t, engine.Socket, path); left != "[]" {
			t.Errorf("the demo leaves in the engine, at %s: %s", path, left)
		}
	}
}

// mustAsk returns the answer of the daemon at a socket.
func mustAsk(tb testing.TB, socket, path string) string {
	tb.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	resp, err := c.Get("http://daemon/v1.40" + path)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(string(answer))
}

// TestDemoSaysWhyThereIsNoDocker checks that a demo that must have Docker names a daemon elsewhere as the reason.
func TestDemoSaysWhyThereIsNoDocker(t *testing.T) {
	t.Setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
	t.Setenv("PATH", "/nowhere")
	err := real.Demo{Ground: real.Ground{Dir: t.TempDir(), Out: logWriter{t}}, Examples: examples, Driver: real.DockerDriver}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "find a Docker Engine: ") {
		t.Fatalf("the demo says %v", err)
	}
}
