package torchx

// Counts says what crossed between the host and tensors so far, whatever the device: on CUDA an upload is a copy to it,
// and a read-back makes the host wait for all work in its queue.
type Counts struct {
	Uploads   int // host data that became a tensor (From, FromBytes)
	ReadBacks int // tensors that were copied to the host (Data, Floats, Item, Read, AllFinite, …)
	Tensors   int // made
}

var counts Counts

// Counted returns the counts since the program began.
func Counted() Counts { return counts }

// Minus returns what was added since earlier counts.
func (c Counts) Minus(earlier Counts) Counts {
	return Counts{Uploads: c.Uploads - earlier.Uploads, ReadBacks: c.ReadBacks - earlier.ReadBacks, Tensors: c.Tensors - earlier.Tensors}
}
