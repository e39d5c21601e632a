// Package intercept runs a program, with everything that it starts, and stops it before each system call that changes
// a file below one folder. A handler then decides: the call goes on, or fails with an error, or is never made, since
// the handler kills the program. No label in the program is needed.
//
// The kernel stops the calls: a seccomp filter, which the program's children inherit, reports them to this process
// (SECCOMP_RET_USER_NOTIF, Linux 5.19 and later). Only calls of the program itself and of its children that run the
// same file count, not those of other programs, such as tasks. Writes to memory that a file is mapped to are not seen.
//
// Its test runs a whole edge with its drivers and plays faults at each kind of write. One goroutine of Start answers
// the kernel until every process with the filter has ended. Nothing is persisted.
package intercept
