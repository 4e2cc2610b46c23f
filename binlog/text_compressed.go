package binlog

import "fmt"

type inflater struct{}

func textCompressed(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	return dst, fmt.Errorf("%w: not read yet", ErrShape)
}
