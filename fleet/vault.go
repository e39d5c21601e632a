package fleet

import (
	"slices"
	"time"
)

// DefaultCluster is the name of the Consul or Vault cluster of a job that names none.
const DefaultCluster = "default"

// VaultIdentity is the name of the identity with which an edge logs in to Vault for a task. A task with a vault block has
// it without an identity block, with these defaults.
const (
	VaultIdentity        = "vault_default"
	DefaultVaultAudience = "vault.io"
	DefaultVaultTTL      = time.Hour
)

// AttributeVaultVersion is the attribute of a node that has a Vault: the server's version.
const AttributeVaultVersion = "vault.version"

// VaultTokenFile is the file with the token below the task's folder.
const VaultTokenFile = "secrets/vault_token"

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

// HasVault reports whether the node's edge can log in to a Vault.
func (n *Node) HasVault() bool { return n.Attributes[AttributeVaultVersion] != "" }

// UsesVault reports whether a task of the group has a vault block.
func (g *TaskGroup) UsesVault() bool {
	return slices.ContainsFunc(g.Tasks, func(t Task) bool { return t.Vault != nil })
}
