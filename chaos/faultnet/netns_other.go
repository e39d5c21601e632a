//go:build !linux

package faultnet

import "errors"

// Netns is not available: all methods return an error, since network namespaces need Linux.
type Netns struct{ *Proxy }

var errNeedsLinux = errors.New("make network namespaces: Linux is needed (use the proxy instead)")

// NewNetns returns an error: network namespaces need Linux.
func NewNetns(string) (*Netns, error) { return nil, errNeedsLinux }

// Within returns an error: network namespaces need Linux.
func (n *Netns) Within(string, func() error) error { return errNeedsLinux }

// Refuse returns an error: network namespaces need Linux.
func (n *Netns) Refuse(string) error { return errNeedsLinux }

// Accept returns an error: network namespaces need Linux.
func (n *Netns) Accept(string) error { return errNeedsLinux }

// Refused returns an error: network namespaces need Linux.
func (n *Netns) Refused(string) error { return errNeedsLinux }

// Move returns an error: network namespaces need Linux.
func (n *Netns) Move(string) (func() uint64, error) { return nil, errNeedsLinux }
