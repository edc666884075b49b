// Package conversation reads the data of the token policies: conversations with images or video, the
// completion to learn, annotators' answers and recorded completions with rewards.
//
//	b, err := conversation.Open(opt)       // a JSON or JSONL file; or conversation.Shapes, built in
//	s, err := b.Train.Sample(i)            // decoded now: messages, reference, answers
//
// A file is scanned once for where its records lie and is otherwise left on disk: memory grows by some
// bytes a record, whatever the records hold. The package knows no tokenizer and opens no picture.
package conversation
