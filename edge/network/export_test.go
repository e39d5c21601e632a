package network

// For tests.
var (
	DecodeState         = decodeState
	DecodeNetworkConfig = decodeNetworkConfig
	ParsePluginVersion  = parsePluginVersion
	IsNamespace         = isNamespace
	CreateNamespace     = createNamespace
	RemoveNamespace     = removeNamespace
)

// LeasesDir is the folder of the addresses that were given.
func (h *Hook) LeasesDir() string { return h.leasesDir() }
