package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"skerry/chaos/containers"
	"skerry/drivers/docker"
	"skerry/drivers/docker/dockertest"
)

// Drivers of the tasks of a Demo.
const (
	AnyDriver     = "auto" // Docker if it works here, otherwise RawExecDriver
	DockerDriver  = docker.Docker
	RawExecDriver = "raw_exec"
)

const (
	// systemDocker is the socket of the machine's Docker Engine, unless the variable DOCKER_HOST names another one.
	systemDocker = "/var/run/docker.sock"
	// findDockerBound is the maximum time in which a Docker Engine has to answer, make an image and run a container.
	findDockerBound = 25 * time.Second
	// cleanupBound is the maximum time of the removal of containers and image.
	cleanupBound = time.Minute
	// demoImage is the name of the demo's image; its tag is that of the run.
	demoImage = "localhost/skerry-demo"
)

// demoDocker is the Docker Engine that runs the tasks of a demo.
type demoDocker struct {
	*containers.Engine
	own   *dockertest.Daemon // nil: the machine's own engine is used
	image string
	said  string // one line for people
}

// findDocker returns a Docker Engine that runs containers on this machine: the machine's own, or one that it starts
// with files in the run's folder. Its error says why there is none.
func (g Ground) findDocker(ctx context.Context) (*demoDocker, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the driver reads the log files of Docker Engine, which only root may do")
	}
	if err := containers.CheckBusybox(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, findDockerBound)
	defer cancel()
	d, err := g.useSystemDocker(ctx)
	if err == nil {
		return d, nil
	}
	d, failed := g.startDocker(ctx)
	if failed == nil {
		return d, nil
	}
	return nil, fmt.Errorf("%w; %w", err, failed)
}

// useSystemDocker returns the machine's Docker Engine, with the demo's image.
func (g Ground) useSystemDocker(ctx context.Context) (*demoDocker, error) {
	socket := systemDocker
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		path, isUnix := strings.CutPrefix(host, "unix://")
		if !isUnix {
			return nil, fmt.Errorf("the Docker Engine at DOCKER_HOST=%s is not on this machine", host)
		}
		socket = path
	}
	if _, err := os.Stat(socket); err != nil {
		return nil, fmt.Errorf("no Docker Engine answers: %w", err)
	}
	d := &demoDocker{Engine: containers.NewEngine(socket)}
	version, err := g.prepareDocker(ctx, d)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("use the Docker Engine at %s: %w", socket, err), d.removeDemo())
	}
	d.said = fmt.Sprintf("Docker Engine %s answers at %s", version, socket)
	return d, nil
}

// startDocker starts a Docker Engine for the demo alone, with the demo's image.
func (g Ground) startDocker(ctx context.Context) (*demoDocker, error) {
	if _, err := exec.LookPath("dockerd"); err != nil {
		return nil, fmt.Errorf("dockerd is not installed: %w", err)
	}
	own, err := dockertest.New(dockertest.Config{Name: docker.Docker, Dir: filepath.Join(g.Dir, "docker")})
	if err != nil {
		return nil, err
	}
	d := &demoDocker{Engine: containers.NewEngine(own.Socket), own: own}
	err = own.Start(ctx)
	version := ""
	if err == nil {
		version, err = g.prepareDocker(ctx, d)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a Docker Engine: %w", err), d.removeDemo())
	}
	d.said = fmt.Sprintf("Docker Engine %s was started for this demo", version)
	return d, nil
}

// prepareDocker gives a Docker Engine the demo's image, checks that its containers run on this machine, and returns
// its version.
func (g Ground) prepareDocker(ctx context.Context, d *demoDocker) (version string, err error) {
	if version, err = d.Version(ctx); err != nil {
		return "", err
	}
	files, err := dockertest.Busybox("demo")
	if err != nil {
		return "", err
	}
	tag := strings.ToLower(filepath.Base(g.Dir))
	d.image = demoImage + ":" + tag
	if err := d.Import(ctx, demoImage, tag, files); err != nil {
		return "", err
	}
	return version, d.CheckLocal(ctx, d.image, g.Dir)
}

// removeDemo removes the demo's containers and its image, or the whole daemon if the demo has started it.
func (d *demoDocker) removeDemo() error {
	defer d.Close()
	if d.own != nil {
		return d.own.Remove()
	}
	if d.image == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupBound)
	defer cancel()
	return d.RemoveImage(ctx, d.image)
}
