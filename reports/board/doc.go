// Package board serves run folders and sweeps as a local web page, and writes the same page as static files.
//
// It reads what other processes write: rows may be torn, folders may come, go and go on. It writes notes (notes.json in
// a run folder) and indexes (.board beside the files), and nothing else. It knows no ledger, lock or process: Options
// hands it what it needs of these.
//
//	b := board.Open(board.Options{Roots: []string{"outputs"}})
//	server := board.NewServer(b, token)
//	err := server.HTTP().Serve(listener)
package board
