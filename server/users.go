package server

import (
	"bufio"
	"bytes"
	"crypto/subtle"
	"fmt"
	"os"
	"sync/atomic"
)

// Users are the names and passwords of a login, in memcached's file format: a
// line "user:password" each. It may be loaded again while in use.
type Users struct {
	path string
	list atomic.Pointer[[]user]
}

type user struct{ name, password []byte }

// LoadUsers reads a file of users.
func LoadUsers(path string) (*Users, error) {
	u := &Users{path: path}
	return u, u.Reload()
}

// Reload reads the file again; on an error the users stay as they were.
func (u *Users) Reload() error {
	data, err := os.ReadFile(u.path)
	if err != nil {
		return fmt.Errorf("read users: %w", err)
	}
	var list []user
	sc := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; sc.Scan(); n++ {
		line := bytes.TrimSuffix(sc.Bytes(), []byte("\r"))
		name, password, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			return fmt.Errorf("%s:%d: a line is user:password", u.path, n)
		}
		list = append(list, user{bytes.Clone(name), bytes.Clone(password)})
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("read users: %w", err)
	}
	if len(list) == 0 {
		return fmt.Errorf("%s: no users in it", u.path)
	}
	u.list.Store(&list)
	return nil
}

// Check compares in constant time for every user.
func (u *Users) Check(name, password []byte) bool {
	found := 0
	for _, x := range *u.list.Load() {
		found |= subtle.ConstantTimeCompare(x.name, name) & subtle.ConstantTimeCompare(x.password, password)
	}
	return found == 1
}
