package qemu

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// checkPrivate returns an error for a folder that other users may use: they could have guessed its name and made it.
func checkPrivate(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("examine %s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o077 != 0 || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of the agent alone", dir)
	}
	return nil
}
