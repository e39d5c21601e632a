package fleet

import (
	"encoding/json"
	"slices"
	"strconv"
)

// The parts of an allocation's JSON that differ in their structure from the noun: its
// resources. The field names say the rest.
type (
	cpuShape struct {
		CpuShares     int
		ReservedCores []int `json:",omitempty"`
	}
	memoryShape struct {
		MemoryMB    int
		MemoryMaxMB int `json:",omitempty"`
	}

	taskResourcesShape struct {
		Cpu      cpuShape
		Memory   memoryShape
		Networks []networkShape   `json:",omitempty"` // of the task's own ports
		Devices  []AssignedDevice `json:",omitempty"`
	}
	sharedShape struct {
		DiskMB   int
		Networks []networkShape `json:",omitempty"`
		Ports    []portShape    `json:",omitempty"`
	}
	networkShape struct {
		Mode          string
		CIDR          string `json:",omitempty"`
		IP            string
		ReservedPorts []Port
		DynamicPorts  []Port
	}
	portShape struct {
		Label  string
		Value  int
		To     int
		HostIP string
	}
	allocResourcesShape struct {
		Tasks          map[string]taskResourcesShape
		TaskLifecycles map[string]*Lifecycle // null for main tasks
		Shared         sharedShape
	}
	// amountShape is what Nomad's clients read where they do not know AllocatedResources.
	amountShape struct {
		CPU, Cores, MemoryMB, MemoryMaxMB, DiskMB int
		Networks                                  []networkShape
		Devices                                   []AssignedDevice
	}
	plainAlloc Alloc
	allocShape struct {
		*plainAlloc
		AllocatedResources         *allocResourcesShape
		Resources, SharedResources *amountShape
		TaskResources              map[string]*amountShape
		NetworkStatus              *NetworkStatus
	}
)

// MarshalJSON writes resources in Nomad's shapes: by task where the job is known, else all
// under the group's name.
func (a Alloc) MarshalJSON() ([]byte, error) {
	shape := allocShape{plainAlloc: (*plainAlloc)(&a), AllocatedResources: a.resourcesShape()}
	shape.addLegacyResources()
	if shape.NetworkStatus = a.NetworkStatus; shape.NetworkStatus == nil && a.Allotment != nil && len(a.Allotment.Ports) > 0 {
		shape.NetworkStatus = &NetworkStatus{Address: a.Allotment.Ports[0].HostIP} // the edge's
	}
	return json.Marshal(shape)
}

// addLegacyResources adds the resources as Nomad's clients read them that know no AllocatedResources:
// of the whole, of each task, and of what tasks share.
func (s *allocShape) addLegacyResources() {
	has := s.AllocatedResources
	s.Resources = &amountShape{DiskMB: has.Shared.DiskMB, Networks: has.Shared.Networks}
	s.SharedResources = &amountShape{DiskMB: has.Shared.DiskMB, Networks: has.Shared.Networks}
	s.TaskResources = make(map[string]*amountShape, len(has.Tasks))
	for name, t := range has.Tasks {
		s.TaskResources[name] = &amountShape{
			CPU: t.Cpu.CpuShares, Cores: len(t.Cpu.ReservedCores), MemoryMB: t.Memory.MemoryMB, MemoryMaxMB: t.Memory.MemoryMaxMB, Networks: t.Networks, Devices: t.Devices,
		}
		s.Resources.CPU += t.Cpu.CpuShares
		s.Resources.Cores += len(t.Cpu.ReservedCores)
		s.Resources.MemoryMB += t.Memory.MemoryMB
		s.Resources.MemoryMaxMB += max(t.Memory.MemoryMaxMB, t.Memory.MemoryMB)
		s.Resources.Devices = append(s.Resources.Devices, t.Devices...)
	}
}

// ResourcesShape is AllocatedResources as the JSON of the allocation has them.
func (a *Alloc) ResourcesShape() any { return a.resourcesShape() }

func (a *Alloc) resourcesShape() *allocResourcesShape {
	res := &allocResourcesShape{Tasks: map[string]taskResourcesShape{}, TaskLifecycles: map[string]*Lifecycle{}, Shared: a.sharedShape()}
	if g := a.Group(); g != nil && a.hasGroupResources(g) {
		for i := range g.Tasks {
			res.Tasks[g.Tasks[i].Name] = a.taskShape(&g.Tasks[i])
			res.TaskLifecycles[g.Tasks[i].Name] = g.Tasks[i].Lifecycle
		}
	} else {
		total := a.AllocatedResources
		res.Tasks[a.TaskGroup] = taskResourcesShape{Cpu: cpuShape{CpuShares: total.CPU}, Memory: memoryShape{MemoryMB: total.MemoryMB}}
	}
	return res
}

// hasGroupResources reports whether the allocation takes what the tasks of the group add up to,
// but for what depends on its node.
func (a *Alloc) hasGroupResources(g *TaskGroup) bool {
	sum, has := g.Resources(), a.AllocatedResources
	if has.Cores > 0 {
		sum.CPU, has.CPU = 0, 0
	}
	sum.MemoryMaxMB, has.MemoryMaxMB = 0, 0
	return sum == has
}

// taskShape is what one task has.
func (a *Alloc) taskShape(t *Task) taskResourcesShape {
	takes := t.Resources.WithSecrets()
	shape := taskResourcesShape{Cpu: cpuShape{CpuShares: takes.CPU}, Memory: memoryShape{MemoryMB: takes.MemoryMB}}
	if a.AllocatedResources.MemoryMaxMB > 0 {
		shape.Memory.MemoryMaxMB = takes.MemoryMaxMB
	}
	if a.Allotment != nil {
		given := a.Allotment.Tasks[t.Name]
		shape.Cpu.ReservedCores, shape.Devices = given.Cores, given.Devices
		if own := t.Ports(); len(own) > 0 {
			shape.Networks = a.networkShapes(own)
		}
	}
	if t.Resources.Cores > 0 && a.AllocatedResources.Cores > 0 {
		// The cpu of whole cores is shared out by how many a task has.
		rest := a.AllocatedResources.CPU - a.sumOfTaskCPU()
		shape.Cpu.CpuShares += rest * t.Resources.Cores / a.AllocatedResources.Cores
	}
	return shape
}

// sumOfTaskCPU is the cpu that the tasks ask for by amount.
func (a *Alloc) sumOfTaskCPU() int {
	sum := 0
	for _, t := range a.Group().Tasks {
		sum += t.Resources.CPU
	}
	return sum
}

// sharedShape is what the allocation's tasks have in common: disk and ports.
func (a *Alloc) sharedShape() sharedShape {
	shape := sharedShape{DiskMB: a.AllocatedResources.DiskMB}
	if a.Allotment == nil || len(a.Allotment.Ports) == 0 {
		return shape
	}
	var asked []Port
	if g := a.Group(); g != nil {
		asked = g.Ports()
	}
	for _, p := range a.Allotment.Ports {
		shape.Ports = append(shape.Ports, portShape{p.Label, p.Value, p.To, p.HostIP})
		if !slices.ContainsFunc(asked, func(q Port) bool { return q.Label == p.Label }) {
			asked = append(asked, Port{Label: p.Label}) // of another version of the job
		}
	}
	shape.Networks = a.networkShapes(asked)
	return shape
}

// networkShapes returns the assigned numbers of ports, which the allocation has on the host's network.
func (a *Alloc) networkShapes(asked []Port) []networkShape {
	fixed, known := map[string]bool{}, map[string]bool{}
	for _, p := range asked {
		known[p.Label], fixed[p.Label] = true, p.Value > 0
	}
	n := networkShape{Mode: NetworkHost}
	for _, p := range a.Allotment.Ports {
		if !known[p.Label] {
			continue
		}
		if n.IP == "" {
			n.IP = p.HostIP
		}
		port := Port{Label: p.Label, Value: p.Value, To: p.To}
		if fixed[p.Label] {
			n.ReservedPorts = append(n.ReservedPorts, port)
		} else {
			n.DynamicPorts = append(n.DynamicPorts, port)
		}
	}
	return []networkShape{n}
}

// UnmarshalJSON reads what MarshalJSON writes, and Nomad's own allocations.
func (a *Alloc) UnmarshalJSON(data []byte) error {
	shape := allocShape{plainAlloc: (*plainAlloc)(a)}
	if err := json.Unmarshal(data, &shape); err != nil {
		return err
	}
	if s := shape.NetworkStatus; s != nil && s.InterfaceName != "" {
		a.NetworkStatus = s
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

// MarshalJSON adds what Nomad's clients look for in the details of an event: how a task ended.
func (e TaskEvent) MarshalJSON() ([]byte, error) {
	type plain TaskEvent
	if e.Type == TaskTerminated && e.Details == nil {
		e.Details = map[string]string{"exit_code": strconv.Itoa(e.ExitCode), "signal": strconv.Itoa(e.Signal)}
		if e.FailsTask {
			e.Details["fails_task"] = "true"
		}
	}
	return json.Marshal(plain(e))
}
