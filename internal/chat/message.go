// Package chat holds the messages of a conversation and turns them into the text that a model reads.
package chat

import "image"

// Part is one piece of a message: text, an image or a video.
type Part struct {
	Type string // text, image or video
	Text string

	Path   string   // of an image, a video file or a folder of frames
	Frames []string // of a video: image files in order
	FPS    float64  // frames per second of Frames or of the sampled video; 0 = the default

	Picture func() (image.Image, error) // an image made in memory instead of a file; or nil
	Key     string                      // identity of Picture for caches
}

// Message is one turn of a conversation.
type Message struct {
	Role  string
	Text  string
	Parts []Part // nil: Text is the whole content
}
