// Package observe turns what hubs and edges in this process show of themselves
// into the plain values that package chaos/check judges. Runs in virtual time feed
// their Monitor by it. It starts no goroutine and keeps nothing.
package observe
