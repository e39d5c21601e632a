package intercept

import "golang.org/x/sys/unix"

// auditArch is the kernel's name for this machine.
const auditArch = unix.AUDIT_ARCH_AARCH64

// older is empty: this machine has no such calls.
var older map[uint32]form
