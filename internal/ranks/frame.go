package ranks

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"io"
)

// frame is a message of a process. Its head travels by gob, its body as it is.
type frame struct {
	Name    string
	Seq     uint64
	Failed  string // why the process that sends it has failed; "": it has not
	Stopped bool   // because it was asked to stop
	Size    int    // of Body
	Body    []byte
}

// largestHead bounds what is read of a head before its size is believed.
const largestHead = 1 << 20

// send writes frames.
func send(to *bufio.Writer, frames ...frame) error {
	for _, f := range frames {
		body := f.Body
		f.Size, f.Body = len(body), nil
		if err := sendValue(to, f); err != nil {
			return err
		}
		if _, err := to.Write(body); err != nil {
			return err
		}
	}
	return to.Flush()
}

// receive reads a frame.
func receive(from *bufio.Reader) (f frame, err error) {
	if err := receiveValue(from, &f); err != nil {
		return f, err
	}
	if f.Size < 0 {
		return f, fmt.Errorf("a message of %d bytes: this is no process of a run", f.Size)
	}
	f.Body = make([]byte, f.Size)
	_, err = io.ReadFull(from, f.Body)
	return f, err
}

// sendValue writes a value behind its size.
func sendValue(to *bufio.Writer, value any) error {
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(value); err != nil {
		return err
	}
	if err := binary.Write(to, binary.LittleEndian, uint32(text.Len())); err != nil {
		return err
	}
	_, err := text.WriteTo(to)
	return err
}

// receiveValue reads what sendValue wrote.
func receiveValue(from *bufio.Reader, value any) error {
	var size uint32
	if err := binary.Read(from, binary.LittleEndian, &size); err != nil {
		return err
	}
	if size > largestHead {
		return fmt.Errorf("a message of %d bytes: this is no process of a run", size)
	}
	return gob.NewDecoder(io.LimitReader(from, int64(size))).Decode(value)
}
