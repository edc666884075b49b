package workload

import (
	"image"

	"fulcrum/beamdata/conversation"
	"fulcrum/internal/chat"
	"fulcrum/reports/record"
	"fulcrum/selector/vl/pixels"
)

// thumbnailSide is the longer side of a kept picture, in pixels.
const thumbnailSide = 160

// thumbnails keeps small copies of a sample's images in the run folder, of a list of frames the first, and returns their paths
// there. One that cannot be read is left out: training says why.
func thumbnails(dir string, s conversation.Sample) (out record.Pictures) {
	for _, m := range s.Messages {
		for _, part := range m.Parts {
			read := part.Picture
			switch {
			case read != nil:
			case part.Type == chat.Image && part.Path != "":
				read = func() (image.Image, error) { return pixels.Decode(part.Path) }
			case len(part.Frames) > 0:
				read = func() (image.Image, error) { return pixels.Decode(part.Frames[0]) }
			default:
				continue
			}
			img, err := read()
			if err != nil {
				continue
			}
			small, err := pixels.Thumbnail(img, thumbnailSide)
			if err != nil {
				continue
			}
			if name, err := record.KeepPicture(dir, small); err == nil {
				out = append(out, name)
			}
		}
	}
	return out
}
