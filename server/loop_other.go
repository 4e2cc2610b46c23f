//go:build !linux

package server

import "errors"

// haveLoops: elsewhere package net serves every connection.
const haveLoops = false

func newLoops(*Server, []*listener) (engine, string, error) {
	return nil, "", errors.New("server: the epoll engine needs Linux")
}
