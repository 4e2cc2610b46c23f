package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rowcached/rowcached/server"
	"github.com/rowcached/rowcached/server/memory"
	"github.com/rowcached/rowcached/server/protocol"
)

// TestProtocolDocument runs the examples of PROTOCOL.md against a server without tables.
func TestProtocolDocument(t *testing.T) {
	doc, err := os.ReadFile("../../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for i, part := range strings.Split(string(doc), "```") {
		if i%2 == 0 {
			continue
		}
		blocks++
		exchange(t, plainServer(t), part)
	}
	if blocks < 5 {
		t.Fatalf("only %d examples were found", blocks)
	}
}

// exchange sends the "> " lines of a block and compares the "< " lines that follow; ">x" and "<x" are bytes in
// hexadecimal. {name} in a reply is any word at its first appearance, and that word ever after.
func exchange(t *testing.T, address, block string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	words := map[string]string{}
	for line := range strings.Lines(strings.TrimPrefix(block, "\n")) {
		line = strings.TrimSuffix(line, "\n")
		mark, text, ok := strings.Cut(line, " ")
		if !ok {
			t.Fatalf("a line of an example has nothing behind its mark: %q", line)
		}
		for name, word := range words {
			text = strings.ReplaceAll(text, name, word)
		}
		if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		bytes := []byte(text + "\r\n")
		if mark == ">x" || mark == "<x" {
			if bytes, err = hex.DecodeString(strings.ReplaceAll(text, " ", "")); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
		switch mark {
		case ">", ">x":
			if _, err := conn.Write(bytes); err != nil {
				t.Fatal(err)
			}
		case "<":
			got, err := r.ReadString('\n')
			if err == nil && strings.HasSuffix(got, " \n") && strings.HasSuffix(string(bytes), " \r\n") {
				got = got[:len(got)-1] + "\r\n" // metadump's lines end in LF alone
			}
			if err != nil || !same(got, string(bytes), words) {
				t.Fatalf("got %q, %v; want %q in\n%s", got, err, bytes, block)
			}
		case "<x":
			got := make([]byte, len(bytes))
			if _, err := io.ReadFull(r, got); err != nil || string(got) != string(bytes) {
				t.Fatalf("got %x, %v; want %x in\n%s", got, err, bytes, block)
			}
		default:
			t.Fatalf("a line of an example is neither sent nor received: %q", line)
		}
	}
	// What is left would be a reply that the example does not show.
	if n := r.Buffered(); n > 0 {
		rest, _ := r.Peek(n)
		t.Fatalf("%q came behind what is shown in\n%s", rest, block)
	}
}

// same compares a reply with what is wanted, and notes the words that {name} stands for.
func same(got, want string, words map[string]string) bool {
	for {
		open := strings.Index(want, "{")
		if open < 0 {
			return got == want
		}
		end := strings.Index(want, "}")
		if end < open || len(got) < open || got[:open] != want[:open] {
			return false
		}
		name, word := want[open:end+1], got[open:]
		if i := strings.IndexAny(word, " \r\n"); i >= 0 {
			word = word[:i]
		}
		if word == "" || words[name] != "" {
			return false
		}
		words[name] = word
		got, want = got[open+len(word):], want[end+1:]
	}
}

// TestEveryCommandIsDocumented compares PROTOCOL.md with the commands that the parser knows.
func TestEveryCommandIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	for op := protocol.OpGet; op <= protocol.OpDebugTime; op++ {
		if !regexp.MustCompile("`" + regexp.QuoteMeta(op.String()) + "[ `]").Match(doc) {
			t.Errorf("PROTOCOL.md does not speak of %s", op)
		}
	}
}

// plainServer starts a server without tables that ends with the test.
func plainServer(t *testing.T) string {
	t.Helper()
	store, err := memory.New(memory.Options{Limit: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := server.New(server.Config{Listen: []string{"127.0.0.1:0"}, Threads: 1, Memory: store, Clock: store.Now})
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := srv.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return addrs[0].String()
}
