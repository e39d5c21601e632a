package consul

import (
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

var _ logins.Server = (*Client)(nil)

// rereadPause is the time after which keys are read again.
const rereadPause = 10 * time.Second

// Keeper keeps the tokens of tasks and services, and the keys that templates read. Its methods may be called from any goroutine.
type Keeper struct {
	*logins.Keeper
	client *Client
}

// OpenKeeper makes the Keeper of a Consul agent, and reads what tasks have from the journal.
func OpenKeeper(client *Client, cfg logins.Config) (*Keeper, error) {
	cfg.Server = client
	k, err := logins.Open(cfg)
	return &Keeper{k, client}, err
}

// Client is the client of the Consul agent of this edge.
func (k *Keeper) Client() *Client { return k.client }

// Pairs returns keys of Consul for a task. What was read once is kept: it is returned also while Consul is away. An error means
// that there is no answer now, unless it is a fleet.CodeInvalid.
func (k *Keeper) Pairs(ctx context.Context, t logins.Task, q template.KeyQuery) ([]template.Pair, error) {
	name, err := queryName(q)
	if err != nil {
		return nil, err
	}
	body, err := k.Read(ctx, t, name)
	if err != nil {
		return nil, err
	}
	found, err := decodePairs(body)
	if err == nil && len(found) == 0 && q.Needed {
		err = fmt.Errorf("there is no key %s in Consul", q.Key)
	}
	return found, err
}

// ServiceToken returns the newest token of a service. With renew it is renewed first if that is due. While Consul does not give
// another one, it is the one that the service had.
func (k *Keeper) ServiceToken(ctx context.Context, login logins.Task, jwt string, renew bool) (string, error) {
	err := k.Failure(login)
	if renew {
		_, err = k.Upkeep(ctx, login, jwt)
	}
	if token := k.Token(login); token != "" {
		return token, nil
	}
	return "", err
}

// LetsLogIn reports whether tasks and services may log in: nobody else sees their tokens on the way to the agent.
func (c *Client) LetsLogIn() bool { return c.api.IsPrivate() }

// Address is the address of the agent, as tasks get it.
func (c *Client) Address() string { return c.api.Address() }

// Name implements logins.Server.
func (*Client) Name() string { return "Consul" }

// Task returns what a Keeper has to know of a task.
func (c *Client) Task(alloc fleet.AllocID, name string) logins.Task {
	return logins.Task{Alloc: alloc, Name: name, Identity: fleet.ConsulIdentity, Role: c.cfg.TaskMethod}
}

// ServiceLogin returns what a Keeper has to know of a service with an identity. task is that of the service; "": it is the group's.
func (c *Client) ServiceLogin(alloc fleet.AllocID, task, identity string) logins.Task {
	return logins.Task{Alloc: alloc, Name: task + "/" + identity, Identity: identity, Role: c.cfg.ServiceMethod}
}

// aclToken is a token, as a login and its own lookup return it.
type aclToken struct {
	SecretID       string
	CreateTime     time.Time
	ExpirationTime time.Time // zero: it does not end
}

// LogIn implements logins.Server. The role is the auth method.
func (c *Client) LogIn(ctx context.Context, t logins.Task, jwt string) (logins.Token, error) {
	q := remoteapi.Request{Method: http.MethodPost, Path: "/v1/acl/login", NoToken: true, Hidden: jwt, Body: map[string]any{
		"AuthMethod": t.Role, "BearerToken": jwt, "Meta": map[string]string{"requested_by": fmt.Sprintf("skerry allocation %s, %s", t.Alloc, t.Name)},
	}}
	var a aclToken
	if err := c.api.Call(ctx, q, &a); err != nil {
		return logins.Token{}, err
	}
	if !logins.IsToken(a.SecretID) {
		return logins.Token{}, c.api.RequestError(q, errors.New("its answer has no token"))
	}
	return logins.Token{Text: a.SecretID, Lease: a.secondsAfter(a.CreateTime)}, nil
}

// secondsAfter is for how many seconds the token is valid after a time by the server's clock; 0: it does not end. If the time
// is not known, the token counts as one that ends soon.
func (a *aclToken) secondsAfter(at time.Time) int64 {
	switch {
	case a.ExpirationTime.IsZero():
		return 0
	case at.IsZero():
		return 1
	}
	return max(int64(a.ExpirationTime.Sub(at)/time.Second), 1)
}

// Extend implements logins.Server. Consul renews no token: the task logs in again in time.
func (c *Client) Extend(ctx context.Context, r logins.Record, _ bool) (int64, error) {
	q := remoteapi.Request{Method: http.MethodGet, Path: "/v1/acl/token/self", Token: r.Token}
	b, at, err := c.api.SendDated(ctx, q)
	var a aclToken
	if err == nil && json.Unmarshal(b, &a) != nil {
		err = errors.New("its answer cannot be read")
	}
	if err != nil {
		return 0, c.api.RequestError(q, err)
	}
	return a.secondsAfter(at), nil
}

// LogOut implements logins.Server.
func (c *Client) LogOut(ctx context.Context, r logins.Record) error {
	return c.api.Call(ctx, remoteapi.Request{Method: http.MethodPost, Path: "/v1/acl/logout", Token: r.Token}, nil)
}

// maxKey bounds a key, in bytes.
const maxKey = 512

// belowPrefix begins the names of queries for all keys below one.
const belowPrefix = "below "

// queryName checks a query, and returns its name for the journal.
func queryName(q template.KeyQuery) (string, error) {
	key, datacenter, _ := strings.Cut(q.Key, "@")
	key = strings.Trim(key, "/")
	if len(q.Key) > maxKey || key == "" && !q.Below || strings.ContainsFunc(q.Key, func(r rune) bool { return r < ' ' || r == '\uFFFD' }) || strings.Contains(datacenter, "@") {
		return "", fleet.Errorf(fleet.CodeInvalid, "read from Consul: %.64q is no key", q.Key)
	}
	for part := range strings.SplitSeq(key, "/") {
		if part == "." || part == ".." {
			return "", fleet.Errorf(fleet.CodeInvalid, "read from Consul: the key %q has the part %q", q.Key, part)
		}
	}
	if datacenter != "" {
		key += "@" + datacenter
	}
	if q.Below {
		return belowPrefix + key, nil
	}
	return "key " + key, nil
}

// Read implements logins.Server: it asks for a key, or for those below one. That there are none is an answer.
func (c *Client) Read(ctx context.Context, r logins.Record, name string) (logins.Content, error) {
	asked, below := strings.CutPrefix(name, belowPrefix)
	key, datacenter, _ := strings.Cut(strings.TrimPrefix(asked, "key "), "@")
	parameters := url.Values{}
	if datacenter != "" {
		parameters.Set("dc", datacenter)
	}
	if below {
		parameters.Set("recurse", "true")
		if key != "" {
			key += "/"
		}
	}
	path := (&url.URL{Path: "/v1/kv/" + key, RawQuery: parameters.Encode()}).String()
	var answer []struct {
		Key   string
		Value []byte // in base64
		Flags uint64
	}
	err := c.api.Call(ctx, remoteapi.Request{Method: http.MethodGet, Path: path, Token: r.Token}, &answer)
	if err != nil && !remoteapi.IsMissing(err) {
		return logins.Content{}, err
	}
	found := []template.Pair{}
	for _, one := range answer {
		p := template.Pair{Path: one.Key, Key: one.Key, Value: strings.ToValidUTF8(string(one.Value), "\uFFFD"), Flags: one.Flags}
		if below {
			p.Key = strings.TrimPrefix(one.Key, key)
		}
		found = append(found, p)
	}
	body, err := json.Marshal(found)
	if err != nil {
		return logins.Content{}, errors.New("encode keys of Consul")
	}
	return logins.Content{Name: name, Body: body}, nil
}

// RenewContent implements logins.Server: keys have no leases.
func (*Client) RenewContent(context.Context, logins.Record, logins.Content) (int64, error) {
	return 0, nil
}

// ContentPause implements logins.Server.
func (*Client) ContentPause(logins.Content) time.Duration { return rereadPause }

// CheckContent implements logins.Server.
func (*Client) CheckContent(c logins.Content) error {
	_, err := decodePairs(c.Body)
	return err
}

// decodePairs reads keys from the journal. Its errors have nothing of them.
func decodePairs(b []byte) ([]template.Pair, error) {
	var found []template.Pair
	if err := json.Unmarshal(b, &found); err != nil {
		return nil, errors.New("decode keys of Consul: they cannot be read")
	}
	return found, nil
}
