package edge

import (
	"fmt"

	"skerry/edge/logins"
	"skerry/edge/vault"
)

// openVault opens the keeper of what tasks have of Vault, if one is configured.
func (e *Edge) openVault() (err error) {
	if e.cfg.Vault == nil {
		return nil
	}
	e.vault, err = vault.Open(e.cfg.Vault, logins.Config{
		Journal: e.journal, Sealer: e.machine, Log: e.log.With("component", "vault"),
		Needs: e.needsSecrets,
	})
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	return nil
}
