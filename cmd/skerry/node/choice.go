package node

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"skerry/fleet"
)

// nodeChoice are the flags that choose nodes for a list.
type nodeChoice struct {
	site, pool, status, expression string
}

// addNodeChoiceFlags adds --site, --pool, --status and --filter to a command.
func (c *nodeChoice) addNodeChoiceFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.site, "site", "", `show only nodes of these sites: a name, or a pattern such as "shop-*"`)
	flags.StringVar(&c.pool, "pool", "", "show only nodes of this node pool")
	flags.StringVar(&c.status, "status", "", "show only nodes with this status: ready, initializing, disconnected or down")
	flags.StringVar(&c.expression, "filter", "", `show only nodes for which this expression is true, such as Meta.rack == "r1"`)
}

// filterExpression is the expression that a hub takes for the choice; "" is every node. A status that no
// node can have is refused.
func (c *nodeChoice) filterExpression() (string, error) {
	switch fleet.NodeStatus(c.status) {
	case "", fleet.NodeReady, fleet.NodeInitializing, fleet.NodeDisconnected, fleet.NodeDown:
	default:
		return "", fleet.Errorf(fleet.CodeInvalid, "read --status: %q is not a status of a node", c.status).
			WithHint("use ready, initializing, disconnected or down")
	}
	var parts []string
	if c.site != "" {
		site := sitePattern(c.site)
		parts = append(parts, fmt.Sprintf("(Site matches %q or Site == \"\" and Datacenter matches %[1]q)", site))
	}
	if c.pool != "" {
		parts = append(parts, fmt.Sprintf("NodePool == %q", c.pool))
	}
	if c.status != "" {
		parts = append(parts, fmt.Sprintf("Status == %q", c.status))
	}
	if c.expression != "" {
		parts = append(parts, "("+c.expression+")")
	}
	return strings.Join(parts, " and "), nil
}

// sitePattern turns a pattern with * and ? into an expression that matches the whole name.
func sitePattern(pattern string) string {
	quoted := regexp.QuoteMeta(pattern)
	return "^" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(quoted) + "$"
}
