package node

import (
	_ "embed"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"skerry/cmd/skerry/spec"
	"skerry/fleet"
	"skerry/fleet/admission"
)

// parsePool reads a node pool's file, in HCL or JSON. It says of the first thing that
// is wrong where it is.
func parsePool(name string, src []byte) (fleet.Pool, error) {
	var p fleet.Pool
	if spec.IsJSON(src) {
		err := spec.DecodeJSON(name, src, &p)
		if err == nil {
			err = admission.CheckPool(&p)
		}
		return p, err
	}
	body, err := spec.ParseBody(name, src)
	if err != nil {
		return p, err
	}
	if err := spec.Attributes(body, nil); err != nil {
		return p, err
	}
	for i, b := range body.Blocks {
		switch {
		case b.Type != "node_pool":
			return p, spec.ErrorAt(b.TypeRange, "block %q is not known, or not supported", b.Type)
		case i > 0:
			return p, spec.ErrorAt(b.TypeRange, "there is a node_pool already: one file has one")
		case len(b.Labels) != 1:
			return p, spec.ErrorAt(b.TypeRange, "a block node_pool has one label, the pool's name")
		}
		p.Name = b.Labels[0]
		if err := poolRules(b.Body, &p); err != nil {
			return p, err
		}
		if err := admission.CheckPool(&p); err != nil {
			return p, spec.ErrorAt(b.TypeRange, "%s", fleet.AsError(err).Message)
		}
	}
	if len(body.Blocks) == 0 {
		return p, fleet.Errorf(fleet.CodeInvalid, "read %s: it has no block node_pool \"NAME\" { … }", name)
	}
	return p, nil
}

func poolRules(body *hclsyntax.Body, p *fleet.Pool) error {
	if attr := body.Attributes["node_identity_ttl"]; attr != nil {
		return spec.ErrorAt(attr.NameRange, "node_identity_ttl is not supported: a node's identity is its certificate, which is renewed by itself")
	}
	err := spec.Attributes(body, map[string]any{
		"description": &p.Description, "meta": &p.Meta, "default_disconnect": &p.DefaultDisconnect, "heartbeat_ttl": &p.HeartbeatTTL,
	})
	if err != nil {
		return err
	}
	return spec.Blocks(body, map[string]func(*hclsyntax.Body) error{
		"meta": spec.KeyValueBlock(&p.Meta),
		"scheduler_config": func(b *hclsyntax.Body) error {
			s, oversubscribed := &fleet.PoolScheduling{}, false
			p.SchedulerConfiguration = s
			err := spec.Attributes(b, map[string]any{
				"scheduler_algorithm": &s.SchedulerAlgorithm, "memory_oversubscription_enabled": &oversubscribed,
			})
			if b.Attributes["memory_oversubscription_enabled"] != nil {
				s.MemoryOversubscriptionEnabled = &oversubscribed
			}
			if err != nil {
				return err
			}
			return spec.Blocks(b, nil)
		},
	})
}

// Examples of a node pool's file: what init writes.
var (
	//go:embed pool.hcl
	examplePoolHCL string
	//go:embed pool.json
	examplePoolJSON string
)
