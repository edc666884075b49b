package configs

// Value is what the override sets, typed by the grammar; nil for a sweep and for ~key without a value.
func (o *Override) Value() *Node {
	if o.value == nil || o.isSweep() {
		return nil
	}
	return o.value.toNode()
}

// YAML prints n as OmegaConf.to_yaml does.
func (n *Node) YAML() string { return n.toYAML() }
