package binlog

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

// parseLabels reads the labels of enum('a','b') or set(...): quotes are doubled, a backslash escapes. MySQL writes
// x'E9' for a label that is no text.
func parseLabels(typ string) ([]string, error) {
	open := strings.IndexByte(typ, '(')
	if open < 0 {
		return nil, errors.New("the type has no labels")
	}
	rest := typ[open+1:]
	var labels []string
	for {
		hexadecimal := strings.HasPrefix(rest, "x'")
		rest = strings.TrimPrefix(rest, "x")
		if rest == "" || rest[0] != '\'' {
			return nil, errors.New("a label does not begin with a quote")
		}
		var label strings.Builder
		i := 1
		for ; ; i++ {
			if i >= len(rest) {
				return nil, errors.New("a label does not end")
			}
			c := rest[i]
			if c == '\'' {
				if i+1 >= len(rest) || rest[i+1] != '\'' {
					break
				}
				i++
			} else if c == '\\' && i+1 < len(rest) {
				i++
				switch c = rest[i]; c {
				case '0':
					c = 0
				case 'n':
					c = '\n'
				case 'r':
					c = '\r'
				case 't':
					c = '\t'
				case 'b':
					c = '\b'
				case 'Z':
					c = 0x1a
				}
			}
			label.WriteByte(c)
		}
		text := label.String()
		if hexadecimal {
			b, err := hex.DecodeString(text)
			if err != nil {
				return nil, fmt.Errorf("label x'%s': %w", text, err)
			}
			text = string(b)
		}
		labels = append(labels, text)
		rest = rest[i+1:]
		switch {
		case strings.HasPrefix(rest, ","):
			rest = rest[1:]
		case strings.HasPrefix(rest, ")"):
			return labels, nil
		default:
			return nil, errors.New("a label is not followed by another")
		}
	}
}

// markLabels marks the labels that the server may not have told truly: its schema is utf8mb3, and a character beyond that
// is a question mark there.
func (c *Column) markLabels() {
	switch c.Charset {
	case "utf8mb4", "utf16", "utf16le", "utf32", "gb18030", "binary":
	default:
		return
	}
	for i, l := range c.Labels {
		if strings.Contains(l, "?") || c.Charset == "binary" && strings.ContainsFunc(l, func(r rune) bool { return r > 126 }) {
			if c.unknown == nil {
				c.unknown = make([]bool, len(c.Labels))
			}
			c.unknown[i] = true
		}
	}
}

// findLabels reads the marked labels of a column from rows that have them. A label in no row stays unknown: the first row
// image that has it fails with ErrShape, the table is loaded anew, and then it is found here.
func (t *Table) findLabels(ctx context.Context, q Querier, c *Column) error {
	for i := range c.Labels {
		if !c.unknownLabel(i) {
			continue
		}
		where := fmt.Sprintf("%s=%d", QuoteName(c.Name), i+1)
		if c.Kind == KindSet {
			where = fmt.Sprintf("%s&%d", QuoteName(c.Name), uint64(1)<<i)
		}
		found := false
		err := each(ctx, q, func(rows *sql.Rows) error {
			var number uint64
			var text string
			if err := rows.Scan(&number, &text); err != nil {
				return err
			}
			if c.Kind == KindSet {
				labels := strings.Split(text, ",")
				k := bits.OnesCount64(number & (1<<i - 1))
				if k >= len(labels) {
					return fmt.Errorf("column %s: a SET of %d labels has the text of %d", c.Name, bits.OnesCount64(number), len(labels))
				}
				text = labels[k]
			}
			c.Labels[i], found = text, true
			return nil
		}, fmt.Sprintf("SELECT %s+0, %s FROM %s WHERE %s LIMIT 1", QuoteName(c.Name), QuoteName(c.Name), t.Quoted(), where))
		if err != nil {
			return err
		}
		c.unknown[i] = !found
	}
	return nil
}
