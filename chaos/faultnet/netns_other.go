//go:build !linux

package faultnet

import "errors"

// Netns is not to be had here.
type Netns struct{ *Proxy }

var errNeedsLinux = errors.New("make network namespaces: Linux is needed (use the proxy instead)")

// NewNetns fails.
func NewNetns(string) (*Netns, error) { return nil, errNeedsLinux }

func (n *Netns) Within(string, func() error) error  { return errNeedsLinux }
func (n *Netns) Refuse(string) error                { return errNeedsLinux }
func (n *Netns) Accept(string) error                { return errNeedsLinux }
func (n *Netns) Refused(string) error               { return errNeedsLinux }
func (n *Netns) Move(string) (func() uint64, error) { return nil, errNeedsLinux }
