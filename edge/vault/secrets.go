package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"skerry/edge/logins"
	"skerry/fleet"
	"skerry/fleet/template"
	"skerry/internal/remoteapi"
)

// rereadPause is the time after which a secret without a lease is read again.
const rereadPause = 5 * time.Minute

// decodeSecret reads an answer of Vault. Its errors have nothing of it.
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

// Read implements logins.Server: it asks for a secret.
func (c *Client) Read(ctx context.Context, r logins.Record, name string) (logins.Content, error) {
	q := parseName(name)
	path, err := c.resolvePath(ctx, r, q)
	if err != nil {
		return logins.Content{}, err
	}
	switch {
	case q.list:
		path += "?list=true"
	case q.query != "":
		path += "?" + q.query
	}
	var raw json.RawMessage
	err = c.api.Call(ctx, remoteapi.Request{Method: http.MethodGet, Path: "/v1/" + path, Namespace: r.Namespace, Token: r.Token}, &raw)
	if remoteapi.IsMissing(err) {
		return logins.Content{}, fmt.Errorf("there is no secret %s in Vault: %w", q.path, err)
	}
	if err != nil {
		return logins.Content{}, err
	}
	s, err := decodeSecret(raw)
	if err != nil {
		return logins.Content{}, err
	}
	if s.Data == nil {
		return logins.Content{}, fmt.Errorf("there is no secret %s in Vault: its answer has no data", q.path)
	}
	body, err := json.Marshal(s)
	if err != nil {
		return logins.Content{}, errors.New("encode a secret of Vault")
	}
	return logins.Content{Name: name, Body: body, Lease: s.LeaseDuration}, nil
}

// resolvePath returns the path to ask for. That of a KV store of version 2 gets data or metadata behind its mount, as in
// consul-template. A token that may not ask about mounts has to name the whole path.
func (c *Client) resolvePath(ctx context.Context, r logins.Record, q readRequest) (string, error) {
	var answer struct {
		Data struct {
			Path    string            `json:"path"`
			Type    string            `json:"type"`
			Options map[string]string `json:"options"`
		} `json:"data"`
	}
	err := c.api.Call(ctx, remoteapi.Request{
		Method: http.MethodGet, Path: "/v1/sys/internal/ui/mounts/" + q.path, Namespace: r.Namespace, Token: r.Token,
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

// ContentPause implements logins.Server.
func (*Client) ContentPause(c logins.Content) time.Duration {
	d, err := decodeSecret(c.Body)
	if err != nil || d.LeaseID == "" || d.LeaseDuration == 0 {
		return rereadPause
	}
	return logins.LeasePause(d.LeaseDuration)
}

// CheckContent implements logins.Server.
func (*Client) CheckContent(c logins.Content) error {
	_, err := decodeSecret(c.Body)
	return err
}

// RenewContent implements logins.Server.
func (c *Client) RenewContent(ctx context.Context, r logins.Record, held logins.Content) (int64, error) {
	d, err := decodeSecret(held.Body)
	if err != nil || d.LeaseID == "" || !d.Renewable {
		return 0, err
	}
	var answer struct {
		Lease int64 `json:"lease_duration"`
	}
	err = c.api.Call(ctx, remoteapi.Request{
		Method: http.MethodPut, Path: "/v1/sys/leases/renew", Namespace: r.Namespace, Token: r.Token, Hidden: d.LeaseID,
		Body: map[string]any{"lease_id": d.LeaseID, "increment": held.Lease},
	}, &answer)
	return answer.Lease, err
}
