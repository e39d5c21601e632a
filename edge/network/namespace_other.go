//go:build !linux

package network

import "errors"

var errNoNamespaces = errors.New("make a network namespace: only Linux has them")

func createNamespace(string) error { return errNoNamespaces }

func isNamespace(string) bool { return false }

func removeNamespace(string) error { return nil }

// whyNoNamespaces says why this process cannot make network namespaces.
func whyNoNamespaces() string { return "only Linux has network namespaces" }
