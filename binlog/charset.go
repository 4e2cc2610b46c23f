package binlog

import "fmt"

// charset converts one of the server's character sets to UTF-8.
type charset struct {
	name string
}

// findCharset gives the conversion from a character set, nil when its bytes are the text already.
func findCharset(name string, mariadb bool) (*charset, error) {
	switch name {
	case "utf8mb4", "utf8mb3", "utf8", "ascii":
		return nil, nil
	}
	return nil, fmt.Errorf("character set %s is unknown", name)
}

func (cs *charset) appendUTF8(dst, src []byte) []byte { return append(dst, src...) }

func (cs *charset) trimBlanks(src []byte) []byte {
	for len(src) > 0 && src[len(src)-1] == ' ' {
		src = src[:len(src)-1]
	}
	return src
}
