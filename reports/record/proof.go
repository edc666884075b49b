package record

// ProofFile is what `run prove` leaves in a run folder.
const ProofFile = "proof.json"

// Proof is proof.json: steps that were computed again and gave the same bytes.
type Proof struct {
	Time    string   `json:"time"`    // RFC 3339
	Version string   `json:"version"` // of the program that computed them
	Said    string   `json:"said"`    // what was proven
	Options []string `json:"options"` // of run prove, to prove it again
}
