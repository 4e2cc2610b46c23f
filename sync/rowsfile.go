package sync

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rowcached/rowcached/server/memory"
)

// A rows file is a line of text, then blocks: u32 length and u32 checksum (CRC-32C) of the records that follow
// (memory.Image), little-endian. Length 0 ends it.
const (
	rowsMagic  = "rowcached rows 1\n"
	blockHead  = 8
	blockBytes = 1 << 20
	blockMost  = 2 << 30
)

// writeRows writes an image of the spaces into a new file and syncs it. Its rows are from different instants.
func (s *StateDir) writeRows(ctx context.Context, image *memory.Image) (out storedRows, err error) {
	out.File = fmt.Sprintf("%s%d", rowsPrefix, time.Now().UnixNano())
	f, err := os.OpenFile(s.path(out.File), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return out, fmt.Errorf("write the rows: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = fmt.Errorf("write the rows: %w", errors.Join(err, os.Remove(f.Name())))
		}
	}()
	put := func(b []byte) error {
		n, err := f.Write(b)
		out.Bytes += int64(n)
		return err
	}
	if err := put([]byte(rowsMagic)); err != nil {
		return out, err
	}
	sums := crc32.New(castagnoli)
	block := make([]byte, blockHead, blockBytes+blockBytes/4)
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		var n int
		block, n, more = image.Next(block)
		out.Rows += int64(n)
		if len(block) < blockBytes && more || len(block) == blockHead {
			continue
		}
		seal(block)
		if _, err := sums.Write(block[:blockHead]); err != nil {
			return out, err
		}
		if err := put(block); err != nil {
			return out, err
		}
		block = block[:blockHead]
	}
	end := make([]byte, blockHead)
	seal(end)
	if err := put(end); err != nil {
		return out, err
	}
	out.Checksum = sums.Sum32()
	return out, f.Sync()
}

func seal(block []byte) {
	binary.LittleEndian.PutUint32(block, uint32(len(block)-blockHead))
	binary.LittleEndian.PutUint32(block[4:], crc32.Checksum(block[blockHead:], castagnoli))
}

// errRows says that a rows file is not what was written.
var errRows = errors.New("the rows file is corrupt")

// loadRows puts the rows file into memory: those of table n into space[n], on several goroutines.
func (s *StateDir) loadRows(ctx context.Context, rows storedRows, store *memory.Store, space []memory.Space, workers int) (err error) {
	f, err := os.Open(s.path(rows.File))
	if err != nil {
		return fmt.Errorf("read the rows: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	magic := make([]byte, len(rowsMagic))
	if _, err := io.ReadFull(f, magic); err != nil || string(magic) != rowsMagic {
		return fmt.Errorf("%w: it does not begin as one does", errRows)
	}
	store.Grow(rows.Rows)

	blocks, spare := make(chan []byte, workers), make(chan []byte, 2*workers+1)
	for range cap(spare) {
		spare <- nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(blocks)
		return readBlocks(ctx, f, rows, blocks, spare)
	})
	for range workers {
		g.Go(func() error {
			for block := range blocks {
				sum := binary.LittleEndian.Uint32(block[4:])
				if crc32.Checksum(block[blockHead:], castagnoli) != sum {
					return fmt.Errorf("%w: a block's checksum is wrong", errRows)
				}
				if _, err := store.LoadImage(block[blockHead:], space); err != nil {
					return fmt.Errorf("load the rows: %w", err)
				}
				spare <- block // there is room for all that there are
			}
			return nil
		})
	}
	return g.Wait()
}

// readBlocks sends the blocks, heads included, into buffers taken from spare, and checks that these are all.
func readBlocks(ctx context.Context, r io.Reader, rows storedRows, blocks chan<- []byte, spare <-chan []byte) error {
	sums := crc32.New(castagnoli)
	for {
		var b []byte
		select {
		case b = <-spare:
		case <-ctx.Done():
			return ctx.Err()
		}
		if cap(b) < blockHead {
			b = make([]byte, blockHead, blockBytes+blockBytes/4)
		}
		b = b[:blockHead]
		if _, err := io.ReadFull(r, b); err != nil {
			return fmt.Errorf("%w: it is cut short: %w", errRows, err)
		}
		n := int(binary.LittleEndian.Uint32(b))
		if n == 0 {
			if sums.Sum32() != rows.Checksum {
				return fmt.Errorf("%w: its checksum is wrong", errRows)
			}
			return nil
		}
		if int64(n) > min(rows.Bytes, blockMost) {
			return fmt.Errorf("%w: a block of %d bytes", errRows, n)
		}
		if cap(b) < blockHead+n {
			b = append(make([]byte, 0, blockHead+n), b...)
		}
		b = b[:blockHead+n]
		if _, err := io.ReadFull(r, b[blockHead:]); err != nil {
			return fmt.Errorf("%w: it is cut short: %w", errRows, err)
		}
		if _, err := sums.Write(b[:blockHead]); err != nil {
			return err
		}
		select {
		case blocks <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
