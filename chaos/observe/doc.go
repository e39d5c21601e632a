// Package observe turns what hubs and edges show of themselves into the plain values
// that package chaos/check judges. Runs in virtual time, whose hubs are in their own
// process, feed their Monitor by it at once. A hub in a process of its own tells what it
// applies in a file (Teller), which whoever watches it reads (Told). It starts no
// goroutine, and persists nothing but that file.
package observe
