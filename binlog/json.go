package binlog

import "fmt"

func textJSON(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	return dst, fmt.Errorf("%w: not read yet", ErrShape)
}
