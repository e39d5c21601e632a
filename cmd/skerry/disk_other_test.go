//go:build !linux

package main

import "github.com/rogpeppe/go-internal/testscript"

// onDisks are the commands of scripts that need a file system of their own: none,
// where it is not known how to mount one.
var onDisks map[string]func(*testscript.TestScript, bool, []string)
