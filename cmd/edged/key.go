package edged

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
	"skerry/edge"
	"skerry/fleet"
)

// keyCommand shows the hash of the edge's public key, for the list of a join token.
func keyCommand() *cobra.Command {
	var out console.Output
	dataDir := ""
	c := &cobra.Command{
		Use: "key", Short: "Show the hash of this edge's public key, for skerry token create --allow-keys", Args: cobra.NoArgs,
		Long: "Show the SHA-256 hash of this edge's public key: the line for this device in the list of skerry token create\n" +
			"--allow-keys. An edge that never started gets its key now, so that a factory can make the list. The key stays secret.",
		Example: "  skerry-edge key --data-dir /var/lib/skerry >>keys.txt",
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := console.CompleteFlags(cmd.Flags(), os.Environ()); err != nil {
				return err
			}
			return out.Open(cmd.OutOrStdout())
		},
		RunE: func(*cobra.Command, []string) error {
			if dataDir == "" {
				return fleet.Errorf(fleet.CodeInvalid, "show the key of an edge: no data directory is given").WithHint("name it with --data-dir")
			}
			hash, err := edge.KeyHash(dataDir)
			if err == nil {
				text := fmt.Sprintf("%x", hash)
				out.Say(struct{ KeyHash string }{text}, "%s", text)
			}
			return out.Close(err)
		},
	}
	c.Flags().StringVar(&dataDir, "data-dir", "", "directory of the edge's data (required)")
	out.AddJSONFlag(c.Flags())
	console.AddConfigFlag(c.Flags())
	return c
}
