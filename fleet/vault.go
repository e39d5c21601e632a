package fleet

// DefaultCluster is the name of the Consul or Vault cluster of a job that names none.
const DefaultCluster = "default"

// Vault is what a task may know of a Vault server.
type Vault struct {
	Role                 string
	Policies             []string
	Namespace            string
	Cluster              string // default DefaultCluster
	Env                  bool   // default true
	DisableFile          bool
	ChangeMode           string // default ChangeRestart
	ChangeSignal         string // of ChangeMode signal; default SIGHUP
	AllowTokenExpiration bool
}

// Secret is something that a task gets from a keeper of secrets.
type Secret struct {
	Name     string
	Provider string
	Path     string
	Config   map[string]any
	Env      map[string]string
}
