package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"skerry/chaos/schedule"
)

// rehearsedFleet is the fleet of a rehearsal.
type rehearsedFleet struct {
	schedule.Topology
	// Meta and Attributes of nodes, by the edge's name.
	Meta, Attributes map[string]map[string]string
}

// defaultHubs is the default number of hubs.
const defaultHubs = 3

// Limits of a fleet file.
const (
	maxText    = 1 << 20
	maxEntries = 10_000 // of meta and attributes, for all edges together
	maxEntry   = 1024   // size of a key with its value, in bytes
)

// fleetText is the content of a fleet file: hubs, edges and pools as in a scenario, and the values
// for constraints on ${meta.KEY} and ${attr.KEY}.
type fleetText struct {
	schedule.Topology `yaml:",inline"`
	Meta              []entries `yaml:"meta"`
	Attributes        []entries `yaml:"attributes"`
}

// entries sets keys to values on edges. Edges is a number, a name, a site, or "all".
type entries struct {
	Edges string            `yaml:"edges"`
	Set   map[string]string `yaml:"set"`
}

// parseFleet parses and validates a fleet file. The file's name is for messages.
func parseFleet(file string, src []byte) (rehearsedFleet, error) {
	if len(src) > maxText {
		return rehearsedFleet{}, fmt.Errorf("read %s: %d bytes: at most %d are allowed", file, len(src), maxText)
	}
	text := fleetText{Topology: schedule.NewTopology(defaultHubs, 0)}
	if err := schedule.DecodeText(file, src, &text); err != nil {
		return rehearsedFleet{}, fmt.Errorf("read the fleet: %w", err)
	}
	if err := (schedule.Schedule{Topology: text.Topology, Length: time.Second}).Validate().Err(); err != nil {
		return rehearsedFleet{}, fmt.Errorf("read %s: %w", file, err)
	}
	f := rehearsedFleet{Topology: text.Topology, Meta: map[string]map[string]string{}, Attributes: map[string]map[string]string{}}
	left := maxEntries
	for _, part := range []struct {
		name string
		list []entries
		to   map[string]map[string]string
	}{{"meta", text.Meta, f.Meta}, {"attributes", text.Attributes, f.Attributes}} {
		for _, e := range part.list {
			if err := f.applyEntries(e, part.to, &left); err != nil {
				return rehearsedFleet{}, fmt.Errorf("read %s: %s: %w", file, part.name, err)
			}
		}
	}
	return f, nil
}

// applyEntries adds the keys and values of e to the maps of its edges in `to`. left is the number of
// entries that the file may still set; it is reduced.
func (f *rehearsedFleet) applyEntries(e entries, to map[string]map[string]string, left *int) error {
	names := f.edgesNamed(e.Edges)
	if len(names) == 0 {
		return fmt.Errorf("there is no edge %q: edges are 1 to %d", e.Edges, len(f.Edges))
	}
	if len(e.Set) == 0 {
		return fmt.Errorf("nothing is set, such as: {edges: %s, set: {rack: a}}", e.Edges)
	}
	for key, value := range e.Set {
		if key == "" || len(key)+len(value) > maxEntry {
			return fmt.Errorf("%.40q: a key and its value have 1 to %d bytes", key, maxEntry)
		}
		for _, name := range names {
			if *left--; *left < 0 {
				return fmt.Errorf("more than %d entries, for all edges together", maxEntries)
			}
			if to[name] == nil {
				to[name] = map[string]string{}
			}
			to[name][key] = value
		}
	}
	return nil
}

// edgesNamed returns the names of the edges that a number, name, site or "all" selects.
func (f *rehearsedFleet) edgesNamed(word string) []string {
	if n, err := strconv.Atoi(word); err == nil {
		word = schedule.EdgeName(n)
	}
	var names []string
	for _, e := range f.Edges {
		if word == "all" || word == e.Name || word == e.Site && e.Site != "" {
			names = append(names, e.Name)
		}
	}
	return slices.Clip(names)
}
