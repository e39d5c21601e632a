// Package deterministic runs a program that simulates so that two runs of the same
// program with the same input do the same, instruction for instruction, as far as
// Linux allows. Package chaos/virtual plays its schedules by it.
//
// A Go program with one processor and no outside world has three sources of chance
// left, and each is closed here or by the program itself:
//
//   - the runtime draws the order of maps and of select cases, the order of timers
//     that share an instant, and the global functions of math/rand from the 16 random
//     bytes that the kernel gives every process: Run replaces these by the seed's;
//   - the runtime's monitor thread takes the processor away from a goroutine that runs
//     for 10 ms or waits for the disk, by the real clock: Run never lets that thread
//     begin;
//   - keys, ids and nonces come from crypto/rand: the program calls Seed. It also
//     switches the garbage collector off (Environ) and collects at instants of its own.
//
// Run uses ptrace(2), which a process may always use on its own children, and which
// costs nothing while the child runs. The child must be a program without cgo, and must
// not wait in a system call for another of its own goroutines. On other systems than
// Linux the program is run, and chance with it.
//
// One goroutine of Run is locked to a thread for as long as the child lives. Nothing is
// persisted.
package deterministic
