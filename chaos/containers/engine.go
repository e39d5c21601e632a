// Package containers uses a container daemon of the machine for a run: it makes images without a registry, checks that
// containers run on this machine, and removes the run's images and containers. Package chaos/real calls it.
//
// It starts no goroutine and persists nothing. Package drivers/docker/dockertest starts daemons of a run's own.
package containers

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

const (
	// requestTimeout bounds a short request to a daemon on a loaded machine.
	requestTimeout = time.Minute
	// answerLimit bounds the size of an answer that is decoded.
	answerLimit = 16 << 20
	// apiPath is the API version of Docker Engine 19.03 and Podman 4.
	apiPath = "/v1.40"
)

// Engine is a client of a container daemon that listens on a unix socket: Docker Engine, or Podman's API service.
type Engine struct {
	Socket string
	http   *http.Client
}

// NewEngine returns a client of the daemon at a socket. It connects to nothing.
func NewEngine(socket string) *Engine {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Engine{Socket: socket, http: &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Close closes idle connections.
func (e *Engine) Close() { e.http.CloseIdleConnections() }

// Version returns the version of the daemon. It fails if the daemon does not answer within the context.
func (e *Engine) Version(ctx context.Context) (string, error) {
	var answer struct{ Version string }
	if err := e.sendDaemonRequest(ctx, http.MethodGet, "/version", nil, &answer); err != nil {
		return "", err
	}
	return answer.Version, nil
}

// Import makes an image of that name and tag from a file system, which is a tar archive.
func (e *Engine) Import(ctx context.Context, name, tag string, files []byte) error {
	query := url.Values{"fromSrc": {"-"}, "repo": {name}, "tag": {tag}}
	return e.sendDaemonRequest(ctx, http.MethodPost, "/images/create?"+query.Encode(), files, nil)
}

// RemoveImage removes an image with all its containers. A missing image is no error.
func (e *Engine) RemoveImage(ctx context.Context, image string) error {
	filters, err := json.Marshal(map[string][]string{"ancestor": {image}})
	if err != nil {
		return fmt.Errorf("encode filter: %w", err)
	}
	var found []struct{ ID string }
	err = e.sendDaemonRequest(ctx, http.MethodGet, "/containers/json?"+url.Values{"all": {"true"}, "filters": {string(filters)}}.Encode(), nil, &found)
	if isAbsent(err) {
		return nil
	}
	errs := []error{err}
	for _, c := range found {
		errs = append(errs, e.removeContainer(ctx, c.ID))
	}
	err = e.sendDaemonRequest(ctx, http.MethodDelete, "/images/"+image+"?force=true", nil, nil)
	if !isAbsent(err) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// CheckLocal returns an error unless the daemon runs containers on this very machine, with the machine's folders and
// visible processes. It runs a container of an image that has the command sleep. dir is a folder of the run.
func (e *Engine) CheckLocal(ctx context.Context, image, dir string) (err error) {
	mark := filepath.Join(dir, "is-this-machine")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return fmt.Errorf("make a file for a container: %w", err)
	}
	body, err := json.Marshal(map[string]any{
		"Image": image, "Cmd": []string{"sleep", "600"},
		"HostConfig": map[string]any{"Binds": []string{dir + ":/probe"}, "NetworkMode": "none"},
	})
	if err != nil {
		return fmt.Errorf("encode container: %w", err)
	}
	var made struct{ ID string }
	if err := e.sendDaemonRequest(ctx, http.MethodPost, "/containers/create", body, &made); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.removeContainer(ctx, made.ID), os.Remove(mark)) }()
	if err := e.sendDaemonRequest(ctx, http.MethodPost, "/containers/"+made.ID+"/start", nil, nil); err != nil {
		return err
	}
	var state struct{ State struct{ Pid int } }
	if err := e.sendDaemonRequest(ctx, http.MethodGet, "/containers/"+made.ID+"/json", nil, &state); err != nil {
		return err
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/root/probe/%s", state.State.Pid, filepath.Base(mark))); err != nil {
		return fmt.Errorf("the daemon at %s runs its containers elsewhere: %w", e.Socket, err)
	}
	return nil
}

// removeContainer kills and removes a container. A missing container is no error.
func (e *Engine) removeContainer(ctx context.Context, id string) error {
	if err := e.sendDaemonRequest(ctx, http.MethodDelete, "/containers/"+id+"?force=true", nil, nil); !isAbsent(err) {
		return err
	}
	return nil
}

// statusError is the daemon's answer to a failed request.
type statusError struct {
	status  int
	request string
	message string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: status %d: %s", e.request, e.status, e.message)
}

// isAbsent reports whether an error is the daemon's answer that an object does not exist.
func isAbsent(err error) bool {
	var failed *statusError
	return errors.As(err, &failed) && failed.status == http.StatusNotFound
}

// sendDaemonRequest sends a request and decodes the answer into answer, unless it is nil.
func (e *Engine) sendDaemonRequest(ctx context.Context, method, path string, body []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://daemon"+apiPath+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	switch {
	case len(body) > 0 && body[0] == '{':
		req.Header.Set("Content-Type", "application/json")
	case len(body) > 0:
		req.Header.Set("Content-Type", "application/x-tar")
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask the container daemon: %w", err)
	}
	defer resp.Body.Close()
	told, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
	if err != nil {
		return fmt.Errorf("read the answer of the container daemon: %w", err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		var failed struct{ Message string }
		if err := json.Unmarshal(told, &failed); err != nil || failed.Message == "" {
			failed.Message = string(told)
		}
		return &statusError{resp.StatusCode, method + " " + req.URL.Path, failed.Message}
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(told, answer); err != nil {
		return fmt.Errorf("decode the answer to %s: %w", req.URL.Path, err)
	}
	return nil
}

// CheckBusybox returns an error unless this machine has a busybox that runs in an image without other files.
func CheckBusybox() error {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("find a program for an image: %w (Debian's package busybox-static has it)", err)
	}
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	defer f.Close()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return fmt.Errorf("make an image of %s: it needs shared libraries (the one of Debian's package busybox-static needs none)", path)
	}
	return nil
}
