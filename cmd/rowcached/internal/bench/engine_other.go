//go:build !linux

package bench

import (
	"context"
	"fmt"
	"net"
)

const canPin = false

// drive puts the worker's load on the connections until its round is over. It closes the connections.
func drive(ctx context.Context, _ string, w *worker, conns []net.Conn, _ int) error {
	return driveNet(ctx, w, conns)
}

// chooseEngine gives the engine that a name stands for.
func chooseEngine(name string) (string, error) {
	if name == Auto || name == Net {
		return Net, nil
	}
	return "", fmt.Errorf("--engine %s: it is for Linux; choose auto", name)
}
