// Package intercept runs a program and its children, and stops them before each system call that changes a file below
// one folder. A handler then lets the call proceed, makes it fail with an error, or kills the program before the call.
// The program needs no labels.
//
// The kernel stops the calls: a seccomp filter, which the program's children inherit, reports them to this process
// (SECCOMP_RET_USER_NOTIF, Linux 5.19 and later). Only calls of the program itself and of its children that run the
// same file are reported, not those of other programs, such as tasks. Writes through mapped memory are not reported.
//
// Its test runs a whole edge with its drivers and injects faults at each kind of write. One goroutine of Start answers
// the kernel until every process with the filter has ended. Nothing is persisted.
package intercept
