//go:build !linux

package server

import "errors"

// haveLoops: elsewhere package net serves every connection.
const haveLoops = false

// probeRing is for tests: there is no io_uring either.
func probeRing() error { return errors.New("io_uring needs Linux") }

func newLoops(*Server, []*listener) (engine, string, error) {
	return nil, "", errors.New("server: the epoll engine needs Linux")
}
