package main

// completion answers the shell's questions and prints the scripts that ask them.
func (s *session) completion(inv *invocation) error {
	return &usageError{"shell completion is not built in yet"}
}
