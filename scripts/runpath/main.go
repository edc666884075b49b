// Command runpath sets where an installed program looks for its libraries:
//
//	go run ./scripts/runpath FILE '$ORIGIN/lib'
//
// The linker also writes down the folders that the program was built in; an installed one must not look there. The new
// path takes the place of the old one in the file and may not be longer.
package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: runpath FILE PATH")
		os.Exit(2)
	}
	if err := set(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "runpath:", err)
		os.Exit(1)
	}
}

// set replaces the RUNPATH of the program in a file.
func set(file, path string) error {
	f, err := elf.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	old, err := f.DynString(elf.DT_RUNPATH)
	if err != nil || len(old) != 1 {
		return fmt.Errorf("%s has %d run paths (%v), want one", file, len(old), err)
	}
	if len(path) > len(old[0]) {
		return fmt.Errorf("%s: %s is longer than %s", file, path, old[0])
	}
	names := f.Section(".dynstr")
	data, err := names.Data()
	if err != nil {
		return err
	}
	at := bytes.Index(data, []byte("\x00"+old[0]+"\x00")) + 1
	if at == 0 {
		return fmt.Errorf("%s: its run path %s is a part of another name", file, old[0])
	}
	out, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = out.WriteAt(append([]byte(path), make([]byte, len(old[0])-len(path))...), int64(names.Offset)+int64(at))
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}
