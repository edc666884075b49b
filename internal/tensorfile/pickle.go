package tensorfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// unpickler interprets a pickle of protocol 0 to 5. It has no way to call anything: globals are
// names, and REDUCE, NEWOBJ and BUILD work for the few in globals.go and refuse the rest. Every
// opcode does work proportional to the bytes it reads or the items already on the stack, and calls
// have a budget for what they copy, so the input's length bounds time and memory.
type unpickler struct {
	data       []byte
	pos        int
	stack      []any
	marks      []int
	memo       map[int]any
	persistent func(id any) (any, error) // resolves storages; nil refuses
	budget     int                       // bytes that calls may still copy: an argument in the memo can be used a million times
}

// global is a name on the stack: "module name", one of the list in globals.go.
type global string

func unpickle(data []byte, persistent func(any) (any, error)) (value any, used int, err error) {
	u := &unpickler{data: data, memo: map[int]any{}, persistent: persistent, budget: *copyBudget(data)}
	for {
		at := u.pos
		op, err := u.byte()
		if err != nil {
			return nil, 0, err
		}
		if op == '.' {
			v, err := u.pop()
			if err != nil {
				return nil, 0, err
			}
			if v, err = finish(v); err != nil {
				return nil, 0, err
			}
			return v, u.pos, nil
		}
		if err := u.step(op); err != nil {
			return nil, 0, fmt.Errorf("pickle byte %d: %w", at, err)
		}
	}
}

// step executes one opcode. Names are those of Python's pickletools.
func (u *unpickler) step(op byte) error {
	switch op {
	case 0x80: // PROTO
		v, err := u.byte()
		if err == nil && v > 5 {
			return fmt.Errorf("protocol %d, want at most 5", v)
		}
		return err
	case 0x95: // FRAME
		_, err := u.take(8)
		return err
	case '(': // MARK
		u.marks = append(u.marks, len(u.stack))
		return nil
	case '0': // POP
		if n := len(u.marks); n > 0 && u.marks[n-1] == len(u.stack) {
			u.marks = u.marks[:n-1]
			return nil
		}
		_, err := u.pop()
		return err
	case '1': // POP_MARK
		_, err := u.popMark()
		return err
	case '2': // DUP
		v, err := u.top()
		u.push(v)
		return err
	case 'N':
		return u.push(nil)
	case 0x88:
		return u.push(true)
	case 0x89:
		return u.push(false)
	case 'I', 'L', 'F', 'S', 'V': // text forms of protocol 0
		return u.textValue(op)
	case 'J', 'K', 'M', 0x8a, 0x8b, 'G':
		return u.binaryNumber(op)
	case 'X', 0x8c, 0x8d, 'T', 'U', 'B', 'C', 0x8e, 0x96:
		return u.binaryString(op)
	case ']', 0x8f: // EMPTY_LIST, EMPTY_SET
		return u.push(&List{})
	case '}':
		return u.push(NewDict())
	case ')':
		return u.push(Tuple{})
	case 't', 'l', 'd', 0x91: // TUPLE, LIST, DICT, FROZENSET
		return u.fromMark(op)
	case 0x85, 0x86, 0x87: // TUPLE1, TUPLE2, TUPLE3
		items, err := u.popN(int(op-0x85) + 1)
		if err != nil {
			return err
		}
		return u.push(Tuple(items))
	case 'a', 'e', 's', 'u', 0x90: // APPEND, APPENDS, SETITEM, SETITEMS, ADDITEMS
		return u.fill(op)
	case 'g', 'h', 'j', 'p', 'q', 'r', 0x94:
		return u.memoize(op)
	case 'c', 0x93: // GLOBAL, STACK_GLOBAL
		return u.global(op)
	case 'P', 'Q': // PERSID, BINPERSID
		return u.persistentID(op)
	case 'R', 0x81, 'b': // REDUCE, NEWOBJ, BUILD
		return u.apply(op)
	}
	return fmt.Errorf("opcode %#02x is not supported", op)
}

// apply calls the target below the arguments, or gives it its state.
func (u *unpickler) apply(op byte) error {
	arg, err := u.pop()
	if err != nil {
		return err
	}
	target, err := u.pop()
	if err != nil {
		return err
	}
	if u.budget -= copied(arg); u.budget < 0 {
		return fmt.Errorf("refused: values blow up to many times the file's size")
	}
	var v any
	if op == 'b' {
		v, err = build(target, arg)
	} else {
		v, err = call(target, arg)
	}
	if err != nil {
		return err
	}
	return u.push(v)
}

// copied bounds the bytes that a call with this argument copies.
func copied(arg any) int {
	n := 0
	if args, ok := arg.(Tuple); ok {
		for _, a := range args {
			switch a := a.(type) {
			case string:
				n += len(a)
			case []byte:
				n += len(a)
			case Tuple:
				n += len(a)
			case *List:
				n += 16 * len(a.Items)
			}
		}
	}
	return n
}

var errStack = fmt.Errorf("stack is empty")

func (u *unpickler) push(v any) error {
	u.stack = append(u.stack, v)
	return nil
}

// floor is the lowest stack index that may be popped: nothing below the last mark.
func (u *unpickler) floor() int {
	if n := len(u.marks); n > 0 {
		return u.marks[n-1]
	}
	return 0
}

func (u *unpickler) top() (any, error) {
	if len(u.stack) <= u.floor() {
		return nil, errStack
	}
	return u.stack[len(u.stack)-1], nil
}

func (u *unpickler) pop() (any, error) {
	v, err := u.top()
	if err == nil {
		u.stack = u.stack[:len(u.stack)-1]
	}
	return v, err
}

// popMark removes and returns what lies above the last mark.
func (u *unpickler) popMark() ([]any, error) {
	if len(u.marks) == 0 {
		return nil, fmt.Errorf("no mark on the stack")
	}
	at := u.floor()
	u.marks = u.marks[:len(u.marks)-1]
	return u.popN(len(u.stack) - at)
}

// popN removes and returns the top n items, oldest first.
func (u *unpickler) popN(n int) ([]any, error) {
	at := len(u.stack) - n
	if at < u.floor() {
		return nil, errStack
	}
	items := append([]any{}, u.stack[at:]...)
	u.stack = u.stack[:at]
	for i, v := range items {
		var err error
		if items[i], err = finish(v); err != nil {
			return nil, err
		}
	}
	return items, nil
}

func (u *unpickler) fromMark(op byte) error {
	items, err := u.popMark()
	if err != nil {
		return err
	}
	switch op {
	case 't':
		return u.push(Tuple(items))
	case 'l', 0x91:
		return u.push(&List{Items: items})
	}
	d := NewDict()
	if err := setItems(d, items); err != nil {
		return err
	}
	return u.push(d)
}

// fill adds items to the list or dict below them.
func (u *unpickler) fill(op byte) error {
	var items []any
	var err error
	switch op {
	case 'e', 'u', 0x90:
		if items, err = u.popMark(); err != nil {
			return err
		}
	case 'a', 's':
		if items, err = u.popN(map[byte]int{'a': 1, 's': 2}[op]); err != nil {
			return err
		}
	}
	target, err := u.top()
	if err != nil {
		return err
	}
	switch t := target.(type) {
	case *List:
		if op == 's' || op == 'u' {
			return fmt.Errorf("cannot set keys of a list")
		}
		t.Items = append(t.Items, items...)
		return nil
	case *Dict:
		if op == 's' || op == 'u' {
			return setItems(t, items)
		}
	}
	return fmt.Errorf("cannot add items to %s", TypeName(target))
}

func setItems(d *Dict, items []any) error {
	if len(items)%2 != 0 {
		return fmt.Errorf("odd number of keys and values")
	}
	for i := 0; i < len(items); i += 2 {
		d.Set(items[i], items[i+1])
	}
	return nil
}

func (u *unpickler) memoize(op byte) error {
	var key int
	switch op {
	case 'g', 'p':
		line, err := u.line()
		if err != nil {
			return err
		}
		if key, err = strconv.Atoi(line); err != nil {
			return fmt.Errorf("memo key %.20q", line)
		}
	case 'h', 'q':
		b, err := u.byte()
		if err != nil {
			return err
		}
		key = int(b)
	case 'j', 'r':
		b, err := u.take(4)
		if err != nil {
			return err
		}
		key = int(binary.LittleEndian.Uint32(b))
	case 0x94:
		key = len(u.memo)
	}
	if op == 'g' || op == 'h' || op == 'j' {
		v, ok := u.memo[key]
		if !ok {
			return fmt.Errorf("memo %d was never set", key)
		}
		return u.push(v)
	}
	v, err := u.top()
	u.memo[key] = v
	return err
}

func (u *unpickler) global(op byte) error {
	var module, name string
	if op == 'c' {
		var err error
		if module, err = u.line(); err != nil {
			return err
		}
		if name, err = u.line(); err != nil {
			return err
		}
	} else {
		n, err := u.pop()
		if err != nil {
			return err
		}
		m, err := u.pop()
		if err != nil {
			return err
		}
		var ok1, ok2 bool
		module, ok1 = m.(string)
		name, ok2 = n.(string)
		if !ok1 || !ok2 {
			return fmt.Errorf("a global's name is not text")
		}
	}
	v, err := lookupGlobal(module, name)
	if err != nil {
		return err
	}
	return u.push(v)
}

func (u *unpickler) persistentID(op byte) error {
	var id any
	var err error
	if op == 'P' {
		id, err = u.line()
	} else {
		id, err = u.pop()
	}
	if err != nil {
		return err
	}
	if u.persistent == nil {
		return fmt.Errorf("persistent id outside a PyTorch file")
	}
	v, err := u.persistent(id)
	if err != nil {
		return err
	}
	return u.push(v)
}

var errTruncated = fmt.Errorf("pickle is truncated")

func (u *unpickler) byte() (byte, error) {
	if u.pos >= len(u.data) {
		return 0, errTruncated
	}
	u.pos++
	return u.data[u.pos-1], nil
}

func (u *unpickler) take(n int) ([]byte, error) {
	if n < 0 || n > len(u.data)-u.pos {
		return nil, errTruncated
	}
	u.pos += n
	return u.data[u.pos-n : u.pos : u.pos], nil
}

func (u *unpickler) line() (string, error) {
	n := bytes.IndexByte(u.data[u.pos:], '\n')
	if n < 0 {
		return "", errTruncated
	}
	s := string(u.data[u.pos : u.pos+n])
	u.pos += n + 1
	return strings.TrimSuffix(s, "\r"), nil
}
