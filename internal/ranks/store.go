package ranks

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
)

// torchrun's agent keeps a TCPStore at MASTER_ADDR:MASTER_PORT (torch/csrc/distributed/c10d/TCPStore.cpp). These are the requests of its
// clients that two processes need to tell each other an address.
const (
	storeValidate = 0
	storeSet      = 1
	storeGet      = 3
	storeWait     = 6
	storeMagic    = 0x3C85F7CE
)

// storeKey is where rank 0's address stands.
func (p *Place) storeKey() string { return "fulcrum/" + p.Secret }

// tellStore puts rank 0's address into the agent's store.
func tellStore(ctx context.Context, p *Place, address string) error {
	return withStore(ctx, p, func(w *bufio.Writer, _ *bufio.Reader) error {
		w.WriteByte(storeSet)
		storeText(w, p.storeKey())
		storeText(w, address)
		return w.Flush()
	})
}

// askStore waits for rank 0's address.
func askStore(ctx context.Context, p *Place) (address string, err error) {
	err = withStore(ctx, p, func(w *bufio.Writer, r *bufio.Reader) error {
		w.WriteByte(storeWait)
		binary.Write(w, binary.LittleEndian, uint64(1))
		storeText(w, p.storeKey())
		if err := w.Flush(); err != nil {
			return err
		}
		if _, err := r.ReadByte(); err != nil { // STOP_WAITING
			return err
		}
		w.WriteByte(storeGet)
		storeText(w, p.storeKey())
		if err := w.Flush(); err != nil {
			return err
		}
		var size uint64
		if err := binary.Read(r, binary.LittleEndian, &size); err != nil {
			return err
		}
		if size > largestHead {
			return fmt.Errorf("an answer of %d bytes", size)
		}
		text := make([]byte, size)
		_, err := io.ReadFull(r, text)
		address = string(text)
		return err
	})
	return address, err
}

func storeText(w *bufio.Writer, text string) {
	binary.Write(w, binary.LittleEndian, uint64(len(text)))
	w.WriteString(text)
}

// withStore talks to the agent's store.
func withStore(ctx context.Context, p *Place, talk func(w *bufio.Writer, r *bufio.Reader) error) error {
	conn, err := dial(ctx, p, p.Address)
	if err == nil {
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		defer stop()
		w := bufio.NewWriter(conn)
		w.WriteByte(storeValidate)
		binary.Write(w, binary.LittleEndian, uint32(storeMagic))
		err = talk(w, bufio.NewReader(conn))
	}
	if err != nil {
		return fmt.Errorf("rank %d: torchrun's store at %s (MASTER_ADDR:MASTER_PORT): %w", p.Rank, p.Address, err)
	}
	return nil
}
