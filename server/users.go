package server

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/md5"
	"crypto/subtle"
	"encoding/hex"
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

// CheckCRAM checks the answer to a challenge of CRAM-MD5: digest is the challenge's HMAC-MD5 under the password, in
// lower-case hexadecimal. Every user is computed, whichever it is.
func (u *Users) CheckCRAM(name []byte, challenge string, digest []byte) bool {
	found := 0
	for _, x := range *u.list.Load() {
		h := hmac.New(md5.New, x.password)
		h.Write([]byte(challenge))
		want := hex.AppendEncode(nil, h.Sum(nil))
		found |= subtle.ConstantTimeCompare(x.name, name) & subtle.ConstantTimeCompare(want, digest)
	}
	return found == 1
}
