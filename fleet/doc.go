// Package fleet holds the nouns of Skerry as plain data, with the questions that a noun can
// answer about itself. Packages below it check jobs (validate), compare them (diff),
// and fit them onto nodes (placement).
//
// Everything else imports it; it imports the standard library alone. It does no
// I/O, starts no goroutine, reads no clock and draws no random number: times and
// ids are inputs. One type serves the HTTP API, the command line and the
// scheduler, so Go field names are Nomad's JSON keys. What lies on a disk or on
// the wire has frozen types elsewhere (package syncproto, package hub/state).
//
// Values that came out of the replicated state are shared and must not be
// changed; copy the struct, replace the field, and hand on the copy.
package fleet
