package fleet

// Namespace is a name for jobs that belong together: two jobs of the same id in
// different namespaces are different jobs. DefaultNamespace always exists.
type Namespace struct {
	Name         string
	Description  string
	Capabilities *NamespaceCapabilities // nil: whatever there is
	Meta         map[string]string
	CreateIndex  Index
	ModifyIndex  Index
}

// NamespaceCapabilities says what jobs of a namespace may use. Where a list of what
// is enabled is not empty, nothing else is; what is disabled is not in any case.
type NamespaceCapabilities struct {
	EnabledTaskDrivers   []string
	DisabledTaskDrivers  []string
	EnabledNetworkModes  []string
	DisabledNetworkModes []string
}
