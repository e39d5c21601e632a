package edge

import (
	"time"

	"skerry/edge/local"
	"skerry/fleet"
	"skerry/syncproto/nodekey"
)

// addKeptCopies adds how old the tokens, templates and variables are that this edge keeps for an allocation, without their contents.
func (a agent) addKeptCopies(one *local.Alloc, of *fleet.Alloc) {
	for _, d := range a.e.identities.Held(of.ID) {
		token := local.Identity{Task: d.Task, Name: d.Name, Issued: time.Unix(d.Issued, 0)}
		_, token.Offline = nodekey.NodeOf(d.KeyID)
		if d.Expires != 0 {
			token.Expires = new(time.Unix(d.Expires, 0))
		}
		one.Identities = append(one.Identities, token)
	}
	if a.e.cfg.KeptTemplates != nil {
		one.Templates = a.e.cfg.KeptTemplates(a.e.dir.File(tasksDir, string(of.ID)), of.Group())
	}
	if !fleet.IsClientTerminal(one.ClientStatus) {
		one.Variables = a.e.variables.Kept(of.Namespace, of.VariablePaths(""))
	}
}
