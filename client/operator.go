package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"skerry/api"
	"skerry/fleet"
)

// HubRef names a hub by its id or by its address.
type HubRef struct{ ID, Address string }

func (r HubRef) queryValues() url.Values { return url.Values{"id": {r.ID}, "address": {r.Address}} }

// Healthy returns nil if the hub knows a leader and the edge in its process (skerry dev), if any, is healthy.
func (c *Client) Healthy(ctx context.Context) error {
	_, err := readAnswer[any](ctx, c, "/v1/agent/health", nil)
	return err
}

// RaftConfiguration lists the hubs that the log is replicated to.
func (c *Client) RaftConfiguration(ctx context.Context) (api.RaftConfiguration, error) {
	return readAnswer[api.RaftConfiguration](ctx, c, "/v1/operator/raft/configuration", nil)
}

// TransferLeadership has another hub lead: a named one, or any.
func (c *Client) TransferLeadership(ctx context.Context, to HubRef) (api.LeadershipTransfer, error) {
	return writeRequest[api.LeadershipTransfer](ctx, c, http.MethodPut, "/v1/operator/raft/transfer-leadership", to.queryValues(), nil)
}

// RemoveRaftPeer removes a hub from the Raft configuration.
func (c *Client) RemoveRaftPeer(ctx context.Context, hub HubRef) error {
	return c.sendDelete(ctx, "/v1/operator/raft/peer", hub.queryValues())
}

// AutopilotHealth reads the health of each hub.
func (c *Client) AutopilotHealth(ctx context.Context) (api.HealthAnswer, error) {
	return readAnswer[api.HealthAnswer](ctx, c, "/v1/operator/autopilot/health", url.Values{"report": {"true"}})
}

const schedulerPath = "/v1/operator/scheduler/configuration"

// SchedulerConfiguration reads how jobs are scheduled.
func (c *Client) SchedulerConfiguration(ctx context.Context) (api.SchedulerConfigurationResponse, error) {
	return readAnswer[api.SchedulerConfigurationResponse](ctx, c, schedulerPath, nil)
}

// SetSchedulerConfiguration replaces the configuration if its modify index is still index, and reports whether it did.
func (c *Client) SetSchedulerConfiguration(ctx context.Context, cfg fleet.SchedulerConfiguration, index fleet.Index) (bool, error) {
	q := url.Values{"cas": {strconv.FormatUint(uint64(index), 10)}}
	answer, err := writeRequest[api.SchedulerSetConfigurationResponse](ctx, c, http.MethodPut, schedulerPath, q, cfg)
	return answer.Updated, err
}

const snapshotPath = "/v1/operator/snapshot"

// Snapshot opens a snapshot of the cluster's state.
func (c *Client) Snapshot(ctx context.Context) (io.ReadCloser, error) {
	return c.openStream(ctx, snapshotPath, nil)
}

// RestoreSnapshot replaces the cluster's state by a snapshot. With force it also restores one whose variables the hub
// cannot decrypt.
func (c *Client) RestoreSnapshot(ctx context.Context, snapshot io.Reader, force bool) (api.RestoreAnswer, error) {
	return writeRequest[api.RestoreAnswer](ctx, c, http.MethodPut, snapshotPath, url.Values{"force": {flag(force)}}, snapshot)
}

// CollectGarbage removes ended jobs, evaluations and allocations from the hubs now.
func (c *Client) CollectGarbage(ctx context.Context) error {
	return c.sendPut(ctx, "/v1/system/gc", nil, nil)
}

// MonitorQuery says which agent's log is read, and how.
type MonitorQuery struct {
	Level string
	JSON  bool
	Node  fleet.NodeID // of an edge; "": of a hub
	Hub   string       // "": the one that is asked
}

// Monitor opens the log of an agent, from now on.
func (c *Client) Monitor(ctx context.Context, m MonitorQuery) (io.ReadCloser, error) {
	q := url.Values{"plain": {"true"}, "log_level": {m.Level}, "log_json": {flag(m.JSON)}, "node_id": {string(m.Node)}, "server_id": {m.Hub}}
	return c.openStream(ctx, "/v1/agent/monitor", q)
}

// Search finds the ids that begin with a prefix, by context.
func (c *Client) Search(ctx context.Context, prefix string) (api.SearchAnswer, error) {
	return writeRequest[api.SearchAnswer](ctx, c, http.MethodPost, "/v1/search", nil, api.SearchRequest{Prefix: prefix, Context: "all"})
}

func tokenPath(id string) string { return "/v1/join/token" + joinPath(id) }

// JoinTokens lists join tokens.
func (c *Client) JoinTokens(ctx context.Context) ([]api.JoinToken, error) {
	return readList[api.JoinToken](ctx, c, "/v1/join/tokens", List{})
}

// JoinToken reads a join token, and which machines it admitted.
func (c *Client) JoinToken(ctx context.Context, id string) (api.JoinToken, error) {
	return readAnswer[api.JoinToken](ctx, c, tokenPath(id), nil)
}

// CreateJoinToken creates a join token.
func (c *Client) CreateJoinToken(ctx context.Context, req api.CreateTokenRequest) (api.CreatedToken, error) {
	return writeRequest[api.CreatedToken](ctx, c, http.MethodPut, "/v1/join/tokens", nil, req)
}

// RevokeJoinToken removes a join token; the machines that it admitted stay.
func (c *Client) RevokeJoinToken(ctx context.Context, id string) (api.IndexAnswer, error) {
	return writeRequest[api.IndexAnswer](ctx, c, http.MethodDelete, tokenPath(id), nil, nil)
}
