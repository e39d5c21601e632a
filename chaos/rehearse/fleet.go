package rehearse

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"skerry/chaos/schedule"
)

// Fleet is the fleet that a job is rehearsed on.
type Fleet struct {
	schedule.Topology
	// Meta and Attributes of nodes, by the names of edges.
	Meta, Attributes map[string]map[string]string
}

// DefaultHubs is how many hubs a fleet has where nothing is said.
const DefaultHubs = 3

// Bounds of a description.
const (
	maxText    = 1 << 20
	maxEntries = 10_000 // of meta and attribute lines, for all edges together
	maxEntry   = 1024   // of a key and its value, in bytes
)

// ParseFleet reads the description of a fleet: the lines hubs, edges and pool of a
// scenario, and
//
//	meta EDGE KEY=VALUE…       for constraints on ${meta.KEY}
//	attribute EDGE KEY=VALUE…  for constraints on ${attr.KEY}
//
// where EDGE is a number, a name, a site, or all. The file's name is for messages.
func ParseFleet(file string, src []byte) (Fleet, error) {
	if len(src) > maxText {
		return Fleet{}, fmt.Errorf("read %s: %d bytes: at most %d", file, len(src), maxText)
	}
	var topology []string
	var entries []entryLine
	hubs := false
	for i, line := range strings.Split(string(src), "\n") {
		words := strings.Fields(line)
		if comment := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "#") }); comment >= 0 {
			words = words[:comment]
		}
		if len(words) == 0 {
			words = []string{""}
		}
		switch words[0] {
		case "":
			line = ""
		case "hubs":
			hubs = true
		case "edges", "pool":
		case "meta", "attribute":
			entries = append(entries, entryLine{i + 1, words})
			line = ""
		default:
			return Fleet{}, fmt.Errorf("read %s:%d: unknown line %q: a fleet is described by hubs, edges, pool, meta and attribute", file, i+1, words[0])
		}
		topology = append(topology, line)
	}
	if !hubs {
		topology = append(topology, fmt.Sprintf("hubs %d", DefaultHubs))
	}
	topology = append(topology, "length 1s")
	s, err := schedule.Parse(file, []byte(strings.Join(topology, "\n")))
	if err != nil {
		return Fleet{}, fmt.Errorf("read the fleet: %w", err)
	}
	f := Fleet{Topology: s.Topology, Meta: map[string]map[string]string{}, Attributes: map[string]map[string]string{}}
	left := maxEntries
	for _, e := range entries {
		if err := f.applyEntryLine(e, &left); err != nil {
			return Fleet{}, fmt.Errorf("read %s:%d: %w", file, e.number, err)
		}
	}
	return f, nil
}

// entryLine is a line of meta or attributes.
type entryLine struct {
	number int
	words  []string
}

// applyEntryLine gives edges what a line says.
func (f *Fleet) applyEntryLine(e entryLine, left *int) error {
	if len(e.words) < 3 {
		return fmt.Errorf("%s needs an edge and a KEY=VALUE, such as: %s 3 rack=a", e.words[0], e.words[0])
	}
	to := f.Meta
	if e.words[0] == "attribute" {
		to = f.Attributes
	}
	names := f.edgesNamed(e.words[1])
	if len(names) == 0 {
		return fmt.Errorf("there is no edge %q: edges are 1 to %d", e.words[1], len(f.Edges))
	}
	for _, entry := range e.words[2:] {
		key, value, ok := strings.Cut(entry, "=")
		if !ok || key == "" || len(entry) > maxEntry {
			return fmt.Errorf("%.40q is not KEY=VALUE of at most %d bytes", entry, maxEntry)
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

// edgesNamed are the edges that a word names.
func (f *Fleet) edgesNamed(word string) []string {
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
