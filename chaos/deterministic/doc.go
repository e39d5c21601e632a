// Package deterministic runs a simulating program so that two runs of the same program
// with the same input do the same, instruction for instruction, as far as Linux allows.
// Package chaos/virtual runs its schedules with it.
//
// A Go program with one processor and no outside world has three sources of randomness
// left. Run or the program itself removes each:
//
//   - From the 16 random bytes that the kernel gives every process the runtime derives
//     the order of maps and of select cases, the order of timers that share an instant,
//     and the global functions of math/rand. Run replaces these bytes by the seed's.
//   - The runtime's monitor thread takes the processor, by the real clock, from a
//     goroutine that runs for 10 ms or waits for the disk. Run never lets that thread
//     begin.
//   - Keys, ids and nonces come from crypto/rand. The program calls Seed. It also turns
//     the garbage collector off (Environ) and collects at instants of its own.
//
// Run uses ptrace(2), which a process may always use on its own children, and which
// costs nothing while the child runs. The child must be a program without cgo, and must
// not wait in a system call for another of its own goroutines. On systems other than
// Linux, Run does not remove randomness.
//
// One goroutine of Run is locked to a thread while the child lives. Nothing is persisted.
package deterministic
