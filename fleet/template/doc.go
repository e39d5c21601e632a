// Package template renders the template blocks of a job file: Go's text/template with the functions that people know
// from consul-template. docs/templates.md lists them.
//
// fleet/validate checks templates with it when a job is registered, edge/templates renders them. It is pure: what a
// template reads comes from Sources. It starts no goroutine and persists nothing.
//
// A template cannot keep its caller: its text, its output and each value in between have at most MaxBytes, and every
// turn of a loop and every call of a nested template counts against a number of steps.
package template
