package state

import (
	"iter"
	"slices"
	"strings"

	"skerry/fleet"
)

type clusterRow struct{ Cluster }

var clusterTable = table[clusterRow]{
	name: "cluster", key: onlyRow[clusterRow], announced: true,
	records: []record[clusterRow]{rowRecord[clusterRow](2)},
}

var hubTable = table[HubAddr]{
	name: "hubs", key: func(r *HubAddr) []byte { return idKey(r.ID) }, announced: true,
	records: []record[HubAddr]{rowRecord[HubAddr](4)},
}

var poolTable = table[fleet.Pool]{
	name: "pools", key: func(r *fleet.Pool) []byte { return key(r.Name) }, announced: true,
	records: []record[fleet.Pool]{rowRecord[fleet.Pool](5)},
}

// clusterInit applies the command ClusterInit: it stores the cluster's identity. It is refused if there is
// one already.
func (t *tx) clusterInit(c ClusterInit) Result {
	if row := clusterTable.currentRow(t, onlyKey); row != nil {
		return refusal(fleet.CodeConflict, "make cluster %s: there is a cluster, %s", c.Cluster.ID, row.ID)
	}
	clusterTable.putRow(t, &clusterRow{c.Cluster})
	clusterTable.markChanged(t)
	return Result{}
}

// clusterSeal applies the command ClusterSeal: it replaces the unencrypted secrets by the sealed ones.
// Sealing again with the same key changes nothing.
func (t *tx) clusterSeal(c ClusterSeal) Result {
	row := clusterTable.currentRow(t, onlyKey)
	switch {
	case row == nil || row.ID != c.ClusterID:
		return refusal(fleet.CodeConflict, "seal the secrets of cluster %s: this is not that cluster", fleet.Short(c.ClusterID))
	case len(c.Sealed) == 0 || c.SealKey == "":
		return refusal(fleet.CodeInvalid, "seal the secrets of cluster %s: nothing is sealed", fleet.Short(c.ClusterID))
	case len(row.Sealed) > 0 && row.SealKey != c.SealKey:
		return refusal(fleet.CodeConflict, "seal the secrets of cluster %s: they are sealed with the state key %s, not %s",
			fleet.Short(c.ClusterID), row.SealKey, c.SealKey)
	case len(row.Sealed) > 0:
		return Result{}
	}
	clusterTable.putRow(t, &clusterRow{row.WithSeal(c)})
	clusterTable.markChanged(t)
	return Result{}
}

// storeHubAddr applies the command Hub: it stores the addresses of a hub, or removes them.
func (t *tx) storeHubAddr(c Hub) Result {
	k := idKey(c.Hub.ID)
	if c.Removed {
		hubTable.removeRow(t, k)
	} else {
		hubTable.putRow(t, &c.Hub)
	}
	hubTable.markChanged(t)
	return Result{}
}

// storeNodePool applies the command Pool: it stores or replaces the rules of a node pool.
func (t *tx) storeNodePool(c Pool) Result {
	switch {
	case c.Pool.Name == "" || c.Pool.Name == fleet.AllPools:
		return refusal(fleet.CodeInvalid, "store node pool %q: the name must not be empty, and the pool %q is built in", c.Pool.Name, fleet.AllPools)
	case c.Pool.DefaultDisconnect != "" && c.Pool.DefaultDisconnect != fleet.DisconnectKeep &&
		c.Pool.DefaultDisconnect != fleet.DisconnectNomad:
		return refusal(fleet.CodeInvalid, "store node pool %s: default_disconnect is %q, not %q or %q", c.Pool.Name,
			c.Pool.DefaultDisconnect, fleet.DisconnectKeep, fleet.DisconnectNomad)
	}
	pool := c.Pool
	pool.CreateIndex, pool.ModifyIndex = t.index, t.index
	if old := poolTable.currentRow(t, key(pool.Name)); old != nil {
		pool.CreateIndex = old.CreateIndex
	}
	poolTable.putRow(t, &pool)
	poolTable.markChanged(t)
	return Result{}
}

// poolOf returns the stored node pool, or nil if there is none. Built-in pools that nobody stored are nil,
// too.
func (t *tx) poolOf(name string) *fleet.Pool { return poolTable.currentRow(t, key(name)) }

// Cluster returns the cluster's identity; ok is false before ClusterInit.
func (v *View) Cluster() (*Cluster, bool) {
	row, ok := clusterTable.watchRow(v, onlyKey)
	if !ok {
		return nil, false
	}
	return &row.Cluster, true
}

// Hubs returns the addresses of all hubs, ordered by id.
func (v *View) Hubs() []HubAddr {
	var out []HubAddr
	for h := range hubTable.watchRows(v) {
		out = append(out, *h)
	}
	return out
}

// Hub returns the addresses of a hub; ok is false if none are stored.
func (v *View) Hub(id fleet.HubID) (HubAddr, bool) {
	h, ok := hubTable.watchRow(v, idKey(id))
	if !ok {
		return HubAddr{}, false
	}
	return *h, true
}

// Certificate returns the record of an issued certificate; ok is false if there is none, or a renewal
// replaced it.
func (v *View) Certificate(serial string) (*Certificate, bool) {
	return certificateTable.watchRow(v, key(serial))
}

// builtinPools are the node pools that exist even if nobody stored them.
var builtinPools = []fleet.Pool{
	{Name: fleet.AllPools, Description: "Nodes of every pool."},
	{Name: fleet.DefaultPool, Description: "Nodes that name no pool."},
}

// Pool returns a node pool; "default" and "all" always exist.
func (v *View) Pool(name string) (*fleet.Pool, bool) {
	if p, ok := poolTable.watchRow(v, key(name)); ok {
		return p, true
	}
	for _, p := range builtinPools {
		if p.Name == name {
			return &p, true
		}
	}
	return nil, false
}

// Pools iterates over all node pools in the order of their names, the built-in ones included.
func (v *View) Pools() iter.Seq[*fleet.Pool] {
	pools := slices.Collect(poolTable.watchRows(v))
	for _, b := range builtinPools {
		i, found := slices.BinarySearchFunc(pools, b.Name, func(p *fleet.Pool, name string) int {
			return strings.Compare(p.Name, name)
		})
		if !found {
			pools = slices.Insert(pools, i, &b)
		}
	}
	return slices.Values(pools)
}
