package fleet

import "encoding/json"

// What of Nomad's JSON differs in its structure from the nouns: the resources of
// allocations and nodes. Everything else is told by the field names.
type (
	cpuShape    struct{ CpuShares int }
	memoryShape struct{ MemoryMB int }
	diskShape   struct{ DiskMB int }

	taskResourcesShape struct {
		Cpu    cpuShape
		Memory memoryShape
	}
	allocResourcesShape struct {
		Tasks  map[string]taskResourcesShape
		Shared diskShape
	}
	nodeResourcesShape struct {
		Cpu     cpuShape
		Memory  memoryShape
		Disk    diskShape
		Devices []deviceShape `json:",omitempty"`
	}
	deviceShape struct {
		Vendor, Type, Name string
		Instances          []instanceShape
		Attributes         map[string]attributeShape `json:",omitempty"`
	}
	instanceShape struct {
		ID      string
		Healthy bool
	}
	attributeShape struct{ String string }

	plainAlloc Alloc
	allocShape struct {
		*plainAlloc
		AllocatedResources *allocResourcesShape
	}
	plainNode Node
	nodeShape struct {
		*plainNode
		Drain             bool
		NodeResources     nodeResourcesShape
		ReservedResources nodeResourcesShape
	}
)

// MarshalJSON writes AllocatedResources in Nomad's shape: by task where the job is
// known, else all under the group's name.
func (a Alloc) MarshalJSON() ([]byte, error) {
	res := &allocResourcesShape{Tasks: map[string]taskResourcesShape{}, Shared: diskShape{a.AllocatedResources.DiskMB}}
	if g := a.Group(); g != nil && g.Resources() == a.AllocatedResources {
		for _, t := range g.Tasks {
			res.Tasks[t.Name] = taskResourcesShape{cpuShape{t.Resources.CPU}, memoryShape{t.Resources.MemoryMB}}
		}
	} else {
		total := a.AllocatedResources
		res.Tasks[a.TaskGroup] = taskResourcesShape{cpuShape{total.CPU}, memoryShape{total.MemoryMB}}
	}
	return json.Marshal(allocShape{(*plainAlloc)(&a), res})
}

// UnmarshalJSON reads what MarshalJSON writes, and Nomad's own allocations.
func (a *Alloc) UnmarshalJSON(data []byte) error {
	shape := allocShape{plainAlloc: (*plainAlloc)(a)}
	if err := json.Unmarshal(data, &shape); err != nil {
		return err
	}
	if shape.AllocatedResources == nil {
		return nil
	}
	a.AllocatedResources = Resources{DiskMB: shape.AllocatedResources.Shared.DiskMB}
	for _, t := range shape.AllocatedResources.Tasks {
		a.AllocatedResources = a.AllocatedResources.Add(Resources{CPU: t.Cpu.CpuShares, MemoryMB: t.Memory.MemoryMB})
	}
	return nil
}

// MarshalJSON adds Drain, NodeResources and ReservedResources, as Nomad's clients read
// them, beside Resources, Reserved and Devices.
func (n Node) MarshalJSON() ([]byte, error) {
	total := resourcesShape(n.Resources)
	total.Devices = deviceShapes(n.Devices)
	return json.Marshal(nodeShape{(*plainNode)(&n), n.DrainStrategy != nil, total, resourcesShape(n.Reserved)})
}

func resourcesShape(r Resources) nodeResourcesShape {
	return nodeResourcesShape{Cpu: cpuShape{r.CPU}, Memory: memoryShape{r.MemoryMB}, Disk: diskShape{r.DiskMB}}
}

// deviceShapes groups devices of one vendor, type and name, in order of appearance.
func deviceShapes(devices []Device) []deviceShape {
	var shapes []deviceShape
	index := map[[3]string]int{}
	for _, d := range devices {
		key := [3]string{d.Vendor, d.Type, d.Name}
		i, ok := index[key]
		if !ok {
			i = len(shapes)
			index[key] = i
			attrs := make(map[string]attributeShape, len(d.Attributes))
			for k, v := range d.Attributes {
				attrs[k] = attributeShape{v}
			}
			shapes = append(shapes, deviceShape{Vendor: d.Vendor, Type: d.Type, Name: d.Name, Attributes: attrs})
		}
		shapes[i].Instances = append(shapes[i].Instances, instanceShape{ID: d.ID, Healthy: true})
	}
	return shapes
}
