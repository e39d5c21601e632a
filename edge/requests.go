package edge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"strings"

	"skerry/edge/allocs"
	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/nodekey"
)

// linkEdge implements link.Edge: it passes deliveries to the allocations and answers requests of hubs.
type linkEdge struct{ e *Edge }

// Describe returns this machine's node and its hash. The node names the CAs that the edge has, tells its key for identities
// and how the key of secrets is kept, and says so while the disk is almost full.
func (l linkEdge) Describe() (hash []byte, node fleet.Node) {
	node = l.e.describer.Node()
	added := map[string]string{fleet.AttributeCAs: l.e.namesOfCAs(), fleet.AttributeSecretsKey: string(l.e.keyStore.Status().Place)}
	if why := l.e.space.WhyFull(); why != "" {
		added[fleet.AttributeDiskFull] = why
	}
	if key := l.e.identities.PublicKey(); key != "" {
		added[nodekey.Attribute] = key
	}
	sum := sha256.Sum256([]byte(node.DescriptionHash + added[fleet.AttributeCAs] + added[fleet.AttributeDiskFull] + added[nodekey.Attribute] +
		added[fleet.AttributeSecretsKey]))
	node.DescriptionHash = hex.EncodeToString(sum[:descriptionHashBytes])
	maps.Copy(added, node.Attributes)
	node.Attributes = added
	return []byte(node.DescriptionHash), node
}

// descriptionHashBytes is the length of the hash that Describe makes; package fingerprint's is as long.
const descriptionHashBytes = 16

// Desired returns the index of the newest journaled delivery.
func (l linkEdge) Desired() fleet.Index {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	return l.e.desired
}

// Deliver journals a hub's delivery, remembers its index, and returns the answer.
func (l linkEdge) Deliver(ctx context.Context, d syncproto.Desired) (syncproto.Received, []fleet.AllocID, error) {
	if err := l.e.volumes.Accept(ctx, d.Volumes); err != nil {
		return syncproto.Received{}, nil, err
	}
	if err := l.e.prefetch.Accept(ctx, d.Prefetches); err != nil {
		return syncproto.Received{}, nil, err
	}
	missing, holdings, err := l.e.allocs.Deliver(ctx, d)
	if err != nil {
		return syncproto.Received{}, nil, err
	}
	l.e.mu.Lock()
	l.e.desired = d.Index
	l.e.mu.Unlock()
	return syncproto.Received{Index: d.Index, Missing: missing[:min(len(missing), syncproto.MaxMissing)]}, holdings, nil
}

// Restate appends rows that repeat the state of every allocation.
func (l linkEdge) Restate(ctx context.Context) error { return l.e.allocs.Restate(ctx) }

// Answer executes a request of a hub and returns the bytes that follow the reply. An unknown kind is a
// fleet.CodeUnsupported.
func (l linkEdge) Answer(ctx context.Context, req syncproto.Request) (io.ReadCloser, error) {
	switch req.Kind {
	case syncproto.RequestLogs:
		return l.e.openLogs(ctx, req.Alloc, toLogRequest(req))
	case syncproto.RequestLogPieces:
		return l.e.openLogPieces(ctx, req)
	case syncproto.RequestList, syncproto.RequestStat, syncproto.RequestRead, syncproto.RequestStream:
		return l.e.openAllocFiles(ctx, req)
	case syncproto.RequestChecks:
		return l.e.checkResults(ctx, req.Alloc)
	case syncproto.RequestUsage:
		return l.e.resourceUsage(ctx, req.Alloc, req.Task)
	case syncproto.RequestCollect:
		return emptyOutput(), l.e.allocs.Collect(ctx, req.Alloc)
	case syncproto.RequestMonitor:
		return l.e.streamAgentLogs(ctx, req)
	case syncproto.RequestVariables:
		if req.Complete {
			return emptyOutput(), nil
		}
		return emptyOutput(), l.e.variables.Accept(ctx, req.Variables)
	case syncproto.RequestIdentities:
		return l.e.acceptIdentities(ctx, req)
	case syncproto.RequestSiteCodes:
		return l.e.acceptSiteCodes(ctx, req.SiteCodes)
	case syncproto.RequestData:
		return l.e.allocs.OpenData(ctx, req.Alloc)
	case syncproto.RequestReleaseData:
		l.e.allocs.ReleaseData(req.Alloc)
		return emptyOutput(), nil
	case syncproto.RequestNoData:
		return emptyOutput(), l.e.allocs.NoData(ctx, req.Alloc, req.Reason, req.Wait)
	case syncproto.RequestServices:
		return l.e.acceptServices(ctx, req)
	case syncproto.RequestRestart:
		return emptyOutput(), l.e.allocs.Order(ctx, allocs.Order{
			Alloc: req.Alloc, Task: req.Task, Everything: req.Everything, Why: "restarted by an operator",
		})
	case syncproto.RequestSignal:
		if req.Signal == "" {
			return nil, fleet.Errorf(fleet.CodeInvalid, "signal allocation %s: no signal is given", fleet.Short(req.Alloc))
		}
		return emptyOutput(), l.e.allocs.Order(ctx, allocs.Order{
			Alloc: req.Alloc, Task: req.Task, Signal: req.Signal, Why: "signalled by an operator",
		})
	}
	return nil, fleet.Errorf(fleet.CodeUnsupported, "this edge does not serve %q requests", req.Kind).
		WithHint("its release is older than the hub's")
}

// emptyOutput returns an output without bytes, for requests whose reply says everything.
func emptyOutput() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }
