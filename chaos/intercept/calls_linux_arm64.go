package intercept

import "golang.org/x/sys/unix"

// auditArch is the kernel's name for this machine.
const auditArch = unix.AUDIT_ARCH_AARCH64

// older are calls that this machine does not have.
var older map[uint32]form
