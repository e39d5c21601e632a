package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/fleet/template"
	"skerry/internal/remoteapi"
)

// rereadPause is the time after which a secret without a lease is read again.
const rereadPause = 5 * time.Minute

// secret is one that the templates of a task read.
type secret struct {
	Name string `cbor:"1,keyasint"` // as readRequest.requestName returns it
	Body []byte `cbor:"2,keyasint"` // Vault's answer, in JSON
	// Lease is its lease when it was read, in seconds; 0: it was read with another token, and has to be read again.
	Lease int64 `cbor:"3,keyasint,omitempty"`
}

// decodeBody returns the secret. Its errors have nothing of it.
func (s *secret) decodeBody() (template.Secret, error) { return decodeSecret(s.Body) }

func decodeSecret(b []byte) (template.Secret, error) {
	var out template.Secret
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&out); err != nil || out.LeaseDuration < 0 {
		return template.Secret{}, errors.New("decode a secret of Vault: it cannot be read")
	}
	return out, nil
}

// readRequest is what a template reads.
type readRequest struct {
	path  string
	query string
	list  bool
}

// requestName identifies the request among those of its task.
func (r readRequest) requestName() string {
	kind := "read "
	if r.list {
		kind = "list "
	}
	return kind + r.path + "?" + r.query
}

// parseName returns the request with a name.
func parseName(name string) readRequest {
	list := strings.HasPrefix(name, "list ")
	path, query, _ := strings.Cut(name[min(len("read "), len(name)):], "?")
	return readRequest{path, query, list}
}

// maxPath bounds the path of a secret, in bytes.
const maxPath = 1 << 10

// parsePath checks the path of a secret, as a template has it.
func parsePath(path string, list bool) (readRequest, error) {
	u, err := url.Parse("/" + strings.TrimLeft(path, "/"))
	if err != nil || len(path) > maxPath || strings.Trim(u.Path, "/") == "" || strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == '#' }) {
		return readRequest{}, fleet.Errorf(fleet.CodeInvalid, "read a secret of Vault: %.64q is no path", path)
	}
	for _, part := range strings.Split(u.Path, "/") {
		if part == ".." || part == "." {
			return readRequest{}, fleet.Errorf(fleet.CodeInvalid, "read a secret of Vault: the path %q has the part %q", path, part)
		}
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return readRequest{}, fleet.Errorf(fleet.CodeInvalid, "read a secret of Vault: the parameters of the path %q cannot be read", path)
	}
	for key := range query {
		if key != "version" || list {
			return readRequest{}, fleet.Errorf(fleet.CodeUnsupported, "read a secret of Vault: the path %q has the parameter %q", path, key).
				WithHint("version is the only one")
		}
	}
	return readRequest{strings.Trim(u.EscapedPath(), "/"), query.Encode(), list}, nil
}

// Secret returns what Vault has at a path for a task, or lists the path. What was read once is kept: it is returned also
// while Vault is away. Upkeep reads it again. An error means that there is no answer now, unless it is a
// fleet.CodeInvalid or a fleet.CodeUnsupported.
func (k *Keeper) Secret(ctx context.Context, t Task, path string, list bool) (template.Secret, error) {
	q, err := parsePath(path, list)
	if err != nil {
		return template.Secret{}, err
	}
	if s, ok := k.heldSecret(t, q); ok {
		return s.decodeBody()
	}
	h, unlock, err := k.lockTask(ctx, t.recordKey())
	if err != nil {
		return template.Secret{}, err
	}
	defer unlock()
	if s, ok := k.heldSecret(t, q); ok {
		return s.decodeBody()
	}
	token := k.Token(t)
	if token == "" {
		return template.Secret{}, fleet.Errorf(fleet.CodeUnavailable, "read secret %s of Vault: the task has no token yet", q.path)
	}
	if len(h.Secrets) >= maxSecrets {
		return template.Secret{}, fleet.Errorf(fleet.CodeInvalid, "read secret %s of Vault: the task has read %d others: that is the most", q.path, maxSecrets)
	}
	s, err := k.readSecret(ctx, h, q)
	if err != nil {
		k.doubtToken(h, err)
		return template.Secret{}, err
	}
	if err := k.storeSecret(ctx, h, s); err != nil {
		return template.Secret{}, err
	}
	return s.decodeBody()
}

// doubtToken has the token renewed soon if Vault refuses what is asked with it: it may have been revoked.
func (k *Keeper) doubtToken(h *held, err error) {
	if remoteapi.IsRefused(err) && !remoteapi.IsMissing(err) {
		k.setDue(h, 0)
	}
}

// heldSecret returns a secret that the task has read before.
func (k *Keeper) heldSecret(t Task, q readRequest) (secret, bool) {
	if k.Token(t) == "" {
		return secret{}, false
	}
	h := k.findTask(t.recordKey())
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(h.Secrets, func(s secret) bool { return s.Name == q.requestName() })
	if i < 0 {
		return secret{}, false
	}
	return h.Secrets[i], true
}

// readSecret asks Vault for a secret, with the token of the task.
func (k *Keeper) readSecret(ctx context.Context, h *held, q readRequest) (secret, error) {
	path, err := k.resolvePath(ctx, h, q)
	if err != nil {
		return secret{}, err
	}
	switch {
	case q.list:
		path += "?list=true"
	case q.query != "":
		path += "?" + q.query
	}
	var raw json.RawMessage
	err = k.cfg.Client.api.Call(ctx, remoteapi.Request{Method: http.MethodGet, Path: "/v1/" + path, Namespace: h.Namespace, Token: h.record.Token}, &raw)
	if remoteapi.IsMissing(err) {
		return secret{}, fmt.Errorf("there is no secret %s in Vault: %w", q.path, err)
	}
	if err != nil {
		return secret{}, err
	}
	s, err := decodeSecret(raw)
	if err != nil {
		return secret{}, err
	}
	if s.Data == nil {
		return secret{}, fmt.Errorf("there is no secret %s in Vault: its answer has no data", q.path)
	}
	body, err := json.Marshal(s)
	if err != nil {
		return secret{}, errors.New("encode a secret of Vault")
	}
	return secret{Name: q.requestName(), Body: body, Lease: s.LeaseDuration}, nil
}

// resolvePath returns the path to ask for. That of a KV store of version 2 gets data or metadata behind its mount, as in
// consul-template. A token that may not ask about mounts has to name the whole path.
func (k *Keeper) resolvePath(ctx context.Context, h *held, q readRequest) (string, error) {
	var answer struct {
		Data struct {
			Path    string            `json:"path"`
			Type    string            `json:"type"`
			Options map[string]string `json:"options"`
		} `json:"data"`
	}
	err := k.cfg.Client.api.Call(ctx, remoteapi.Request{
		Method: http.MethodGet, Path: "/v1/sys/internal/ui/mounts/" + q.path, Namespace: h.Namespace, Token: h.record.Token,
	}, &answer)
	if err != nil && !remoteapi.IsRefused(err) {
		return "", err
	}
	mount := strings.Trim(answer.Data.Path, "/")
	rest, below := strings.CutPrefix(q.path+"/", mount+"/")
	if err != nil || answer.Data.Options["version"] != "2" || mount == "" || !below {
		return q.path, nil
	}
	kind := "data"
	if q.list {
		kind = "metadata"
	}
	rest = strings.Trim(rest, "/")
	if rest == kind || strings.HasPrefix(rest, kind+"/") {
		return q.path, nil
	}
	return strings.Trim(mount+"/"+kind+"/"+rest, "/"), nil
}

// storeSecret keeps a secret that was read now.
func (k *Keeper) storeSecret(ctx context.Context, h *held, s secret) error {
	r, size := h.record, len(s.Name)+len(s.Body)
	r.Secrets = []secret{s}
	for _, other := range h.Secrets {
		if other.Name == s.Name {
			continue
		}
		r.Secrets = append(r.Secrets, other)
		size += len(other.Name) + len(other.Body)
	}
	if size > maxSecretSize {
		return fleet.Errorf(fleet.CodeInvalid, "read secret %s of Vault: the secrets of the task have more than %d KiB", parseName(s.Name).path, maxSecretSize>>10)
	}
	slices.SortFunc(r.Secrets, func(a, b secret) int { return strings.Compare(a.Name, b.Name) })
	if !slices.EqualFunc(r.Secrets, h.Secrets, func(a, b secret) bool {
		return a.Name == b.Name && a.Lease == b.Lease && bytes.Equal(a.Body, b.Body)
	}) {
		if err := k.storeRecord(ctx, h, r); err != nil {
			return err
		}
	}
	k.setRead(h, s.Name, secretPause(&s))
	return nil
}

// secretPause is the time until a secret is renewed or read again.
func secretPause(s *secret) time.Duration {
	d, err := s.decodeBody()
	if err != nil || d.LeaseID == "" || d.LeaseDuration == 0 {
		return rereadPause
	}
	return leasePause(d.LeaseDuration)
}

// leasePause is two thirds of a lease in seconds.
func leasePause(lease int64) time.Duration {
	return max(time.Duration(min(lease, 1<<31))*time.Second*2/3, minRenewal)
}

func (k *Keeper) setRead(h *held, name string, pause time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h.reads[name] = time.Now().Add(pause)
}

// renewSecrets renews the leases that are due, and reads secrets again. It ends early if Vault is away.
func (k *Keeper) renewSecrets(ctx context.Context, h *held) error {
	if h.record.Token == "" {
		return nil
	}
	var failed []error
	for _, s := range slices.Clone(h.Secrets) {
		if time.Until(h.reads[s.Name]) > 0 {
			continue
		}
		err := k.renewSecret(ctx, h, s)
		if err == nil {
			continue
		}
		if failed = append(failed, err); !remoteapi.IsRefused(err) {
			break
		}
		// Others can be read. This one is asked for again with them, and not at once.
		k.setRead(h, s.Name, rereadPause)
		k.doubtToken(h, err)
	}
	return errors.Join(failed...)
}

// renewSecret renews the lease of a secret, or reads it again if it has none or cannot live much longer.
func (k *Keeper) renewSecret(ctx context.Context, h *held, s secret) error {
	d, err := s.decodeBody()
	if err != nil {
		return err
	}
	if d.LeaseID != "" && d.Renewable && s.Lease > 0 {
		left, err := k.cfg.Client.renewLease(ctx, h.Namespace, h.record.Token, d.LeaseID, s.Lease)
		if err != nil && !remoteapi.IsRefused(err) {
			return err
		}
		if err == nil && 2*left >= s.Lease {
			k.setRead(h, s.Name, leasePause(left))
			return nil
		}
	}
	next, err := k.readSecret(ctx, h, parseName(s.Name))
	if err != nil {
		return err
	}
	return k.storeSecret(ctx, h, next)
}

// renewLease renews a lease for that many seconds more, and returns for how many it is valid.
func (c *Client) renewLease(ctx context.Context, namespace, token, id string, increment int64) (int64, error) {
	var answer struct {
		Lease int64 `json:"lease_duration"`
	}
	body := map[string]any{"lease_id": id, "increment": increment}
	err := c.api.Call(ctx, remoteapi.Request{
		Method: http.MethodPut, Path: "/v1/sys/leases/renew", Namespace: namespace, Token: token, Body: body, Hidden: id,
	}, &answer)
	return answer.Lease, err
}
