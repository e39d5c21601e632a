package api

import (
	"encoding/json"

	"skerry/fleet"
)

// NamespaceRequest creates or replaces a namespace. It has the fields of Nomad that a hub refuses, too.
type NamespaceRequest struct {
	fleet.Namespace
	Quota                 string
	NodePoolConfiguration json.RawMessage
	VaultConfiguration    json.RawMessage
	ConsulConfiguration   json.RawMessage
}
