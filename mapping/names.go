package mapping

import (
	"fmt"
	"strings"

	"github.com/rowcached/rowcached/binlog"
)

// TableName reads Spec.Table: schema.table, where a name that holds a dot or a back-quote is written as SQL does,
// `like“this`.
func (s Spec) TableName() (binlog.TableName, error) {
	bad := fmt.Errorf("table: %q is not of the form schema.table", s.Table)
	schema, rest, ok := cutName(s.Table)
	if !ok || !strings.HasPrefix(rest, ".") {
		return binlog.TableName{}, bad
	}
	name, rest, ok := cutName(rest[1:])
	if !ok || rest != "" {
		return binlog.TableName{}, bad
	}
	return binlog.TableName{Schema: schema, Name: name}, nil
}

// cutName takes one name, bare or back-quoted, off the front of text.
func cutName(text string) (name, rest string, ok bool) {
	if !strings.HasPrefix(text, "`") {
		end := strings.IndexByte(text, '.')
		if end < 0 {
			end = len(text)
		}
		return text[:end], text[end:], end > 0
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		if text[i] != '`' {
			b.WriteByte(text[i])
			continue
		}
		if i+1 < len(text) && text[i+1] == '`' {
			b.WriteByte('`')
			i++
			continue
		}
		return b.String(), text[i+1:], b.Len() > 0
	}
	return "", "", false
}

// ContainerName gives the container's name: Spec.Name, or the table's.
func (s Spec) ContainerName() string {
	if s.Name != "" {
		return s.Name
	}
	n, err := s.TableName()
	if err != nil {
		return s.Table
	}
	return n.Name
}
