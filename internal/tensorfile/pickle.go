package tensorfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strings"
)

// unpickler interprets a pickle of protocol 2 to 5: what PyTorch, NumPy and Python write unless they are asked for less. It has
// no way to call anything: globals are names, and REDUCE, NEWOBJ and BUILD work for the few in globals.go and refuse the rest.
// Every opcode does work proportional to the bytes it reads or the items already on the stack, and calls have a budget for
// what they copy, so the input's length bounds time and memory.
//
// The first error stays, and ends the loop behind the opcode in work: until then reading and popping give zero values.
type unpickler struct {
	data       []byte
	pos        int
	stack      []any
	marks      []int
	memo       map[int]any
	persistent func(id any) (any, error) // resolves storages; nil refuses
	budget     int                       // bytes that calls may still copy: an argument in the memo can be used a million times
	err        error
}

// global is a name on the stack: "module name", one of the list in globals.go.
type global string

func unpickle(data []byte, persistent func(any) (any, error)) (value any, used int, err error) {
	u := &unpickler{data: data, memo: map[int]any{}, persistent: persistent, budget: *copyBudget(data)}
	for {
		at := u.pos
		op := byte(u.uint(1))
		if u.err == nil && op == '.' {
			v := u.pop()
			if u.err == nil {
				v, u.err = finish(v)
			}
			return v, u.pos, u.err
		}
		if u.err != nil {
			return nil, 0, u.err
		}
		if u.step(op); u.err != nil {
			return nil, 0, fmt.Errorf("pickle byte %d: %w", at, u.err)
		}
	}
}

// fail keeps the first error; nil is ignored.
func (u *unpickler) fail(err error) {
	if u.err == nil {
		u.err = err
	}
}

func (u *unpickler) failf(format string, args ...any) { u.fail(fmt.Errorf(format, args...)) }

// step executes one opcode. Names are those of Python's pickletools.
func (u *unpickler) step(op byte) {
	switch op {
	case 0x80: // PROTO
		if v := u.uint(1); v > 5 {
			u.failf("protocol %d, want at most 5", v)
		}
	case 0x95: // FRAME
		u.take(8)
	case '(': // MARK
		u.marks = append(u.marks, len(u.stack))
	case '0': // POP
		if n := len(u.marks); n > 0 && u.marks[n-1] == len(u.stack) {
			u.marks = u.marks[:n-1]
		} else {
			u.pop()
		}
	case '1': // POP_MARK
		u.popMark()
	case '2': // DUP
		u.push(u.top())
	case 'N':
		u.push(nil)
	case 0x88:
		u.push(true)
	case 0x89:
		u.push(false)
	case 'J', 'K', 'M', 0x8a, 0x8b, 'G':
		u.binaryNumber(op)
	case 'X', 0x8c, 0x8d, 'T', 'U', 'B', 'C', 0x8e, 0x96:
		u.binaryString(op)
	case ']', 0x8f: // EMPTY_LIST, EMPTY_SET
		u.push(&List{})
	case '}':
		u.push(NewDict())
	case ')':
		u.push(Tuple{})
	case 't': // TUPLE
		u.push(Tuple(u.popMark()))
	case 'l', 0x91: // LIST, FROZENSET
		u.push(&List{Items: u.popMark()})
	case 'd': // DICT
		d := NewDict()
		u.setItems(d, u.popMark())
		u.push(d)
	case 0x85, 0x86, 0x87: // TUPLE1, TUPLE2, TUPLE3
		u.push(Tuple(u.popN(int(op-0x85) + 1)))
	case 'a': // APPEND
		u.extend(u.popN(1))
	case 'e', 0x90: // APPENDS, ADDITEMS
		u.extend(u.popMark())
	case 's': // SETITEM
		u.update(u.popN(2))
	case 'u': // SETITEMS
		u.update(u.popMark())
	case 'h', 'j', 'q', 'r', 0x94:
		u.memoize(op)
	case 'c', 0x93: // GLOBAL, STACK_GLOBAL
		u.global(op)
	case 'Q': // BINPERSID
		u.persistentID(u.pop())
	case 'R', 0x81, 'b': // REDUCE, NEWOBJ, BUILD
		u.apply(op)
	default:
		u.failf("opcode %#02x is not supported", op)
	}
}

// apply calls the target below the arguments, or gives it its state.
func (u *unpickler) apply(op byte) {
	arg, target := u.pop(), u.pop()
	if u.budget -= copied(arg); u.budget < 0 {
		u.failf("refused: values blow up to many times the file's size")
		return
	}
	do := call
	if op == 'b' {
		do = build
	}
	v, err := do(target, arg)
	u.fail(err)
	u.push(v)
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

var errStack = errors.New("stack is empty")

func (u *unpickler) push(v any) { u.stack = append(u.stack, v) }

// floor is the lowest stack index that may be popped: nothing below the last mark.
func (u *unpickler) floor() int {
	if n := len(u.marks); n > 0 {
		return u.marks[n-1]
	}
	return 0
}

func (u *unpickler) top() any {
	if len(u.stack) <= u.floor() {
		u.fail(errStack)
		return nil
	}
	return u.stack[len(u.stack)-1]
}

func (u *unpickler) pop() any {
	v := u.top()
	if u.err == nil {
		u.stack = u.stack[:len(u.stack)-1]
	}
	return v
}

// popMark removes and returns what lies above the last mark.
func (u *unpickler) popMark() []any {
	if len(u.marks) == 0 {
		u.failf("no mark on the stack")
		return nil
	}
	at := u.floor()
	u.marks = u.marks[:len(u.marks)-1]
	return u.popN(len(u.stack) - at)
}

// popN removes and returns the top n items, oldest first.
func (u *unpickler) popN(n int) []any {
	at := len(u.stack) - n
	if at < u.floor() {
		u.fail(errStack)
		return nil
	}
	items := append([]any{}, u.stack[at:]...)
	u.stack = u.stack[:at]
	for i, v := range items {
		var err error
		items[i], err = finish(v)
		u.fail(err)
	}
	return items
}

// extend adds items to the list or set below them.
func (u *unpickler) extend(items []any) {
	target := u.top()
	list, ok := target.(*List)
	if !ok {
		u.failf("cannot add items to %s", TypeName(target))
		return
	}
	list.Items = append(list.Items, items...)
}

// update sets keys of the dict below them.
func (u *unpickler) update(items []any) {
	switch t := u.top().(type) {
	case *Dict:
		u.setItems(t, items)
	case *List:
		u.failf("cannot set keys of a list")
	default:
		u.failf("cannot add items to %s", TypeName(t))
	}
}

func (u *unpickler) setItems(d *Dict, items []any) {
	if len(items)%2 != 0 {
		u.failf("odd number of keys and values")
		return
	}
	for i := 0; i < len(items); i += 2 {
		d.Set(items[i], items[i+1])
	}
}

func (u *unpickler) memoize(op byte) {
	var key int
	switch op {
	case 'h', 'q':
		key = int(u.uint(1))
	case 'j', 'r':
		key = int(u.uint(4))
	case 0x94:
		key = len(u.memo)
	}
	if op != 'h' && op != 'j' {
		u.memo[key] = u.top()
		return
	}
	v, ok := u.memo[key]
	if !ok {
		u.failf("memo %d was never set", key)
	}
	u.push(v)
}

func (u *unpickler) global(op byte) {
	var module, name any
	if op == 'c' {
		module, name = u.line(), u.line()
	} else {
		name, module = u.pop(), u.pop()
	}
	m, isText := module.(string)
	n, isTextToo := name.(string)
	if !isText || !isTextToo {
		u.failf("a global's name is not text")
		return
	}
	v, err := lookupGlobal(m, n)
	u.fail(err)
	u.push(v)
}

func (u *unpickler) persistentID(id any) {
	if u.persistent == nil {
		u.failf("persistent id outside a PyTorch file")
	}
	if u.err != nil {
		return
	}
	v, err := u.persistent(id)
	u.fail(err)
	u.push(v)
}

var errTruncated = errors.New("pickle is truncated")

// uint reads a number of at most eight bytes, the lowest first.
func (u *unpickler) uint(width int) uint64 {
	var whole [8]byte
	copy(whole[:], u.take(width))
	return binary.LittleEndian.Uint64(whole[:])
}

func (u *unpickler) take(n int) []byte {
	if n < 0 || n > len(u.data)-u.pos {
		u.fail(errTruncated)
		return nil
	}
	u.pos += n
	return u.data[u.pos-n : u.pos : u.pos]
}

func (u *unpickler) line() string {
	n := bytes.IndexByte(u.data[u.pos:], '\n')
	if n < 0 {
		u.fail(errTruncated)
		return ""
	}
	s := string(u.data[u.pos : u.pos+n])
	u.pos += n + 1
	return strings.TrimSuffix(s, "\r")
}

func (u *unpickler) binaryNumber(op byte) {
	switch op {
	case 'J':
		u.push(int64(int32(u.uint(4))))
	case 'K':
		u.push(int64(u.uint(1)))
	case 'M':
		u.push(int64(u.uint(2)))
	case 'G':
		u.push(math.Float64frombits(bits.ReverseBytes64(u.uint(8))))
	case 0x8a: // LONG1
		u.long(u.uint(1))
	case 0x8b: // LONG4
		u.long(u.uint(4))
	}
}

// long reads an integer of n bytes in two's complement, the lowest first.
func (u *unpickler) long(n uint64) {
	if n > 1024 {
		u.failf("integer of %d bytes", n)
		return
	}
	be := slices.Clone(u.take(int(n)))
	slices.Reverse(be)
	v := new(big.Int).SetBytes(be)
	if len(be) > 0 && be[0] >= 0x80 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(be))))
	}
	if v.IsInt64() {
		u.push(v.Int64())
	} else {
		u.push(v)
	}
}

func (u *unpickler) binaryString(op byte) {
	n := u.uint(map[byte]int{'X': 4, 0x8c: 1, 0x8d: 8, 'T': 4, 'U': 1, 'B': 4, 'C': 1, 0x8e: 8, 0x96: 8}[op])
	if n > uint64(len(u.data)) {
		u.fail(errTruncated)
		return
	}
	raw := u.take(int(n))
	switch op {
	case 'B', 'C', 0x8e, 0x96:
		u.push(raw)
	default:
		u.push(string(raw))
	}
}
