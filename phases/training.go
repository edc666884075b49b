package phases

// Training is what the section of every phase has.
type Training struct {
	// passes over the phase's queries; 0 skips the phase
	Epochs int `koanf:"epochs" range:"[0,inf)" also:"num_train_epochs,num_epochs,max_epochs,epoch"`
	// queries of an epoch, drawn anew each time (the first ones without data.shuffle); null = all
	EpochQueries *int `koanf:"epoch_queries" range:"[1,inf)"`
	// peak learning rate
	LR float64 `koanf:"lr" range:"(0,inf)" also:"learning_rate"`
	// queries in one forward and backward pass, to bound memory: their gradients add up to the step's; null = all at
	// once
	MicroBatch *int `koanf:"micro_batch" range:"[1,inf)"`
}
