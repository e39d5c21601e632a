package jobspec

// The schema of connect blocks. The job keeps them as a tree of the API's JSON: nothing acts on
// them.
var (
	gatewayTLSBlock = &block{
		key: "TLS",
		attrs: map[string]attribute{
			"enabled": {"Enabled", boolean}, "tls_min_version": {"TLSMinVersion", text},
			"tls_max_version": {"TLSMaxVersion", text}, "cipher_suites": {"CipherSuites", texts},
		},
		blocks: map[string]*block{"sds": {key: "SDS", attrs: map[string]attribute{
			"cluster_name": {"ClusterName", text}, "cert_resource": {"CertResource", text},
		}}},
	}

	sidecarBlock = &block{
		key: "SidecarService",
		attrs: map[string]attribute{
			"tags": {"Tags", texts}, "port": {"Port", text}, "disable_default_tcp_check": {"DisableDefaultTCPCheck", boolean},
		},
		blocks: map[string]*block{"proxy": proxyBlock, "meta": metaBlock},
	}

	proxyBlock = &block{
		key: "Proxy",
		attrs: map[string]attribute{
			"local_service_address": {"LocalServiceAddress", text}, "local_service_port": {"LocalServicePort", number},
		},
		blocks: map[string]*block{
			"config": {key: "Config", free: true},
			"expose": {key: "Expose", blocks: map[string]*block{
				"path": {key: "Paths", repeated: true, attrs: map[string]attribute{
					"path": {"Path", text}, "protocol": {"Protocol", text}, "local_path_port": {"LocalPathPort", number},
					"listener_port": {"ListenerPort", text},
				}},
			}},
			"upstreams": {
				key: "Upstreams", repeated: true,
				attrs: map[string]attribute{
					"destination_name": {"DestinationName", text}, "destination_namespace": {"DestinationNamespace", text},
					"destination_peer": {"DestinationPeer", text}, "destination_partition": {"DestinationPartition", text},
					"destination_type": {"DestinationType", text}, "local_bind_port": {"LocalBindPort", number},
					"datacenter": {"Datacenter", text}, "local_bind_address": {"LocalBindAddress", text},
					"local_bind_socket_path": {"LocalBindSocketPath", text}, "local_bind_socket_mode": {"LocalBindSocketMode", text},
				},
				blocks: map[string]*block{
					"mesh_gateway": {key: "MeshGateway", attrs: map[string]attribute{"mode": {"Mode", text}}},
					"config":       {key: "Config", free: true},
				},
			},
			"transparent_proxy": {key: "TransparentProxy", attrs: map[string]attribute{
				"uid": {"UID", text}, "outbound_port": {"OutboundPort", number},
				"exclude_inbound_ports": {"ExcludeInboundPorts", texts}, "exclude_outbound_ports": {"ExcludeOutboundPorts", numbers},
				"exclude_outbound_cidrs": {"ExcludeOutboundCIDRs", texts}, "exclude_uids": {"ExcludeUIDs", texts}, "no_dns": {"NoDNS", boolean},
			}},
		},
	}

	gatewayBlock = &block{
		key: "Gateway",
		blocks: map[string]*block{
			"proxy": {
				key: "Proxy",
				attrs: map[string]attribute{
					"connect_timeout":                     {"ConnectTimeout", duration},
					"envoy_gateway_bind_tagged_addresses": {"EnvoyGatewayBindTaggedAddresses", boolean},
					"envoy_gateway_no_default_bind":       {"EnvoyGatewayNoDefaultBind", boolean},
					"envoy_dns_discovery_type":            {"EnvoyDNSDiscoveryType", text},
				},
				blocks: map[string]*block{
					"config": {key: "Config", free: true},
					"envoy_gateway_bind_addresses": {
						key: "EnvoyGatewayBindAddresses", label: "Name", keyed: true,
						attrs: map[string]attribute{"address": {"Address", text}, "port": {"Port", number}},
					},
				},
			},
			"ingress":     ingressBlock,
			"terminating": {key: "Terminating", blocks: map[string]*block{"service": linkedServiceBlock}},
			"mesh":        {key: "Mesh"},
		},
	}

	linkedServiceBlock = &block{key: "Services", repeated: true, attrs: map[string]attribute{
		"name": {"Name", text}, "ca_file": {"CAFile", text}, "cert_file": {"CertFile", text},
		"key_file": {"KeyFile", text}, "sni": {"SNI", text},
	}}

	ingressBlock = &block{
		key: "Ingress",
		blocks: map[string]*block{
			"tls": gatewayTLSBlock,
			"listener": {
				key: "Listeners", repeated: true,
				attrs:  map[string]attribute{"port": {"Port", number}, "protocol": {"Protocol", text}},
				blocks: map[string]*block{"service": ingressServiceBlock},
			},
		},
	}

	ingressServiceBlock = &block{
		key: "Services", repeated: true,
		attrs: map[string]attribute{
			"name": {"Name", text}, "hosts": {"Hosts", texts}, "max_connections": {"MaxConnections", number},
			"max_pending_requests": {"MaxPendingRequests", number}, "max_concurrent_requests": {"MaxConcurrentRequests", number},
		},
		blocks: map[string]*block{
			"tls": gatewayTLSBlock, "request_headers": headersBlock("RequestHeaders"), "response_headers": headersBlock("ResponseHeaders"),
		},
	}

	sidecarTaskBlock = &block{
		key: "SidecarTask",
		attrs: map[string]attribute{
			"name": {"Name", text}, "driver": {"Driver", text}, "user": {"User", text}, "kill_timeout": {"KillTimeout", duration},
			"shutdown_delay": {"ShutdownDelay", duration}, "kill_signal": {"KillSignal", text},
		},
		blocks: map[string]*block{
			"config": {key: "Config", free: true}, "env": {key: "Env", texts: true}, "meta": metaBlock,
			"resources": resourcesBlock, "logs": logsBlock, "volume_mount": volumeMountBlock, "identity": identityBlock,
		},
	}

	connectBlock = &block{
		key: "Connect", attrs: map[string]attribute{"native": {"Native", boolean}},
		blocks: map[string]*block{"gateway": gatewayBlock, "sidecar_service": sidecarBlock, "sidecar_task": sidecarTaskBlock},
	}
)

func headersBlock(key string) *block {
	return &block{
		key: key, attrs: map[string]attribute{"remove": {"Remove", texts}},
		blocks: map[string]*block{"add": {key: "Add", texts: true}, "set": {key: "Set", texts: true}},
	}
}
