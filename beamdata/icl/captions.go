package icl

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"fulcrum/internal/jsonwords"
)

// Describe is what is asked about an image whose captions are its answers.
const Describe = "Describe the image in one sentence."

// LoadCaptions reads a folder with COCO's captions under the names that they are published with, in the folder itself or in folders
// right below it:
//
//	annotations/captions_train2014.json    train2014/COCO_train2014_000000000009.jpg
//	annotations/captions_val2014.json      val2014/COCO_val2014_000000000042.jpg
//
// A record is an image, its id the image's, its answers the captions. Images of train come first, in the order of their file; those
// of val follow and are held out.
func LoadCaptions(root string) (*Set, error) {
	files, err := namesBelow(root)
	if err != nil {
		return nil, err
	}
	b := &builder{Set: &Set{Counts: map[string]int{}, Captions: true}, rows: map[int64]int{}}
	for _, split := range []string{"train", "val"} {
		path, err := one(root, files, split+" captions", `captions_`+split+`\d{4}\.json`)
		if err != nil {
			return nil, err
		}
		if path == "" && split == "train" {
			return nil, fmt.Errorf("data.root=%s: no captions_train2014.json there or one folder below: unpack COCO's annotations there", root)
		}
		if path == "" {
			continue
		}
		folder, err := pictures(root, files, regexp.MustCompile(split+`\d{4}`).FindString(filepath.Base(path)))
		if err != nil {
			return nil, err
		}
		if err := b.readCaptions(path, folder, split == "val"); err != nil {
			return nil, err
		}
	}
	b.at = func(row int) string { return fmt.Sprintf("%s: image %s", root, filepath.Base(b.Records[row].Image)) }
	return b.seal(), nil
}

// readCaptions joins the images and the captions of a file by the image's id.
func (b *builder) readCaptions(path, folder string, heldOut bool) error {
	first := len(b.Records)
	err := eachOf(path, "images", func(raw []byte, _ func() int) error {
		var image struct {
			ID   *int64 `json:"id"`
			File string `json:"file_name"`
		}
		if err := jsonwords.Unmarshal(raw, &image); err != nil {
			return err
		}
		if image.ID == nil || image.File == "" {
			return errors.New("want id and file_name")
		}
		return b.take(Record{ID: *image.ID, Image: filepath.Join(folder, image.File), Question: Describe, ImageID: *image.ID, HeldOut: heldOut})
	})
	if err != nil {
		return err
	}
	return eachOf(path, "annotations", func(raw []byte, _ func() int) error {
		var a struct {
			ImageID int64  `json:"image_id"`
			Caption string `json:"caption"`
		}
		if err := jsonwords.Unmarshal(raw, &a); err != nil {
			return err
		}
		row, ok := b.rows[a.ImageID]
		if !ok || row < first {
			return fmt.Errorf("a caption of image %d, which is none of the file's images", a.ImageID)
		}
		if caption := strings.Join(strings.Fields(a.Caption), " "); caption != "" {
			b.Records[row].Answers = append(b.Records[row].Answers, caption)
		}
		return nil
	})
}
