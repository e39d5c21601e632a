package jobspec

// The schema of networks, services, files, storage and identities.
var (
	networkBlock = &block{
		key: "Networks", repeated: true,
		attrs: map[string]attribute{
			"mode": {"Mode", text}, "device": {"Device", text}, "cidr": {"CIDR", text}, "ip": {"IP", text},
			"hostname": {"Hostname", text}, "mbits": {"MBits", number},
		},
		blocks: map[string]*block{
			"dns": {key: "DNS", attrs: map[string]attribute{
				"servers": {"Servers", texts}, "searches": {"Searches", texts}, "options": {"Options", texts},
			}},
			"port": {key: "DynamicPorts", label: "Label", repeated: true, attrs: map[string]attribute{
				"static": {"Value", number}, "to": {"To", number}, "host_network": {"HostNetwork", text},
				"ignore_collision": {"IgnoreCollision", boolean},
			}},
			"cni": {key: "CNI", blocks: map[string]*block{"args": {key: "Args", texts: true}}},
		},
		finish: finishNetwork,
	}

	checkRestartBlock = &block{key: "CheckRestart", attrs: map[string]attribute{
		"limit": {"Limit", number}, "grace": {"Grace", duration}, "ignore_warnings": {"IgnoreWarnings", boolean},
	}}

	checkBlock = &block{
		key: "Checks", repeated: true,
		attrs: map[string]attribute{
			"name": {"Name", text}, "type": {"Type", text}, "command": {"Command", text}, "args": {"Args", texts},
			"path": {"Path", text}, "protocol": {"Protocol", text}, "port": {"PortLabel", text}, "expose": {"Expose", boolean},
			"address_mode": {"AddressMode", text}, "advertise": {"Advertise", text}, "interval": {"Interval", duration},
			"timeout": {"Timeout", duration}, "initial_status": {"InitialStatus", text}, "notes": {"Notes", text},
			"tls_server_name": {"TLSServerName", text}, "tls_skip_verify": {"TLSSkipVerify", boolean}, "method": {"Method", text},
			"grpc_service": {"GRPCService", text}, "grpc_use_tls": {"GRPCUseTLS", boolean}, "task": {"TaskName", text},
			"success_before_passing":   {"SuccessBeforePassing", number},
			"failures_before_critical": {"FailuresBeforeCritical", number},
			"failures_before_warning":  {"FailuresBeforeWarning", number},
			"body":                     {"Body", text}, "on_update": {"OnUpdate", text},
		},
		blocks: map[string]*block{"header": {key: "Header", free: true}, "check_restart": checkRestartBlock},
	}

	serviceBlock = &block{
		key: "Services", repeated: true,
		attrs: map[string]attribute{
			"name": {"Name", text}, "tags": {"Tags", texts}, "canary_tags": {"CanaryTags", texts},
			"enable_tag_override": {"EnableTagOverride", boolean}, "port": {"PortLabel", text},
			"address_mode": {"AddressMode", text}, "address": {"Address", text}, "task": {"TaskName", text},
			"on_update": {"OnUpdate", text}, "provider": {"Provider", text}, "cluster": {"Cluster", text}, "kind": {"Kind", text},
		},
		blocks: map[string]*block{
			"check": checkBlock, "check_restart": checkRestartBlock, "connect": connectBlock, "meta": metaBlock,
			"canary_meta": {key: "CanaryMeta", texts: true}, "tagged_addresses": {key: "TaggedAddresses", texts: true},
			"weights":  {key: "Weights", attrs: map[string]attribute{"passing": {"Passing", number}, "warning": {"Warning", number}}},
			"identity": {key: "Identity", attrs: identityBlock.attrs},
		},
	}

	volumeBlock = &block{
		key: "Volumes", label: "Name", keyed: true,
		attrs: map[string]attribute{
			"type": {"Type", text}, "source": {"Source", text}, "read_only": {"ReadOnly", boolean}, "sticky": {"Sticky", boolean},
			"access_mode": {"AccessMode", text}, "attachment_mode": {"AttachmentMode", text}, "per_alloc": {"PerAlloc", boolean},
		},
		blocks: map[string]*block{"mount_options": {key: "MountOptions", attrs: map[string]attribute{
			"fs_type": {"FSType", text}, "mount_flags": {"MountFlags", texts},
		}}},
	}

	volumeMountBlock = &block{key: "VolumeMounts", repeated: true, attrs: map[string]attribute{
		"volume": {"Volume", text}, "destination": {"Destination", text}, "read_only": {"ReadOnly", boolean},
		"propagation_mode": {"PropagationMode", text}, "selinux_label": {"SELinuxLabel", text},
	}}

	csiPluginBlock = &block{key: "CSIPluginConfig", attrs: map[string]attribute{
		"id": {"ID", text}, "type": {"Type", text}, "mount_dir": {"MountDir", text},
		"stage_publish_base_dir": {"StagePublishBaseDir", text}, "health_timeout": {"HealthTimeout", duration},
	}}

	lifecycleBlock = &block{key: "Lifecycle", attrs: map[string]attribute{
		"hook": {"Hook", text}, "sidecar": {"Sidecar", boolean},
	}}

	artifactBlock = &block{
		key: "Artifacts", repeated: true,
		attrs: map[string]attribute{
			"source": {"GetterSource", text}, "mode": {"GetterMode", text}, "insecure": {"GetterInsecure", boolean},
			"destination": {"RelativeDest", text}, "chown": {"Chown", boolean},
		},
		blocks: map[string]*block{
			"options": {key: "GetterOptions", texts: true}, "headers": {key: "GetterHeaders", texts: true},
		},
	}

	templateBlock = &block{
		key: "Templates", repeated: true,
		attrs: map[string]attribute{
			"source": {"SourcePath", text}, "destination": {"DestPath", text}, "data": {"EmbeddedTmpl", text},
			"change_mode": {"ChangeMode", text}, "change_signal": {"ChangeSignal", text}, "once": {"Once", boolean},
			"splay": {"Splay", duration}, "perms": {"Perms", text}, "uid": {"Uid", number}, "gid": {"Gid", number},
			"left_delimiter": {"LeftDelim", text}, "right_delimiter": {"RightDelim", text}, "env": {"Envvars", boolean},
			"vault_grace": {"VaultGrace", duration}, "error_on_missing_key": {"ErrMissingKey", boolean},
			"max_age": {"MaxAge", duration}, "max_age_signal": {"MaxAgeSignal", text},
		},
		blocks: map[string]*block{
			"change_script": {key: "ChangeScript", attrs: map[string]attribute{
				"command": {"Command", text}, "args": {"Args", texts}, "timeout": {"Timeout", duration},
				"fail_on_error": {"FailOnError", boolean}, "run_on_first_render": {"RunOnFirstRender", boolean},
			}},
			"wait": {key: "Wait", free: true, finish: finishWait},
		},
	}

	vaultBlock = &block{key: "Vault", attrs: map[string]attribute{
		"policies": {"Policies", texts}, "role": {"Role", text}, "namespace": {"Namespace", text}, "cluster": {"Cluster", text},
		"env": {"Env", boolean}, "disable_file": {"DisableFile", boolean}, "change_mode": {"ChangeMode", text},
		"change_signal": {"ChangeSignal", text}, "allow_token_expiration": {"AllowTokenExpiration", boolean},
	}}

	consulBlock = &block{key: "Consul", attrs: map[string]attribute{
		"namespace": {"Namespace", text}, "cluster": {"Cluster", text}, "partition": {"Partition", text},
	}}

	taskConsulBlock = &block{key: "Consul", attrs: map[string]attribute{
		"namespace": {"Namespace", text}, "cluster": {"Cluster", text}, "partition": {"Partition", text}, "env": {"Env", boolean},
	}}

	identityBlock = &block{key: "Identities", repeated: true, attrs: map[string]attribute{
		"name": {"Name", text}, "aud": {"Audience", texts}, "change_mode": {"ChangeMode", text},
		"change_signal": {"ChangeSignal", text}, "env": {"Env", boolean}, "file": {"File", boolean},
		"filepath": {"Filepath", text}, "service_name": {"ServiceName", text}, "ttl": {"TTL", duration},
		"extra_claims": {"ExtraClaims", texts}, "offline": {"Offline", boolean},
	}}

	actionBlock = &block{key: "Actions", label: "Name", repeated: true, attrs: map[string]attribute{
		"command": {"Command", text}, "args": {"Args", texts},
	}}

	scheduleBlock = &block{key: "Schedule", blocks: map[string]*block{
		"cron": {key: "Cron", attrs: map[string]attribute{
			"start": {"Start", text}, "end": {"End", text}, "timezone": {"Timezone", text},
		}},
	}}

	secretBlock = &block{
		key: "Secrets", label: "Name", repeated: true,
		attrs:  map[string]attribute{"provider": {"Provider", text}, "path": {"Path", text}},
		blocks: map[string]*block{"config": {key: "Config", free: true}, "env": {key: "Env", texts: true}},
	}
)
