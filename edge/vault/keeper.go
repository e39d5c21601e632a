package vault

import (
	"context"

	"skerry/edge/logins"
	"skerry/fleet/template"
)

var _ logins.Server = (*Client)(nil)

// Keeper keeps the tokens and the secrets of tasks. Its methods may be called from any goroutine.
type Keeper struct {
	*logins.Keeper
	client *Client
}

// Open makes the Keeper of a Vault, and reads what tasks have from the journal.
func Open(client *Client, cfg logins.Config) (*Keeper, error) {
	cfg.Server = client
	k, err := logins.Open(cfg)
	return &Keeper{k, client}, err
}

// Client is the client of the Vault of this edge.
func (k *Keeper) Client() *Client { return k.client }

// Secret returns what Vault has at a path for a task, or lists the path. What was read once is kept: it is returned also
// while Vault is away. An error means that there is no answer now, unless it is a fleet.CodeInvalid or a
// fleet.CodeUnsupported.
func (k *Keeper) Secret(ctx context.Context, t logins.Task, path string, list bool) (template.Secret, error) {
	q, err := parsePath(path, list)
	if err != nil {
		return template.Secret{}, err
	}
	body, err := k.Read(ctx, t, q.requestName())
	if err != nil {
		return template.Secret{}, err
	}
	return decodeSecret(body)
}
