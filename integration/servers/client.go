package servers

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// replyLimit bounds the wait for one reply.
const replyLimit = 10 * time.Second

// A Client is a bare connection that speaks memcached's text protocol. It shows a server's bytes as they
// are; a test that wants a comfortable client takes gomemcache.
type Client struct {
	conn net.Conn
	r    *bufio.Reader
	t    testing.TB
}

// Dial opens a connection to a memcached server's address, or to its unix socket if the address is a path.
// It is closed with the test.
func Dial(t testing.TB, addr string) *Client {
	t.Helper()
	c, err := dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	c.t = t
	t.Cleanup(func() { c.Close() })
	return c
}

// Connect is Dial for a server that may be gone: the caller closes the connection, and takes no more from it than Fetch.
func Connect(addr string) (*Client, error) { return dial(addr) }

// Fetch is Get with an error.
func (c *Client) Fetch(keys ...string) (map[string][]byte, error) { return c.get(keys...) }

func dial(addr string) (*Client, error) {
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	conn, err := net.DialTimeout(network, addr, replyLimit)
	if err != nil {
		return nil, err
	}
	return &Client{conn: conn, r: bufio.NewReader(conn)}, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Conn returns the connection itself, for a test that writes half a command.
func (c *Client) Conn() net.Conn { return c.conn }

// Get sends one get for all keys and returns the values of those that are hits.
func (c *Client) Get(keys ...string) map[string][]byte {
	c.t.Helper()
	values, err := c.get(keys...)
	if err != nil {
		c.t.Fatal(err)
	}
	return values
}

func (c *Client) get(keys ...string) (map[string][]byte, error) {
	reply, err := c.command("get " + strings.Join(keys, " "))
	if err != nil {
		return nil, err
	}
	values := make(map[string][]byte)
	for rest := []byte(reply); ; {
		line, after, ok := bytes.Cut(rest, []byte("\r\n"))
		if !ok {
			return nil, fmt.Errorf("get %q: reply %q", keys, reply)
		}
		if string(line) == "END" {
			return values, nil
		}
		words := strings.Fields(string(line))
		if len(words) < 4 || words[0] != "VALUE" {
			return nil, fmt.Errorf("get %q: reply %q", keys, reply)
		}
		size, err := strconv.Atoi(words[3])
		if err != nil || size+2 > len(after) {
			return nil, fmt.Errorf("get %q: reply %q", keys, reply)
		}
		values[words[1]] = bytes.Clone(after[:size])
		rest = after[size+2:]
	}
}

// Cmd sends a command, with its closing CRLF if that is missing, and returns the whole reply as it came:
// up to END for gets and stats, one line (and for VA its data) for the rest. A command that has no reply
// (noreply, a quiet meta command) must not be sent with it.
func (c *Client) Cmd(raw string) string {
	c.t.Helper()
	reply, err := c.command(raw)
	if err != nil {
		c.t.Fatal(err)
	}
	return reply
}

func (c *Client) command(raw string) (string, error) {
	if !strings.HasSuffix(raw, "\r\n") {
		raw += "\r\n"
	}
	if err := c.conn.SetDeadline(time.Now().Add(replyLimit)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c.conn, raw); err != nil {
		return "", fmt.Errorf("send %.80q: %w", raw, err)
	}
	reply, err := c.reply()
	if err != nil {
		return "", fmt.Errorf("reply to %.80q: %w (so far %.200q)", raw, err, reply)
	}
	return reply, nil
}

func (c *Client) reply() (string, error) {
	var reply strings.Builder
	for {
		line, err := c.r.ReadString('\n')
		reply.WriteString(line)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return reply.String(), err
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			return reply.String(), nil
		}
		size := -1
		switch {
		case words[0] == "VALUE" && len(words) >= 4:
			size, err = strconv.Atoi(words[3])
		case words[0] == "VA" && len(words) >= 2:
			size, err = strconv.Atoi(words[1])
		}
		if err != nil {
			return reply.String(), err
		}
		if size >= 0 {
			if _, err := io.CopyN(&reply, c.r, int64(size)+2); err != nil {
				return reply.String(), err
			}
		}
		switch words[0] {
		case "VALUE", "STAT", "ITEM", "CONFIG":
		default:
			return reply.String(), nil
		}
	}
}
