package main

import (
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"skerry/fleet"
)

// parseNamespace reads a namespace's file, in HCL or JSON. It says of the first thing
// that is wrong where it is.
func parseNamespace(name string, src []byte) (fleet.Namespace, error) {
	var n fleet.Namespace
	if isJSON(src) {
		err := decodeStrict(name, src, &n)
		return n, err
	}
	body, err := parseBody(name, src)
	if err != nil {
		return n, err
	}
	if err := attributes(body, map[string]any{"name": &n.Name, "description": &n.Description, "meta": &n.Meta}); err != nil {
		return n, err
	}
	err = blocks(body, map[string]func(*hclsyntax.Body) error{
		"capabilities": func(b *hclsyntax.Body) error {
			c := &fleet.NamespaceCapabilities{}
			n.Capabilities = c
			err := attributes(b, map[string]any{
				"enabled_task_drivers": &c.EnabledTaskDrivers, "disabled_task_drivers": &c.DisabledTaskDrivers,
				"enabled_network_modes": &c.EnabledNetworkModes, "disabled_network_modes": &c.DisabledNetworkModes,
			})
			if err != nil {
				return err
			}
			return blocks(b, nil)
		},
		"meta": keyValueBlock(&n.Meta),
	})
	return n, err
}
