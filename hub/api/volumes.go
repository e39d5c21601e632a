package api

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/fleet/admission"
	"skerry/fleet/placement"
	"skerry/hub/state"
)

func (a *API) volumeEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/volumes", inRequestNamespace("host-volume-read"), a.readHandler(a.listVolumes)},
		{"GET", "/v1/volume/host/{id}", inRequestNamespace("host-volume-read"), readObject(a, "volumes", needVolume, a.readVolume)},
		{"DELETE", "/v1/volume/host/{id}", inRequestNamespace("host-volume-delete"), a.writeHandler(a.deleteVolume)},
		{writes, "/v1/volume/host/create", inObjectNamespace("host-volume-create"), writeBody(a, a.createVolume)},
		{writes, "/v1/volume/host/register", inObjectNamespace("host-volume-register"), writeBody(a, a.registerVolume)},
		{"", "/v1/volume/csi/", public, a.refuseUnsupported("CSI is not supported", "use a dynamic host volume: skerry volume create")},
	}
}

// refuseUnsupported answers every request to an endpoint of Nomad's whose subject does not exist here.
func (a *API) refuseUnsupported(why, hint string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a.writeError(w, fleet.Errorf(fleet.CodeUnsupported, "%s %s: %s", r.Method, r.URL.Path, why).WithHint("%s", hint))
	}
}

// volumeState returns the state of a volume. That of a ready volume depends on its node.
func volumeState(v *state.View, vol *fleet.Volume) string {
	if n, ok := v.Node(vol.NodeID); vol.State == fleet.VolumeReady && (!ok || n.Status != fleet.NodeReady) {
		return fleet.VolumeUnavailable
	}
	return vol.State
}

// listVolumes lists the dynamic host volumes of a namespace by id. There are no volumes of other types.
func (a *API) listVolumes(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	p := r.URL.Query()
	kind := cmp.Or(p.Get("type"), fleet.VolumeHost)
	if kind != fleet.VolumeHost && kind != fleet.VolumeCSI {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "list volumes: there is no type %q", kind).WithHint("type=host lists dynamic host volumes")
	}
	wanted := selectItems(v.Volumes(q.prefix), func(vol *fleet.Volume) bool {
		return kind == fleet.VolumeHost && (q.namespace == "*" || q.namespace == vol.Namespace) &&
			(p.Get("node_id") == "" || p.Get("node_id") == string(vol.NodeID)) && (p.Get("node_pool") == "" || p.Get("node_pool") == vol.NodePool)
	})
	answer, err := page(r, wanted, func(vol *fleet.Volume) string { return string(vol.ID) }, func(vol *fleet.Volume) api.VolumeStub {
		return api.VolumeStub{
			Namespace: vol.Namespace, ID: vol.ID, Name: vol.Name, PluginID: vol.PluginID, NodePool: vol.NodePool, NodeID: vol.NodeID,
			CapacityBytes: vol.CapacityBytes, State: volumeState(v, vol), StateDescription: vol.StateDescription, Deleting: vol.Deleting,
			CreateIndex: vol.CreateIndex, CreateTime: vol.CreateTime, ModifyIndex: vol.ModifyIndex, ModifyTime: vol.ModifyTime,
		}
	})
	return answer, max(v.TableIndex("volumes"), 1), err
}

// needVolume returns the volume whose id is in the request's path. CodeNotFound: the state does not have it in the
// namespace.
func needVolume(v *state.View, r *http.Request) (*fleet.Volume, error) {
	q, err := parseQuery(r)
	if err != nil {
		return nil, err
	}
	id := fleet.VolumeID(r.PathValue("id"))
	vol, ok := v.Volume(id)
	missing := fleet.Errorf(fleet.CodeNotFound, "volume %q not found", id)
	if !ok || q.namespace != "*" && vol.Namespace != q.namespace {
		return nil, missing
	}
	return vol, grantOf(r).checkObject(vol, missing)
}

// readVolume answers with a volume and the allocations that use it.
func (a *API) readVolume(v *state.View, _ *http.Request, _ query, vol *fleet.Volume) (any, fleet.Index, error) {
	answer, index := api.Volume{Volume: *vol}, vol.ModifyIndex
	answer.State = volumeState(v, vol)
	if n, ok := v.Node(vol.NodeID); ok {
		index = max(index, n.ModifyIndex)
	}
	for al := range v.AllocsByNode(vol.NodeID) {
		if al.OccupiesNode() && vol.UsedBy(al) {
			answer.Allocations = append(answer.Allocations, allocStub(al))
			index = max(index, al.CreateIndex)
		}
	}
	return answer, index, nil
}

// createVolume chooses a node for a volume, unless the request names one, and makes its edge create the folder.
func (a *API) createVolume(r *http.Request, req api.VolumeRequest) (any, fleet.Index, error) {
	return a.storeVolume(r, req, "create", func(vol *fleet.Volume) (warnings []string) {
		vol.PluginID = cmp.Or(vol.PluginID, fleet.VolumePluginMkdir)
		if vol.ID == "" && vol.HostPath != "" {
			vol.HostPath = ""
			warnings = append(warnings, "HostPath is ignored: the plugin chooses the folder of a volume that it creates. To use a folder that exists, register the volume")
		}
		return warnings
	})
}

// registerVolume makes an existing folder of an edge a volume.
func (a *API) registerVolume(r *http.Request, req api.VolumeRequest) (any, fleet.Index, error) {
	return a.storeVolume(r, req, "register", func(vol *fleet.Volume) []string {
		vol.Registered = true
		return nil
	})
}

// storeVolume commits a new volume, or a change of the one whose id the request has. prepare completes the volume, and
// returns warnings; verb begins errors.
func (a *API) storeVolume(r *http.Request, req api.VolumeRequest, verb string, prepare func(*fleet.Volume) []string) (any, fleet.Index, error) {
	if req.Volume == nil {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "%s a volume: the request contains no volume", verb)
	}
	vol, ns := *req.Volume, r.URL.Query().Get("namespace")
	if vol.Namespace != "" && vol.Namespace != ns && ns != "" && ns != fleet.DefaultNamespace {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "%s volume %s: the volume has the namespace %q, the request %q", verb, vol.Name, vol.Namespace, ns).
			WithHint("leave the namespace out of one of them")
	}
	vol.Namespace = cmp.Or(vol.Namespace, ns, fleet.DefaultNamespace)
	vol.State, vol.StateDescription, vol.Registered, vol.Deleting = "", "", false, false
	if len(vol.RequestedCapabilities) == 0 {
		vol.RequestedCapabilities = []fleet.VolumeCapability{{AttachmentMode: fleet.AttachFileSystem, AccessMode: fleet.AccessWriter}}
	}
	for i := range vol.RequestedCapabilities {
		c := &vol.RequestedCapabilities[i]
		c.AttachmentMode = cmp.Or(c.AttachmentMode, fleet.AttachFileSystem)
	}
	if err := grantOf(r).checkNamed(acl.KindNamespace, vol.Namespace); err != nil {
		return nil, 0, err
	}
	warnings := prepare(&vol)
	if err := admission.CheckVolume(&vol); err != nil {
		return nil, 0, err
	}
	if err := placement.CheckVolume(&vol); err != nil {
		return nil, 0, err
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	v := a.cfg.State.View()
	if old, known := v.Volume(vol.ID); vol.ID != "" && (!known || !grantOf(r).allowsItem(old)) {
		return nil, 0, fleet.Errorf(fleet.CodeNotFound, "%s volume %s: there is no volume %q to change", verb, vol.Name, vol.ID).WithHint("leave out the id of a new volume")
	} else if !known {
		if vol.NodePool != "" {
			if err := checkPool(v, grantOf(r).rules, vol.NodePool); err != nil {
				return nil, 0, err
			}
		}
		node, err := placeVolume(v, &vol, verb)
		if err == nil {
			err = checkPool(v, grantOf(r).rules, node.NodePool)
		}
		if err != nil {
			return nil, 0, err
		}
		if vol.NodeID, vol.ID = node.ID, fleet.VolumeID(a.cfg.NewID()); node.Status != fleet.NodeReady {
			warnings = append(warnings, fmt.Sprintf("node %s is %s: the volume is created when it is back", node.Name, node.Status))
		}
	}
	res, err := a.commitCommand(r.Context(), state.VolumeStore{Volume: vol, Now: a.cfg.Now().UnixNano()})
	if err != nil {
		return nil, res.Index, err
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, res.Index, err
	}
	if stored, ok := a.cfg.State.View().Volume(vol.ID); ok {
		vol = *stored
	}
	return api.VolumeAnswer{Volume: &vol, Warnings: strings.Join(warnings, "; "), Index: res.Index}, res.Index, nil
}

// placeVolume returns the node for a new volume: the one that the volume names, else the suitable node with the fewest
// volumes.
func placeVolume(v *state.View, vol *fleet.Volume, verb string) (*fleet.Node, error) {
	conditions, err := placement.Conditions(vol.Constraints)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "%s volume %s: %v", verb, vol.Name, err)
	}
	if vol.NodeID != "" {
		n, ok := v.Node(vol.NodeID)
		if !ok {
			return nil, fleet.Errorf(fleet.CodeNotFound, "%s volume %s: there is no node %q", verb, vol.Name, vol.NodeID)
		}
		if why := whyNoVolume(n, vol, conditions); why != "" {
			return nil, fleet.Errorf(fleet.CodeConflict, "%s volume %s: node %s is not suitable: %s", verb, vol.Name, n.Name, why)
		}
		return n, nil
	}
	var best *fleet.Node
	fewest, reasons := 0, map[string]int{}
	for n := range v.Nodes("") {
		count, why := 0, whyNoVolume(n, vol, conditions)
		for other := range v.VolumesOn(n.ID) {
			if count++; other.Name == vol.Name {
				why = cmp.Or(why, "it has a volume of that name")
			}
		}
		switch {
		case why == "" && !n.Schedulable():
			reasons["it is not ready, not eligible, or full"]++
		case why != "":
			reasons[why]++
		case best == nil || count < fewest:
			best, fewest = n, count
		}
	}
	if best == nil {
		return nil, fleet.Errorf(fleet.CodeConflict, "%s volume %s: no node is suitable%s", verb, vol.Name, countReasons(reasons)).
			WithHint("to use a node that is disconnected, write its id as node_id into the volume's file: the volume is created when the node is back")
	}
	return best, nil
}

// countReasons lists why nodes do not suit, with the number of nodes for each reason.
func countReasons(reasons map[string]int) string {
	text := ""
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		text += fmt.Sprintf("; %d: %s", reasons[why], why)
	}
	return text
}

// whyNoVolume returns why a node cannot have a volume, or "".
func whyNoVolume(n *fleet.Node, vol *fleet.Volume, conditions []placement.Condition) string {
	if vol.NodePool != "" && vol.NodePool != fleet.AllPools && vol.NodePool != n.NodePool {
		return "node pool " + n.NodePool
	}
	if n.Attributes[fleet.VolumePluginAttribute] == "" {
		return "its agent has no plugin " + fleet.VolumePluginMkdir
	}
	if h, taken := n.HostVolumes[vol.Name]; taken && h.ID == "" {
		return "it is configured with a host volume of that name"
	}
	for _, c := range conditions {
		if !c.Holds(n) {
			return c.Constraint().String()
		}
	}
	return ""
}

// deleteVolume makes an edge delete a volume that no allocation uses. With force it removes the volume of an edge that
// never comes back from the state.
func (a *API) deleteVolume(r *http.Request) (any, fleet.Index, error) {
	q, err := parseQuery(r)
	if err != nil {
		return nil, 0, err
	}
	force, err := queryFlag(r, "force", false)
	if err != nil {
		return nil, 0, err
	}
	return commitAnswer(a, r, state.VolumeDelete{
		Namespace: q.namespace, ID: fleet.VolumeID(r.PathValue("id")), Force: force, Now: a.cfg.Now().UnixNano(),
	}, indexAnswer)
}
