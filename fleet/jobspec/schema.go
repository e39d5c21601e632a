package jobspec

// kind is the type of an attribute's value.
type kind int

const (
	text kind = iota
	number
	boolean
	texts    // a list of text
	duration // text such as "1h30m", or nanoseconds
	numbers  // a list of numbers
	anything
)

// attribute maps an attribute of a block to a key of the API's JSON.
type attribute struct {
	key  string
	kind kind
}

// block says what a kind of block may contain and how it maps to the API's JSON.
type block struct {
	key      string
	label    string // key of its label in the JSON; "" where it has none
	optional bool   // the label may be missing
	repeated bool   // a list in the JSON; else it may stand there once
	keyed    bool   // many, and in the JSON a map by the label
	attrs    map[string]attribute
	blocks   map[string]*block
	// texts blocks are maps of text, and free ones hold what their reader likes; both
	// may also be written as an attribute.
	texts, free bool
	// wrap is the key of a list of parents, one of which is made for this block alone.
	wrap string
	// finish mends the object where HCL's shape is not the JSON's.
	finish func(p *parser, m map[string]any, path string)
}

// asAttribute reports whether the block may also be written with "=".
func (b *block) asAttribute() bool { return b.texts || b.free }

var (
	metaBlock = &block{key: "Meta", texts: true}

	resourcesBlock = &block{
		key: "Resources",
		attrs: map[string]attribute{
			"cpu": {"CPU", number}, "cores": {"Cores", number}, "memory": {"MemoryMB", number},
			"memory_max": {"MemoryMaxMB", number}, "disk": {"DiskMB", number}, "secrets": {"SecretsMB", number},
			"iops": {"IOPS", number},
		},
		blocks: map[string]*block{
			"network": networkBlock,
			"device": {
				key: "Devices", label: "Name", repeated: true,
				attrs:  map[string]attribute{"count": {"Count", number}},
				blocks: map[string]*block{"constraint": constraintBlock, "affinity": affinityBlock},
			},
			"numa": {key: "NUMA", attrs: map[string]attribute{"affinity": {"Affinity", text}, "devices": {"Devices", texts}}},
		},
	}

	logsBlock = &block{
		key: "LogConfig",
		attrs: map[string]attribute{
			"max_files": {"MaxFiles", number}, "max_file_size": {"MaxFileSizeMB", number},
			"disabled": {"Disabled", boolean}, "enabled": {"Enabled", boolean},
		},
	}

	taskBlock = &block{
		key: "Tasks", label: "Name", repeated: true,
		attrs: map[string]attribute{
			"driver": {"Driver", text}, "user": {"User", text}, "kill_timeout": {"KillTimeout", duration},
			"kill_signal": {"KillSignal", text}, "leader": {"Leader", boolean},
			"shutdown_delay": {"ShutdownDelay", duration}, "kind": {"Kind", text},
		},
		blocks: map[string]*block{
			"config": {key: "Config", free: true}, "env": {key: "Env", texts: true}, "meta": metaBlock,
			"constraint": constraintBlock, "affinity": affinityBlock, "resources": resourcesBlock, "restart": restartBlock,
			"logs": logsBlock, "artifact": artifactBlock, "template": templateBlock, "vault": vaultBlock, "consul": taskConsulBlock,
			"service": serviceBlock, "lifecycle": lifecycleBlock, "volume_mount": volumeMountBlock,
			"dispatch_payload": {key: "DispatchPayload", attrs: map[string]attribute{"file": {"File", text}}},
			"csi_plugin":       csiPluginBlock, "scaling": taskScalingBlock, "identity": identityBlock, "action": actionBlock,
			"schedule": scheduleBlock, "secret": secretBlock,
		},
		finish: finishTask,
	}

	groupBlock = &block{
		key: "TaskGroups", label: "Name", repeated: true,
		attrs: map[string]attribute{
			"count": {"Count", number}, "shutdown_delay": {"ShutdownDelay", duration},
			"max_run_duration":             {"MaxRunDuration", duration},
			"stop_after_client_disconnect": {"StopAfterClientDisconnect", duration},
			"max_client_disconnect":        {"MaxClientDisconnect", duration},
			"prevent_reschedule_on_lost":   {"PreventRescheduleOnLost", boolean},
		},
		blocks: map[string]*block{
			"task": taskBlock, "meta": metaBlock, "constraint": constraintBlock, "affinity": affinityBlock, "spread": spreadBlock,
			"restart": restartBlock, "reschedule": rescheduleBlock("ReschedulePolicy"), "update": updateBlock,
			"migrate": migrateBlock, "disconnect": disconnectBlock, "ephemeral_disk": diskBlock, "network": networkBlock,
			"service": serviceBlock, "volume": volumeBlock, "scaling": scalingBlock, "consul": consulBlock, "vault": vaultBlock,
			"secret": secretBlock, "local_control": localControlBlock,
		},
		finish: finishGroup,
	}

	jobBlock = &block{
		key: "Job", label: "ID",
		attrs: map[string]attribute{
			"id": {"ID", text}, "name": {"Name", text}, "region": {"Region", text}, "namespace": {"Namespace", text},
			"type": {"Type", text}, "priority": {"Priority", number}, "all_at_once": {"AllAtOnce", boolean},
			"datacenters": {"Datacenters", texts}, "node_pool": {"NodePool", text},
		},
		blocks: map[string]*block{
			"group": groupBlock, "task": ungroupedTask(), "meta": metaBlock, "constraint": constraintBlock,
			"affinity": affinityBlock, "spread": spreadBlock, "reschedule": rescheduleBlock("Reschedule"), "update": updateBlock,
			"migrate": migrateBlock, "periodic": periodicBlock, "parameterized": parameterizedBlock,
			"multiregion": multiregionBlock, "ui": uiBlock, "vault": vaultBlock, "consul": consulBlock,
			"secret": secretBlock, "local_control": localControlBlock,
		},
		finish: finishJob,
	}
)

// ungroupedTask is a task that stands in the job itself, in a group of its own name.
func ungroupedTask() *block {
	b := *taskBlock
	b.wrap = "TaskGroups"
	return &b
}
