//go:build unix

package local_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skerry/edge/local"
	"skerry/fleet"
)

// deniedTransport fails as the system does for a user who may not open the socket. Root may open every socket.
type deniedTransport struct{}

func (deniedTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)}
}

// TestForbiddenNamesWhoMay tells a user who may not open the socket who may: its user, or also its group, or, where the
// folder hides the socket, who may enter the folder.
func TestForbiddenNamesWhoMay(t *testing.T) {
	for name, tc := range map[string]struct {
		socket, folder fs.FileMode // socket 0: there is none
		belongs, says  string
	}{
		"the user alone":          {0o600, 0o700, "local.sock belongs to user ", ": run the command as that user, or with sudo"},
		"the group too":           {0o660, 0o700, "local.sock belongs to user ", ": run the command as a member of that group, or with sudo"},
		"a group that only reads": {0o640, 0o750, "local.sock belongs to user ", ": run the command as that user, or with sudo"},
		"a hidden socket":         {0, 0o700, "run belongs to user ", ": run the command as that user, or with sudo"},
		"a folder of the group":   {0, 0o710, "run belongs to user ", ": run the command as a member of that group, or with sudo"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "run")
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			socket := filepath.Join(folder, "local.sock")
			if tc.socket != 0 {
				if err := errors.Join(os.WriteFile(socket, nil, 0o600), os.Chmod(socket, tc.socket)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(folder, tc.folder); err != nil {
				t.Fatal(err)
			}
			_, err := local.NewClient(socket).WithTransport(deniedTransport{}).Status(context.Background())
			var e *fleet.Error
			if !errors.As(err, &e) || e.Code != fleet.CodeForbidden || !strings.Contains(e.Error(), "local.sock: permission denied") {
				t.Fatalf("status: %v", err)
			}
			if !strings.Contains(e.Hint, tc.belongs) || !strings.HasSuffix(e.Hint, tc.says) {
				t.Errorf("the hint is %q, want %q…%q", e.Hint, tc.belongs, tc.says)
			}
		})
	}
}
