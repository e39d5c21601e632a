//go:build !linux

package faultnet

import "errors"

// NewNetns is not to be had here.
func NewNetns(string) (*Proxy, error) {
	return nil, errors.New("make network namespaces: Linux is needed (use the proxy instead)")
}
