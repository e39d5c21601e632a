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

func (t *tx) clusterInit(c ClusterInit) Result {
	if row := clusterTable.currentRow(t, onlyKey); row != nil {
		return refused(fleet.CodeConflict, "make cluster %s: there is a cluster, %s", c.Cluster.ID, row.ID)
	}
	clusterTable.putRow(t, &clusterRow{c.Cluster})
	clusterTable.markChanged(t)
	return Result{}
}

func (t *tx) clusterSeal(c ClusterSeal) Result {
	row := clusterTable.currentRow(t, onlyKey)
	switch {
	case row == nil || row.ID != c.ClusterID:
		return refused(fleet.CodeConflict, "seal the secrets of cluster %s: this is not that cluster", fleet.Short(c.ClusterID))
	case len(c.Sealed) == 0 || c.SealKey == "":
		return refused(fleet.CodeInvalid, "seal the secrets of cluster %s: nothing is sealed", fleet.Short(c.ClusterID))
	case len(row.Sealed) > 0 && row.SealKey != c.SealKey:
		return refused(fleet.CodeConflict, "seal the secrets of cluster %s: they are sealed with the state key %s, not %s",
			fleet.Short(c.ClusterID), row.SealKey, c.SealKey)
	case len(row.Sealed) > 0:
		return Result{}
	}
	clusterTable.putRow(t, &clusterRow{row.WithSeal(c)})
	clusterTable.markChanged(t)
	return Result{}
}

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

func (t *tx) storeNodePool(c Pool) Result {
	switch {
	case c.Pool.Name == "" || c.Pool.Name == fleet.AllPools:
		return refused(fleet.CodeInvalid, "store node pool %q: the name is taken", c.Pool.Name)
	case c.Pool.DefaultDisconnect != "" && c.Pool.DefaultDisconnect != fleet.DisconnectKeep &&
		c.Pool.DefaultDisconnect != fleet.DisconnectNomad:
		return refused(fleet.CodeInvalid, "store node pool %s: default_disconnect is %q, not %q or %q", c.Pool.Name,
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

// poolOf returns the rules of a pool, or nil where nobody made any.
func (t *tx) poolOf(name string) *fleet.Pool { return poolTable.currentRow(t, key(name)) }

// Cluster is the cluster's identity, once it was made.
func (v *View) Cluster() (*Cluster, bool) {
	row, ok := clusterTable.watchRow(v, onlyKey)
	if !ok {
		return nil, false
	}
	return &row.Cluster, true
}

// Hubs lists where hubs listen.
func (v *View) Hubs() []HubAddr {
	var out []HubAddr
	for h := range hubTable.watchRows(v) {
		out = append(out, *h)
	}
	return out
}

// Hub returns where a hub listens.
func (v *View) Hub(id fleet.HubID) (HubAddr, bool) {
	h, ok := hubTable.watchRow(v, idKey(id))
	if !ok {
		return HubAddr{}, false
	}
	return *h, true
}

// Certificate returns what is known of a certificate that was issued.
func (v *View) Certificate(serial string) (*Certificate, bool) {
	return certificateTable.watchRow(v, key(serial))
}

// builtinPools exist without anybody making them.
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

// Pools lists node pools by name.
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
