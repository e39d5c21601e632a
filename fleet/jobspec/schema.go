package jobspec

import "encoding/json"

// kind is what a value of an attribute must be.
type kind int

const (
	text kind = iota
	number
	boolean
	texts    // a list of text
	duration // text such as "1h30m", or nanoseconds
	anything
)

// attribute is what an attribute of a block becomes in the API's JSON. One with no
// key is known and not supported yet: only its zero value passes.
type attribute struct {
	key  string
	kind kind
}

// block is what a kind of block may hold and what it becomes in the API's JSON.
type block struct {
	key    string
	label  string // key of its label in the JSON; "" where it has none
	many   bool   // a list in the JSON; else it may stand there once
	attrs  map[string]attribute
	blocks map[string]*block
	// later are blocks that are known and not supported yet.
	later []string
	// texts blocks are maps of text, and free ones hold what their driver likes; both
	// may also be written as an attribute.
	texts, free bool
	// wrap is the key of a list of parents, one of which is made for this block alone.
	wrap string
	// refuse says why the block's content cannot be taken; "" is none.
	refuse func(m map[string]any) string
	// finish mends the object where HCL's shape is not the JSON's.
	finish func(m map[string]any)
}

// asAttribute reports whether the block may also be written with "=".
func (b *block) asAttribute() bool { return b.texts || b.free }

var later = attribute{kind: anything}

var (
	metaBlock = &block{key: "Meta", texts: true}

	constraintBlock = &block{
		key: "Constraints", many: true,
		attrs: map[string]attribute{
			"attribute": {"LTarget", text}, "operator": {"Operand", text}, "value": {"RTarget", text},
			"version": {"version", text}, "semver": {"semver", text}, "regexp": {"regexp", text},
			"set_contains": {"set_contains", text}, "set_contains_any": {"set_contains_any", text},
			"set_contains_all": {"set_contains_all", text},
			"distinct_hosts":   {"distinct_hosts", boolean}, "distinct_property": {"distinct_property", text},
		},
		finish: expandConstraint,
	}

	restartBlock = &block{key: "RestartPolicy", attrs: map[string]attribute{
		"attempts": {"Attempts", number}, "interval": {"Interval", duration},
		"delay": {"Delay", duration}, "mode": {"Mode", text}, "render_templates": later,
	}}

	disconnectBlock = &block{key: "Disconnect", attrs: map[string]attribute{
		"lost_after": {"LostAfter", duration}, "stop_on_client_after": {"StopOnClientAfter", duration},
		"replace": {"Replace", boolean}, "reconcile": {"Reconcile", text},
	}}

	diskBlock = &block{key: "EphemeralDisk", attrs: map[string]attribute{
		"size": {"SizeMB", number}, "sticky": later, "migrate": later,
	}}

	updateBlock = &block{
		key: "Update",
		attrs: map[string]attribute{
			"stagger": {"Stagger", duration}, "max_parallel": {"MaxParallel", number}, "health_check": {"HealthCheck", text},
			"min_healthy_time": {"MinHealthyTime", duration}, "healthy_deadline": {"HealthyDeadline", duration},
			"progress_deadline": {"ProgressDeadline", duration}, "auto_revert": {"AutoRevert", boolean},
			"auto_promote": {"AutoPromote", boolean}, "canary": {"Canary", number},
		},
		refuse: refuseUpdate,
	}

	resourcesBlock = &block{
		key: "Resources",
		attrs: map[string]attribute{
			"cpu": {"CPU", number}, "memory": {"MemoryMB", number}, "disk": {"DiskMB", number},
			"cores": later, "memory_max": later, "secrets": later, "iops": later,
		},
		later: []string{"network", "device", "numa"},
	}

	logsBlock = &block{key: "LogConfig", attrs: map[string]attribute{
		"max_files": {"MaxFiles", number}, "max_file_size": {"MaxFileSizeMB", number},
		"disabled": later, "enabled": {"Enabled", boolean},
	}}

	taskBlock = &block{
		key: "Tasks", label: "Name", many: true,
		attrs: map[string]attribute{
			"driver": {"Driver", text}, "kill_timeout": {"KillTimeout", duration},
			"kill_signal": {"KillSignal", text}, "leader": {"Leader", boolean},
			"user": later, "shutdown_delay": later, "kind": later,
		},
		blocks: map[string]*block{
			"config": {key: "Config", free: true}, "env": {key: "Env", texts: true}, "meta": metaBlock,
			"constraint": constraintBlock, "resources": resourcesBlock, "restart": restartBlock, "logs": logsBlock,
		},
		later: []string{"affinity", "artifact", "template", "vault", "consul", "service", "lifecycle", "volume_mount",
			"dispatch_payload", "csi_plugin", "scaling", "identity", "action", "schedule", "secret"},
	}

	groupBlock = &block{
		key: "TaskGroups", label: "Name", many: true,
		attrs: map[string]attribute{
			"count": {"Count", number}, "shutdown_delay": later, "max_run_duration": later,
			"stop_after_client_disconnect": later, "max_client_disconnect": later, "prevent_reschedule_on_lost": later,
		},
		blocks: map[string]*block{
			"task": taskBlock, "meta": metaBlock, "constraint": constraintBlock, "restart": restartBlock,
			"reschedule": rescheduleBlock("ReschedulePolicy"), "update": updateBlock, "disconnect": disconnectBlock, "ephemeral_disk": diskBlock,
		},
		later: []string{"affinity", "spread", "migrate", "network", "service", "volume", "scaling",
			"consul", "vault"},
	}

	jobBlock = &block{
		key: "Job", label: "ID",
		attrs: map[string]attribute{
			"id": {"ID", text}, "name": {"Name", text}, "region": {"Region", text}, "namespace": {"Namespace", text},
			"type": {"Type", text}, "priority": {"Priority", number}, "all_at_once": {"AllAtOnce", boolean},
			"datacenters": {"Datacenters", texts}, "node_pool": {"NodePool", text},
		},
		blocks: map[string]*block{
			"group": groupBlock, "task": loneTask(), "meta": metaBlock, "constraint": constraintBlock,
			"reschedule": rescheduleBlock("Reschedule"), "update": updateBlock,
		},
		later: []string{"affinity", "spread", "migrate", "multiregion", "periodic", "parameterized",
			"vault", "consul", "ui"},
	}
)

func rescheduleBlock(key string) *block {
	return &block{key: key, attrs: map[string]attribute{
		"attempts": {"Attempts", number}, "interval": {"Interval", duration}, "delay": {"Delay", duration},
		"delay_function": {"DelayFunction", text}, "max_delay": {"MaxDelay", duration}, "unlimited": {"Unlimited", boolean},
	}}
}

// expandConstraint turns the short forms (version = ">= 1") into operator and value.
func expandConstraint(m map[string]any) {
	for _, op := range []string{"version", "semver", "regexp", "set_contains", "set_contains_any", "set_contains_all"} {
		if v, ok := m[op]; ok {
			m["Operand"], m["RTarget"] = op, v
			delete(m, op)
		}
	}
	if on, ok := m["distinct_hosts"]; ok {
		m["Operand"], m["RTarget"] = "distinct_hosts", "true"
		if on == false {
			m["RTarget"] = "false"
		}
		delete(m, "distinct_hosts")
	}
	if property, ok := m["distinct_property"]; ok {
		m["Operand"], m["LTarget"] = "distinct_property", property
		delete(m, "distinct_property")
	}
}

// refuseUpdate takes an update block only where it asks for what is done anyway: all
// at once and no deployment.
func refuseUpdate(m map[string]any) string {
	if n, ok := m["MaxParallel"].(json.Number); ok && n == "0" && len(m) == 1 {
		return ""
	}
	return "update block is not supported yet, but for max_parallel = 0"
}

// loneTask is a task that stands in the job itself, in a group of its own name.
func loneTask() *block {
	b := *taskBlock
	b.wrap = "TaskGroups"
	return &b
}
