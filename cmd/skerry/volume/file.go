package volume

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"skerry/cmd/skerry/spec"
	"skerry/fleet"
)

// exampleFile is the file that init writes.
const exampleFile = `# A dynamic host volume: a folder that one node makes.
name      = "sales"
type      = "host"
plugin_id = "mkdir"

# The node, or leave it out: a suitable node is chosen.
# node_id   = "…"
# node_pool = "default"
# constraint {
#   attribute = "${meta.rack}"
#   value     = "r1"
# }

# How jobs may use it.
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

# Of the folder that the plugin mkdir makes.
parameters {
  mode = "0750"
  uid  = "0"
  gid  = "0"
}
`

// parseVolume reads a volume's file, in HCL or JSON.
func parseVolume(name string, src []byte) (fleet.Volume, error) {
	var v fleet.Volume
	if spec.IsJSON(src) {
		err := spec.DecodeJSON(name, src, &v)
		return v, err
	}
	body, err := spec.ParseBody(name, src)
	if err != nil {
		return v, err
	}
	var kind, id, node, smallest, largest string
	err = spec.Attributes(body, map[string]any{
		"id": &id, "name": &v.Name, "type": &kind, "namespace": &v.Namespace, "plugin_id": &v.PluginID, "node_id": &node, "node_pool": &v.NodePool,
		"host_path": &v.HostPath, "capacity_min": &smallest, "capacity_max": &largest, "parameters": &v.Parameters,
	})
	if err != nil {
		return v, err
	}
	v.ID, v.NodeID = fleet.VolumeID(id), fleet.NodeID(node)
	if err := checkType(kind); err != nil {
		return v, err
	}
	for text, into := range map[string]*int64{"capacity_min " + smallest: &v.RequestedCapacityMinBytes, "capacity_max " + largest: &v.RequestedCapacityMaxBytes} {
		if *into, err = parseCapacity(text); err != nil {
			return v, err
		}
	}
	rest := &hclsyntax.Body{Attributes: body.Attributes, SrcRange: body.SrcRange, EndRange: body.EndRange}
	for _, b := range body.Blocks {
		switch {
		case b.Type == "capability" && len(b.Labels) == 0:
			err = readCapability(b.Body, &v)
		case b.Type == "constraint" && len(b.Labels) == 0:
			err = readConstraint(src, b.Body, &v)
		default:
			rest.Blocks = append(rest.Blocks, b)
		}
		if err != nil {
			return v, err
		}
	}
	return v, spec.Blocks(rest, map[string]func(*hclsyntax.Body) error{"parameters": spec.KeyValueBlock(&v.Parameters)})
}

// checkType refuses volumes of other types than host.
func checkType(kind string) error {
	if kind != "" && kind != fleet.VolumeHost {
		return fleet.Errorf(fleet.CodeUnsupported, "volumes of type %q are not supported", kind).WithHint("use the type host: a dynamic host volume")
	}
	return nil
}

func readCapability(body *hclsyntax.Body, v *fleet.Volume) error {
	var c fleet.VolumeCapability
	if err := spec.Attributes(body, map[string]any{"access_mode": &c.AccessMode, "attachment_mode": &c.AttachmentMode}); err != nil {
		return err
	}
	v.RequestedCapabilities = append(v.RequestedCapabilities, c)
	return spec.Blocks(body, nil)
}

// readConstraint reads a constraint, whose texts are taken as they are: ${…} in them names a property of a node.
func readConstraint(src []byte, body *hclsyntax.Body, v *fleet.Volume) error {
	var c fleet.Constraint
	texts := map[string]*string{"attribute": &c.LTarget, "operator": &c.Operand, "value": &c.RTarget}
	for _, attr := range body.Attributes {
		into, known := texts[attr.Name]
		if !known {
			return spec.ErrorAt(attr.NameRange, "%q is not known, or not supported", attr.Name)
		}
		var err error
		if *into, err = strconv.Unquote(string(attr.Expr.Range().SliceBytes(src))); err != nil {
			return spec.ErrorAt(attr.Expr.Range(), "%s is not a text in quotes", attr.Name)
		}
	}
	if c.Operand == "" {
		c.Operand = fleet.OpEqual
	}
	v.Constraints = append(v.Constraints, c)
	return spec.Blocks(body, nil)
}

var capacity = regexp.MustCompile(`^([0-9]{1,15}) ?([kKmMgGtT]?)(i?)[bB]?$`)

// parseCapacity reads "capacity_min 10GiB"; without a number it is 0.
func parseCapacity(text string) (int64, error) {
	name, size, _ := strings.Cut(text, " ")
	if size == "" {
		return 0, nil
	}
	m := capacity.FindStringSubmatch(size)
	if m == nil {
		return 0, fleet.Errorf(fleet.CodeInvalid, "%s is not a size such as \"10GiB\": %.40q", name, size)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	unit := int64(1000)
	if m[3] != "" {
		unit = 1024
	}
	steps := 0
	if m[2] != "" {
		steps = strings.Index("kmgt", strings.ToLower(m[2])) + 1
	}
	for range steps {
		if err != nil || n > math.MaxInt64/unit {
			return 0, fleet.Errorf(fleet.CodeInvalid, "%s is too large: %s", name, size)
		}
		n *= unit
	}
	return n, nil
}
