package binlog

// textCharset appends a VARCHAR or TEXT, converted to UTF-8 as the server does.
func textCharset(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	return c.charset.appendUTF8(dst, cell), nil
}

// textChar appends a CHAR: blanks at its end do not count.
func textChar(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	return c.charset.appendUTF8(dst, c.charset.trimBlanks(cell)), nil
}

// textCharRaw appends a CHAR whose bytes are the text.
func textCharRaw(_ *Row, _ *imageColumn, dst, cell []byte) ([]byte, error) {
	for len(cell) > 0 && cell[len(cell)-1] == ' ' {
		cell = cell[:len(cell)-1]
	}
	return append(dst, cell...), nil
}
