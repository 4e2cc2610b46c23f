package binlog

// textCharset appends a VARCHAR or TEXT, converted to UTF-8 as the server does.
func textCharset(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	return c.charset.appendUTF8(dst, cell), nil
}

// textChar appends a CHAR: blanks at its end do not count.
func textChar(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	return c.charset.appendUTF8(dst, c.charset.trimBlanks(cell)), nil
}
