package jobspec

import (
	"maps"
	"slices"
)

// SchemaPart is a kind of block that a job file may hold.
type SchemaPart struct {
	Path   string   // of the first place that it has: job.group.task
	Keys   []string // in the JSON, of the blocks around it and its own
	Attrs  []SchemaAttr
	Blocks []SchemaBlock
}

// SchemaAttr is NAME = VALUE within a block.
type SchemaAttr struct {
	Name, Key, Kind string
}

// SchemaBlock is a block within another one.
type SchemaBlock struct {
	Name string
	Part string // the path of its kind
	Key  string
	// List, Keyed, Free, Texts, Label: as package jobspec's own description has them.
	List, Keyed, Free, Texts, Label bool
}

// Schema lists all kinds of blocks, each once, the outer ones first.
func Schema() []SchemaPart {
	var parts []SchemaPart
	paths := map[*block]string{}
	type place struct {
		path string
		keys []string
		b    *block
	}
	queue := []place{{"job", nil, jobBlock}}
	paths[jobBlock] = "job"
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		part := SchemaPart{Path: at.path, Keys: at.keys}
		for _, name := range slices.Sorted(maps.Keys(at.b.attrs)) {
			a := at.b.attrs[name]
			part.Attrs = append(part.Attrs, SchemaAttr{name, a.key, kindName(a.kind)})
		}
		for _, name := range slices.Sorted(maps.Keys(at.b.blocks)) {
			inner := at.b.blocks[name]
			if inner.wrap != "" {
				part.Blocks = append(part.Blocks, SchemaBlock{Name: name, Part: "job.group.task", Key: inner.wrap, List: true, Label: true})
				continue
			}
			if _, known := paths[inner]; !known {
				paths[inner] = at.path + "." + name
				queue = append(queue, place{paths[inner], append(slices.Clone(at.keys), inner.key), inner})
			}
			part.Blocks = append(part.Blocks, SchemaBlock{name, paths[inner], inner.key, inner.repeated, inner.keyed, inner.free, inner.texts, inner.label != ""})
		}
		parts = append(parts, part)
	}
	return parts
}
