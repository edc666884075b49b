package pixels

// Patches is a placeholder until the text+pixels branch lands.
type Patches struct {
	Data           []float32
	Rows           int
	Grid           [3]int
	SecondsPerGrid float32
	Key            string
}
