// Package observe converts the states of hubs and edges, and the entries that hubs apply,
// into the plain values that package chaos/check judges. Runs in virtual time, whose hubs
// are in their own process, call it and pass the values to their Monitor. A hub in a
// process of its own writes its entries into a file (EntryWriter), which the harness reads
// (EntryReader). The package starts no goroutine, and persists only that file.
package observe
