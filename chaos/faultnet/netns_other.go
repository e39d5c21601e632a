//go:build !linux

package faultnet

import "errors"

// Netns has methods that all fail: only Linux has network namespaces.
type Netns struct{ *Proxy }

var errNeedsLinux = errors.New("make network namespaces: Linux is needed (use the proxy instead)")

// NewNetns fails.
func NewNetns(string) (*Netns, error) { return nil, errNeedsLinux }

// Within fails.
func (n *Netns) Within(string, func() error) error { return errNeedsLinux }

// Refuse fails.
func (n *Netns) Refuse(string) error { return errNeedsLinux }

// Accept fails.
func (n *Netns) Accept(string) error { return errNeedsLinux }

// Refused fails.
func (n *Netns) Refused(string) error { return errNeedsLinux }

// Move fails.
func (n *Netns) Move(string) (func() uint64, error) { return nil, errNeedsLinux }
