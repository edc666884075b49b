package iclshapes

// kinds is how many colours there are, how many words for them, and how many tongues.
const kinds = 3

// tongue says what the words mean: a colour is called by the word so many places behind its own. Every tongue has the same words.
type tongue int

// String is a tongue's name, which no record shows: a small model learns to say and to follow it.
func (t tongue) String() string { return [kinds]string{"one", "two", "three"}[t] }

// answer is the made-up word for a thing's colour.
func (t tongue) answer(q thing) string {
	return [kinds]string{"dax", "wug", "fep"}[(q.hue+int(t))%kinds]
}
