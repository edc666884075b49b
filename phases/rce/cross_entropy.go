package rce

// crossEntropy is reward-weighted cross entropy, -Σ_i w_i s_i with w = softmax(r/τ): Phase.Loss computes it.
func crossEntropy() Loss { return Loss{Name: "cross_entropy", Weighs: true} }
