package api

import (
	"encoding/json"

	"skerry/fleet"
)

// NamespaceRequest is a namespace as Nomad's clients send it.
type NamespaceRequest struct {
	fleet.Namespace
	Quota                 string
	NodePoolConfiguration json.RawMessage
	VaultConfiguration    json.RawMessage
	ConsulConfiguration   json.RawMessage
}
