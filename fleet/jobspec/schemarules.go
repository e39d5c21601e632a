package jobspec

import (
	"fmt"
	"slices"
)

// Where a job shall run, and how it is kept running, replaced and launched.
var (
	constraintBlock = &block{key: "Constraints", repeated: true, attrs: conditionAttributes(true), finish: expandCondition}
	affinityBlock   = &block{key: "Affinities", repeated: true, attrs: conditionAttributes(false), finish: expandCondition}

	spreadBlock = &block{
		key: "Spreads", repeated: true,
		attrs: map[string]attribute{"attribute": {"Attribute", text}, "weight": {"Weight", number}},
		blocks: map[string]*block{
			"target": {key: "SpreadTarget", label: "Value", repeated: true, attrs: map[string]attribute{
				"value": {"Value", text}, "percent": {"Percent", number},
			}},
		},
	}

	restartBlock = &block{key: "RestartPolicy", attrs: map[string]attribute{
		"attempts": {"Attempts", number}, "interval": {"Interval", duration},
		"delay": {"Delay", duration}, "mode": {"Mode", text}, "render_templates": {"RenderTemplates", boolean},
	}}

	disconnectBlock = &block{key: "Disconnect", attrs: map[string]attribute{
		"lost_after": {"LostAfter", duration}, "stop_on_client_after": {"StopOnClientAfter", duration},
		"replace": {"Replace", boolean}, "reconcile": {"Reconcile", text},
	}}

	localControlBlock = &block{key: "LocalControl", attrs: map[string]attribute{"allow": {"Allow", texts}, "until": {"Until", text}}}

	diskBlock = &block{key: "EphemeralDisk", attrs: map[string]attribute{
		"size": {"SizeMB", number}, "sticky": {"Sticky", boolean}, "migrate": {"Migrate", boolean},
	}}

	updateBlock = &block{
		key: "Update",
		attrs: map[string]attribute{
			"stagger": {"Stagger", duration}, "max_parallel": {"MaxParallel", number}, "health_check": {"HealthCheck", text},
			"min_healthy_time": {"MinHealthyTime", duration}, "healthy_deadline": {"HealthyDeadline", duration},
			"progress_deadline": {"ProgressDeadline", duration}, "auto_revert": {"AutoRevert", boolean},
			"auto_promote": {"AutoPromote", boolean}, "canary": {"Canary", number},
			"max_unavailable_per_site": {"MaxUnavailablePerSite", number}, "wait_for": {"WaitFor", text},
		},
		blocks: map[string]*block{
			"windows": {key: "Windows", repeated: true, attrs: map[string]attribute{
				"cron": {"Cron", text}, "duration": {"Duration", duration}, "time_zone": {"TimeZone", text},
			}},
		},
	}

	migrateBlock = &block{key: "Migrate", attrs: map[string]attribute{
		"max_parallel": {"MaxParallel", number}, "health_check": {"HealthCheck", text},
		"min_healthy_time": {"MinHealthyTime", duration}, "healthy_deadline": {"HealthyDeadline", duration},
	}}

	periodicBlock = &block{key: "Periodic", attrs: map[string]attribute{
		"enabled": {"Enabled", boolean}, "cron": {"Spec", text}, "crons": {"Specs", texts},
		"prohibit_overlap": {"ProhibitOverlap", boolean}, "time_zone": {"TimeZone", text},
		"run_at_edge": {"RunAtEdge", boolean},
	}}

	parameterizedBlock = &block{key: "ParameterizedJob", attrs: map[string]attribute{
		"payload": {"Payload", text}, "meta_required": {"MetaRequired", texts}, "meta_optional": {"MetaOptional", texts},
	}}

	scalingBlock = &block{
		key: "Scaling", label: "Label", optional: true,
		attrs: map[string]attribute{
			"enabled": {"Enabled", boolean}, "min": {"Min", number}, "max": {"Max", number}, "type": {"Type", text},
		},
		blocks: map[string]*block{"policy": {key: "Policy", free: true}},
		finish: func(_ *parser, m map[string]any, _ string) { delete(m, "Label") },
	}

	taskScalingBlock = &block{
		key: "ScalingPolicies", label: "Type", repeated: true,
		attrs: map[string]attribute{
			"enabled": {"Enabled", boolean}, "min": {"Min", number}, "max": {"Max", number},
		},
		blocks: map[string]*block{"policy": {key: "Policy", free: true}},
		finish: finishTaskScaling,
	}

	multiregionBlock = &block{
		key: "Multiregion",
		blocks: map[string]*block{
			"strategy": {key: "Strategy", attrs: map[string]attribute{
				"max_parallel": {"MaxParallel", number}, "on_failure": {"OnFailure", text},
			}},
			"region": {
				key: "Regions", label: "Name", repeated: true,
				attrs: map[string]attribute{
					"count": {"Count", number}, "datacenters": {"Datacenters", texts}, "node_pool": {"NodePool", text},
				},
				blocks: map[string]*block{"meta": metaBlock},
			},
		},
	}

	uiBlock = &block{
		key: "UI", attrs: map[string]attribute{"description": {"Description", text}},
		blocks: map[string]*block{
			"link": {key: "Links", repeated: true, attrs: map[string]attribute{"label": {"Label", text}, "url": {"URL", text}}},
		},
	}
)

func rescheduleBlock(key string) *block {
	return &block{key: key, attrs: map[string]attribute{
		"attempts": {"Attempts", number}, "interval": {"Interval", duration}, "delay": {"Delay", duration},
		"delay_function": {"DelayFunction", text}, "max_delay": {"MaxDelay", duration}, "unlimited": {"Unlimited", boolean},
	}}
}

// shortForms are operators that may be written as NAME = VALUE.
var shortForms = []string{"version", "semver", "regexp", "set_contains", "set_contains_any", "set_contains_all"}

func conditionAttributes(constraint bool) map[string]attribute {
	attrs := map[string]attribute{
		"attribute": {"LTarget", text}, "operator": {"Operand", text}, "value": {"RTarget", text},
	}
	for _, op := range shortForms {
		attrs[op] = attribute{op, text}
	}
	if constraint {
		attrs["distinct_hosts"] = attribute{"distinct_hosts", boolean}
		attrs["distinct_property"] = attribute{"distinct_property", text}
	} else {
		attrs["weight"] = attribute{"Weight", number}
	}
	return attrs
}

// expandCondition turns the short forms (version = ">= 1") into operator and value. It refuses what a short form would
// overwrite.
func expandCondition(p *parser, m map[string]any, path string) {
	short := ""
	for _, name := range append(slices.Clone(shortForms), "distinct_hosts", "distinct_property") {
		v, ok := m[name]
		if !ok {
			continue
		}
		delete(m, name)
		if short != "" {
			p.addDiagnosticAt(p.positions[path], fmt.Sprintf("%s and %s are two conditions", short, name), "write a block for each")
			continue
		}
		short = name
		p.setCondition(m, path, name, "Operand", name)
		switch {
		case name == "distinct_property":
			p.setCondition(m, path, name, "LTarget", v)
		case name == "distinct_hosts":
			p.setCondition(m, path, name, "RTarget", fmt.Sprint(v))
		default:
			p.setCondition(m, path, name, "RTarget", v)
		}
	}
}

// setCondition sets a key of a condition as a short form says, and refuses another value of it.
func (p *parser) setCondition(m map[string]any, path, short, key string, v any) {
	if given, ok := m[key]; ok && given != v {
		name := map[string]string{"LTarget": "attribute", "Operand": "operator", "RTarget": "value"}[key]
		p.addDiagnosticAt(p.positions[joinPath(path, key)], fmt.Sprintf("%s is %q, and %s says %q", name, given, short, v), "leave one of them out")
	}
	m[key] = v
}
