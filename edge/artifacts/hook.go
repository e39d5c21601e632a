package artifacts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"skerry/drivers"
	"skerry/edge/runner"
	"skerry/edge/store"
	"skerry/fleet"
	"skerry/internal/durable"
)

// markFile is the name of the file, beside a task's attempts, that records which artifacts are placed.
const (
	markFile    = "artifacts"
	markVersion = 1
	maxMark     = 4 << 10
)

// doneMark is the content of markFile.
type doneMark struct {
	Version int
	Digest  string // as digestOf returns it
}

// Hook fetches the artifacts of a task before its first attempt. It implements runner.Hook.
type Hook struct {
	fetcher *Fetcher
}

// NewHook makes the hook. It unpins the contents of each allocation without a folder below state, the runners' state
// folder: such an allocation ended while no agent ran.
func NewHook(f *Fetcher, state string) (*Hook, error) {
	for _, alloc := range f.cfg.Store.PinnedAllocs() {
		if strings.HasPrefix(string(alloc), store.PrefetchPin) {
			continue
		}
		if _, err := os.Stat(filepath.Join(state, string(alloc))); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := f.cfg.Store.Unpin(alloc); err != nil {
			return nil, err
		}
	}
	return &Hook{fetcher: f}, nil
}

// Name implements runner.Hook.
func (h *Hook) Name() string { return "artifacts" }

// Prepare implements runner.Hook: it fetches the artifacts that are not placed yet, and journals Nomad's events.
func (h *Hook) Prepare(ctx context.Context, p *runner.Preparation) error {
	if len(p.Task.Artifacts) == 0 {
		return nil
	}
	digest, err := digestOf(p.Task.Artifacts)
	if err != nil {
		return err
	}
	mark := filepath.Join(filepath.Dir(p.Config.StateDir), markFile)
	again := readMark(mark) == digest
	todo, err := h.requestsOf(p, again)
	if err != nil {
		return errors.Join(err, p.Event(fleet.TaskFailedArtifactDownload, err.Error()))
	}
	if len(todo) == 0 {
		return nil
	}
	if err := p.Event(fleet.TaskDownloadingArtifacts, "Client is downloading artifacts"); err != nil {
		return err
	}
	if err := h.fetchAll(ctx, p, todo); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if event := p.Event(fleet.TaskFailedArtifactDownload, err.Error()); event != nil {
			return event
		}
		switch {
		case again: // only a secrets folder in memory was lost: the task starts without it
			return nil
		case isFinal(err):
			return err
		}
		return drivers.Recoverable(err)
	}
	if again {
		return nil
	}
	return drivers.Recoverable(writeMark(mark, digest, p.Config.Dir))
}

// Release implements runner.Hook: it lets the store evict the allocation's artifacts.
func (h *Hook) Release(_ context.Context, a fleet.Alloc) error {
	return h.fetcher.cfg.Store.Unpin(a.ID)
}

// pending is an artifact that must be fetched.
type pending struct {
	request Request
	chown   bool
}

// requestsOf returns the artifacts that must be fetched: all of them, or, if all were placed before (again), only
// those in the secrets folder that are gone, because that folder may lie in memory.
func (h *Hook) requestsOf(p *runner.Preparation, again bool) ([]pending, error) {
	var todo []pending
	for i := range p.Task.Artifacts {
		r, err := requestOf(p, &p.Task.Artifacts[i])
		if err != nil {
			return nil, fmt.Errorf("artifact %d of task %s: %w", i+1, p.Task.Name, err)
		}
		if again && (!isBelow(r.Dest, filepath.ToSlash(filepath.Join(p.Task.Name, "secrets"))) || holdsFiles(filepath.Join(r.Root, r.Dest))) {
			continue
		}
		todo = append(todo, pending{r, p.Task.Artifacts[i].Chown})
	}
	return todo, nil
}

// fetchAll pins all contents before it fetches them, so that fetching one does not evict another.
func (h *Hook) fetchAll(ctx context.Context, p *runner.Preparation, todo []pending) error {
	keys := make([]store.Key, len(todo))
	for i := range todo {
		keys[i] = todo[i].request.Source.Key(todo[i].request.Headers)
	}
	if err := h.fetcher.cfg.Store.Pin(p.Alloc.ID, keys...); err != nil {
		return err
	}
	for _, t := range todo {
		r, err := h.fetcher.Fetch(ctx, t.request)
		if err == nil && t.chown {
			err = chownTree(t.request.Root, t.request.Dest, p.Config.User)
		}
		if err != nil {
			return ExplainFullSecrets(err, p, t.request.Dest)
		}
		if r.Stored {
			message := fmt.Sprintf("%s comes from the edge's store, which has had it since %s", t.request.Source.String(), r.Since.UTC().Format(time.RFC3339))
			if err := p.Event(fleet.TaskDownloadingArtifacts, message); err != nil {
				return err
			}
		}
	}
	return nil
}

// requestOf makes the request for an artifact block, with ${…} replaced.
func requestOf(p *runner.Preparation, a *fleet.TaskArtifact) (Request, error) {
	r, err := contentOf(a, p.Replace)
	if err != nil {
		return Request{}, err
	}
	r.Owner, r.Root = p.Alloc.ID, filepath.Dir(p.Config.Dir)
	r.Dest, err = Destination(p, a.RelativeDest, "local")
	return r, err
}

// contentOf makes the part of a request that says which content is wanted.
func contentOf(a *fleet.TaskArtifact, replace func(string) string) (Request, error) {
	options := make(map[string]string, len(a.GetterOptions))
	for k, v := range a.GetterOptions {
		options[k] = replace(v)
	}
	source, err := ParseSource(replace(a.GetterSource), options)
	if err != nil {
		return Request{}, err
	}
	r := Request{Source: source, Mode: a.GetterMode, Insecure: a.GetterInsecure}
	if r.Mode == "" {
		r.Mode = fleet.ArtifactAny
	}
	if len(a.GetterHeaders) > 0 {
		r.Headers = make(map[string]string, len(a.GetterHeaders))
		for k, v := range a.GetterHeaders {
			r.Headers[k] = replace(v)
		}
	}
	return r, nil
}

// Destination returns the path of a destination of the job file, relative to the allocation's folder, with ${…}
// replaced. An empty destination means fallback. A path outside of that folder is a fleet.CodeInvalid.
func Destination(p *runner.Preparation, destination, fallback string) (string, error) {
	name := filepath.ToSlash(p.Replace(destination))
	if name == "" {
		name = fallback
	}
	below := p.Task.Name
	for _, at := range [][2]string{
		{p.Config.AllocDir, "alloc"}, {p.Config.LocalDir, p.Task.Name + "/local"}, {p.Config.SecretsDir, p.Task.Name + "/secrets"},
		{p.Folders.AllocDir, "alloc"}, {p.Folders.TaskDir, p.Task.Name + "/local"}, {p.Folders.SecretsDir, p.Task.Name + "/secrets"},
	} {
		if rest, ok := strings.CutPrefix(name, filepath.ToSlash(at[0])); ok && at[0] != "" && (rest == "" || rest[0] == '/') {
			below, name = at[1], rest
			break
		}
	}
	dest := path.Join(below, name)
	if !filepath.IsLocal(filepath.FromSlash(dest)) {
		return "", fleet.Errorf(fleet.CodeInvalid, "the destination %q lies outside of the allocation's folder", destination)
	}
	return dest, nil
}

// ExplainFullSecrets adds to the error of a full file system how the task's secrets folder gets larger, if dest, a result
// of Destination, lies in it. It returns other errors as they are.
func ExplainFullSecrets(err error, p *runner.Preparation, dest string) error {
	if !errors.Is(err, syscall.ENOSPC) || !isBelow(dest, p.Task.Name+"/secrets") {
		return err
	}
	return fmt.Errorf("%w: the task's secrets folder is full; its size in MB is secrets in the task's resources", err)
}

// IsSecret reports whether a path below the allocation's folder, such as a result of Destination, lies in the secrets folder of one
// of the allocation's tasks. It follows no links.
func IsSecret(place string) bool {
	task, rest, _ := strings.Cut(place, "/")
	return task != "alloc" && isBelow(rest, "secrets")
}

// isBelow reports whether name is the folder or lies in it.
func isBelow(name, folder string) bool { return name == folder || strings.HasPrefix(name, folder+"/") }

// holdsFiles reports whether path is a file, or a folder that is not empty.
func holdsFiles(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return err == nil
	}
	list, err := os.ReadDir(path)
	return err == nil && len(list) > 0
}

// digestOf returns a hash of artifact blocks. A mark with another digest is of an older version of the blocks, whose
// artifacts do not count as placed.
func digestOf(list []fleet.TaskArtifact) (string, error) {
	text, err := json.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("encode artifacts: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// readMark returns the digest of the artifact blocks whose artifacts are placed, or "".
func readMark(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	var m doneMark
	if json.NewDecoder(io.LimitReader(f, maxMark)).Decode(&m) != nil || m.Version != markVersion {
		return ""
	}
	return m.Digest
}

// writeMark records that the artifacts are placed, after it has made their files durable.
func writeMark(path, digest, folder string) error {
	text, err := json.Marshal(doneMark{markVersion, digest})
	if err != nil {
		return fmt.Errorf("record the artifacts: %w", err)
	}
	if err := durable.FlushFolder(filepath.Dir(folder)); err != nil {
		return fmt.Errorf("flush the artifacts: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("record the artifacts: %w", err)
	}
	if err := durable.Replace(path, text, 0o600); err != nil {
		return fmt.Errorf("record the artifacts: %w", err)
	}
	return nil
}
